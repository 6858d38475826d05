/// The pipeline inside data/prepare.hpp: reads documents, tokenises them on all threads, writes them in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ilme/core/parallel.hpp>
#include <ilme/data/documents.hpp>
#include <ilme/data/fingerprint.hpp>
#include <ilme/data/shard_writer.hpp>
#include <ilme/text/chat.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::data {

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;
  /// Receives the data set; a held-out part goes to its subfolder `validation`.
  std::filesystem::path output;
  /// The string of a JSON line that is the document; "messages" takes conversations through the chat template.
  std::string field = "text";
  std::uint64_t shard_tokens = ShardWriter::kDefaultShardTokens;
  /// Share of the documents to hold out, in [0, 1), chosen by a hash of their text: equal documents go the same way,
  /// and the choice depends neither on their order nor on what else there is.
  double validation = 0;
  std::size_t threads = 0;  // 0: all
  /// Replaces an output that another tokenizer made.
  bool overwrite = false;
  /// Told how many bytes of the inputs have been read, and of how many; called by the thread that called `prepare`.
  std::function<void(std::uint64_t, std::uint64_t)> progress = nullptr;
  /// What stands before a document when the tokenizer names no BOS (a model's bos_token_id); none: nothing.
  std::optional<text::TokenId> bos_id = std::nullopt;
};

namespace detail {

/// A finished document, or what `prepare` must do with it.
struct PreparedDocument {
  std::string text;
  std::vector<text::Message> messages;  // instead of text, of a chat line
  std::vector<text::TokenId> ids;
  std::uint64_t source_bytes = 0;
  bool held_out = false, known = false;  // known: an earlier run wrote it
};

/// Reads, tokenises and writes; returns the documents that were taken over from an earlier run.
inline std::optional<text::TokenId> first_id(const text::Tokenizer& tokenizer, const PrepareOptions& options) {
  return tokenizer.bos_id() ? tokenizer.bos_id() : options.bos_id;
}

class Preparation {
 public:
  Preparation(const text::Tokenizer& tokenizer, const PrepareOptions& options)
      : tokenizer_(tokenizer), options_(options), reader_(options.inputs, options.field) {
    if (options_.field == "messages") chat_format_ = text::detect_chat_format(tokenizer_);
  }

  void run(ShardWriter& train, ShardWriter* validation) {
    std::vector<DocumentLine> lines = read_chunk();
    std::vector<PreparedDocument> finished, current;
    std::uint64_t seen_train = 0, seen_validation = 0;
    const std::uint64_t known_train = train.documents(), known_validation = validation ? validation->documents() : 0;
    const auto write = [&] {
      for (const PreparedDocument& document : finished) {
        if (document.known) continue;
        (document.held_out ? *validation : train).add(document.ids, document.source_bytes);
      }
      finished.clear();
    };
    while (!lines.empty()) {
      current.assign(lines.size(), {});
      for_slices(lines.size(), nullptr, [&](std::size_t i) { current[i] = parse(lines[i]); });
      std::erase_if(current, [](const PreparedDocument& document) { return document.source_bytes == 0; });
      for (PreparedDocument& document : current) {
        document.known = document.held_out ? seen_validation++ < known_validation : seen_train++ < known_train;
      }
      // While the others tokenise, one thread writes the chunk before and reads the next.
      const auto beside = [&] {
        write();
        lines = read_chunk();
      };
      for_slices(current.size(), beside, [&](std::size_t i) { tokenise(current[i]); });
      std::swap(finished, current);
      if (options_.progress) options_.progress(reader_.bytes_read(), reader_.bytes_total());
    }
    write();
  }

 private:
  static constexpr std::size_t kChunkBytes = std::size_t{8} << 20;
  static constexpr std::size_t kSlices = 128;

  std::vector<DocumentLine> read_chunk() {
    std::vector<DocumentLine> lines;
    for (std::size_t bytes = 0; bytes < kChunkBytes;) {
      auto line = reader_.next_line();
      if (!line) break;
      bytes += line->bytes.size() + 1;
      lines.push_back(std::move(*line));
    }
    return lines;
  }

  /// Calls body(i) for i in [0, count) in slices over the threads, and `beside` on one of them first.
  template <class Body>
  void for_slices(std::size_t count, const std::function<void()>& beside, Body&& body) {
    const std::size_t slices = std::min(count, kSlices);
    parallel_for(slices + 1, options_.threads, [&](std::size_t slice) {
      if (slice == 0) {
        if (beside) beside();
        return;
      }
      for (std::size_t i = (slice - 1) * count / slices; i < slice * count / slices; ++i) body(i);
    });
  }

  PreparedDocument parse(DocumentLine& line) const {
    PreparedDocument document;
    if (chat_format_) {
      document.messages = text::messages_from_json(reader_.json(line), reader_.where(line), /*needs_assistant=*/false);
      for (const text::Message& message : document.messages) {
        document.text += message.role + '\n' + message.content + '\n';  // only to hash
        document.source_bytes += message.content.size();
      }
    } else {
      document.text = reader_.text(line);
      document.source_bytes = document.text.size();
    }
    line.bytes = {};
    // A fixed seed: the share held out of two sets that have a document in common is the same for it.
    const double draw = static_cast<double>(hash_bytes(document.text, 0x76616C) >> 11) * 0x1.0p-53;
    document.held_out = draw < options_.validation;
    if (chat_format_) document.text = {};
    return document;
  }

  void tokenise(PreparedDocument& document) const {
    if (!document.known) {
      std::vector<text::TokenId> body = chat_format_
                                            ? text::encode_chat(tokenizer_, *chat_format_, document.messages).ids
                                            : tokenizer_.encode(document.text);
      const auto bos = first_id(tokenizer_, options_), eos = tokenizer_.eos_id();
      if (bos && !(chat_format_ && !body.empty() && body.front() == *bos)) document.ids.push_back(*bos);
      document.ids.insert(document.ids.end(), body.begin(), body.end());
      if (eos && !(chat_format_ && !body.empty() && body.back() == *eos)) document.ids.push_back(*eos);
    }
    document.text = {};
    document.messages = {};
  }

  const text::Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  DocumentReader reader_;
  std::optional<text::ChatFormat> chat_format_;
};

}  // namespace detail

}  // namespace ilme::data
