/// Chat files as token ids with loss masks, ready to be packed (data/chat_rows.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/parallel.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/document_sources.hpp>
#include <ilme/data/documents.hpp>
#include <ilme/data/fingerprint.hpp>
#include <ilme/text/chat.hpp>
#include <ilme/text/chat_template.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::data {

/// What became of the conversations of a chat file.
struct ChatReport {
  std::int64_t read = 0, kept = 0;
  std::int64_t truncated = 0;                   // kept, but cut to the sequence length
  std::int64_t dropped = 0;                     // no trained token is left
  std::int64_t tokens = 0, trained_tokens = 0;  // of those kept; trained: positions with a label
  std::vector<std::string> dropped_lines;       // "file:line" of each
};

/// What to do with a conversation that has no assistant turn.
enum class NoAssistant { refuse, drop };

struct ChatOptions {
  /// Longer conversations are cut to this many tokens, ids and loss mask alike.
  std::int64_t sequence_length = 2048;
  NoAssistant no_assistant = NoAssistant::refuse;
  /// The chat template; detected from the tokenizer's special tokens when not given.
  std::optional<text::ChatFormat> format = std::nullopt;
  /// Opens conversations that have no system message, as the folder's template does (text/chat_template.hpp); "": none.
  std::string default_system = {};
  /// Threads to encode with; 0: all.
  std::size_t threads = 0;
};

/// Encoded conversations in memory; copies share them.
class ChatExamples {
 public:
  /// Takes conversations as they are encoded, cuts them to `sequence_length` and drops those that no label is left in.
  /// `lines` says where each comes from, in which of `files`; without it they go by number. None left is an InputError.
  ChatExamples(std::vector<text::EncodedChat> encoded, std::int64_t sequence_length,
               const std::vector<DocumentId>& lines = {}, std::vector<DocumentSource> files = {})
      : sequence_length_(sequence_length), files_(std::move(files)) {
    if (files_.empty()) files_.push_back({"conversations", "example"});
    if (sequence_length < 1) throw InputError("sequence length is ", sequence_length, ", expected at least 1");
    const auto limit = static_cast<std::size_t>(sequence_length);
    std::vector<text::EncodedChat> kept;
    std::vector<DocumentId> documents;
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      text::EncodedChat& example = encoded[i];
      if (example.ids.size() != example.loss_mask.size()) {
        throw InputError("chat example ", i, " has ", example.ids.size(), " ids and a loss mask of ",
                         example.loss_mask.size());
      }
      const bool cut = example.ids.size() > limit;
      if (cut) {
        example.ids.resize(limit);
        example.loss_mask.resize(limit);
      }
      ++report_.read;
      // The first token is nobody's label: nothing comes before it.
      const std::int64_t trained =
          example.ids.empty() ? 0 : std::count(example.loss_mask.begin() + 1, example.loss_mask.end(), 1);
      if (trained == 0) {
        ++report_.dropped;
        report_.dropped_lines.push_back(
            i < lines.size() ? concat(files_.at(lines[i].source).name, ":", lines[i].document) : concat("example ", i));
        continue;
      }
      ++report_.kept;
      report_.truncated += cut ? 1 : 0;
      report_.tokens += static_cast<std::int64_t>(example.ids.size());
      report_.trained_tokens += trained;
      hash = hash_bytes({reinterpret_cast<const char*>(example.ids.data()), example.ids.size() * sizeof(text::TokenId)},
                        hash);
      hash = hash_bytes({reinterpret_cast<const char*>(example.loss_mask.data()), example.loss_mask.size()}, hash);
      kept.push_back(std::move(example));
      documents.push_back(i < lines.size() ? lines[i] : DocumentId{0, static_cast<std::int64_t>(i)});
    }
    if (kept.empty()) {
      throw InputError("none of the ", report_.read, " conversations has a token to train on",
                       report_.read > 0
                           ? concat(" within ", sequence_length, " tokens, from ", report_.dropped_lines.front())
                           : std::string());
    }
    fingerprint_ = hash_digits(hash);
    examples_ = std::make_shared<const std::vector<text::EncodedChat>>(std::move(kept));
    documents_ = std::make_shared<const std::vector<DocumentId>>(std::move(documents));
  }

  std::size_t size() const noexcept { return examples_->size(); }
  const text::EncodedChat& operator[](std::size_t i) const { return (*examples_)[i]; }
  /// The file and line of example i.
  DocumentId document(std::size_t i) const { return (*documents_)[i]; }
  const std::vector<DocumentSource>& files() const noexcept { return files_; }
  std::int64_t sequence_length() const noexcept { return sequence_length_; }
  const std::string& fingerprint() const noexcept { return fingerprint_; }
  const ChatReport& report() const noexcept { return report_; }

 private:
  std::int64_t sequence_length_;
  ChatReport report_;
  std::string fingerprint_;
  std::vector<DocumentSource> files_;
  std::shared_ptr<const std::vector<text::EncodedChat>> examples_;
  std::shared_ptr<const std::vector<DocumentId>> documents_;
};

/// Reads `.jsonl` files (also `.gz`, `.zst`) of {"messages": [{"role", "content"}, ...]} and encodes every line with
/// the tokenizer's chat template. A malformed line, and by default one without an assistant turn, is an InputError that
/// names file:line.
inline ChatExamples load_chat_examples(const std::vector<std::filesystem::path>& files,
                                       const text::Tokenizer& tokenizer, const ChatOptions& options = {}) {
  const text::ChatFormat format = options.format ? *options.format : text::detect_chat_format(tokenizer);
  DocumentReader reader(files);
  std::vector<DocumentLine> lines;
  while (auto line = reader.next_line()) lines.push_back(std::move(*line));
  std::vector<text::EncodedChat> encoded(lines.size());
  std::vector<DocumentId> origins(lines.size());
  parallel_for(lines.size(), options.threads, [&](std::size_t i) {
    origins[i] = {static_cast<std::int64_t>(lines[i].file), static_cast<std::int64_t>(lines[i].line)};
    const std::vector<text::Message> messages = text::messages_from_json(
        reader.json(lines[i]), reader.where(lines[i]), /*needs_assistant=*/options.no_assistant == NoAssistant::refuse);
    const bool answered =
        std::any_of(messages.begin(), messages.end(), [](const auto& message) { return message.role == "assistant"; });
    if (answered)
      encoded[i] = text::encode_chat(tokenizer, format, text::with_system_message(messages, options.default_system));
    lines[i].bytes = {};
  });
  if (lines.empty()) throw InputError(files.front().string(), ": has no conversations");
  std::vector<DocumentSource> sources;
  for (const auto& file : files) sources.push_back({file.string(), "line"});
  return ChatExamples(std::move(encoded), options.sequence_length, origins, std::move(sources));
}

}  // namespace ilme::data
