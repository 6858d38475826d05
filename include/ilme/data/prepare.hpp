/// From text files to token shards: what `ilme-prepare` does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/parallel.hpp>
#include <ilme/core/random.hpp>
#include <ilme/data/documents.hpp>
#include <ilme/data/fingerprint.hpp>
#include <ilme/data/shard_index.hpp>
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
};

struct PrepareReport {
  ShardIndex train;
  std::optional<ShardIndex> validation;
  bool up_to_date = false;              // the output was there, made from the same inputs: nothing was done
  std::uint64_t resumed_documents = 0;  // taken over from an interrupted run
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

/// Inputs and options by which a repeated run is told: the same files (name, size, time) give the same shards.
inline Json prepare_identity(const PrepareOptions& options) {
  Json inputs = Json::array();
  for (const auto& path : options.inputs) {
    std::error_code code;
    const std::uintmax_t size = std::filesystem::file_size(path, code);
    const auto time = std::filesystem::last_write_time(path, code).time_since_epoch().count();
    inputs.push_back({{"file", std::filesystem::absolute(path).lexically_normal().string()},
                      {"bytes", code ? 0 : size},
                      {"modified", code ? 0 : static_cast<std::int64_t>(time)}});
  }
  return {{"inputs", inputs},
          {"field", options.field},
          {"validation", options.validation},
          {"shard_tokens", options.shard_tokens}};
}

/// The index of a finished folder that was made from `identity`, if there is one and its files are.
inline std::optional<ShardIndex> finished_index(const std::filesystem::path& folder, const ShardVocabulary& vocabulary,
                                                const Json& identity) {
  if (!std::filesystem::exists(folder / "index.json")) return std::nullopt;
  try {
    ShardIndex index = read_shard_index(folder / "index.json");
    if (index.vocabulary != vocabulary || index.made_from != identity) return std::nullopt;
    return index;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

inline bool has_all_shards(const std::filesystem::path& folder, const ShardIndex& index) {
  for (std::size_t i = 0; i < index.shards.size(); ++i) {
    std::error_code code;
    const std::uintmax_t bin = std::filesystem::file_size(folder / shard_name(i, ".bin"), code);
    if (code || bin != index.shards[i].tokens * index.vocabulary.token_bytes()) return false;
    const std::uintmax_t idx = std::filesystem::file_size(folder / shard_name(i, ".idx"), code);
    if (code || idx != 16 * (index.shards[i].documents + 1)) return false;
  }
  return true;
}

/// Removes a data set's index and its shards from number `from` on; other files stay.
inline void remove_shards(const std::filesystem::path& folder, std::size_t from) {
  if (!std::filesystem::is_directory(folder)) return;
  std::filesystem::remove(folder / "index.json");
  std::vector<std::filesystem::path> shards;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    unsigned long number = 0;
    char extension[4] = {};
    if (std::sscanf(entry.path().filename().c_str(), "shard-%lu.%3s", &number, extension) == 2 && number >= from &&
        entry.path().filename() == shard_name(number, concat('.', extension).c_str())) {
      shards.push_back(entry.path());
    }
  }
  for (const auto& shard : shards) std::filesystem::remove(shard);
}

/// Moves a finished data set to where it is wanted, its index last. May be repeated after an interruption at any point.
inline void publish_shards(const std::filesystem::path& from, const std::filesystem::path& to) {
  const ShardIndex index = read_shard_index(from / "index.json");
  ilme::detail::create_folders(to);
  remove_shards(to, index.shards.size());
  for (std::size_t i = 0; i < index.shards.size(); ++i) {
    for (const char* extension : {".bin", ".idx"}) {
      const std::filesystem::path file = from / shard_name(i, extension);
      if (std::filesystem::exists(file)) std::filesystem::rename(file, to / shard_name(i, extension));
    }
  }
  std::filesystem::rename(from / "index.json", to / "index.json");
  ilme::detail::sync_path(to);
}

/// Reads, tokenises and writes; returns the documents that were taken over from an earlier run.
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
      const auto bos = tokenizer_.bos_id(), eos = tokenizer_.eos_id();
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

/// Tokenises the documents of `inputs` into shards: BOS before and EOS after each, where the tokenizer has them; empty
/// documents are left out. The order is the inputs', for any number of threads. Work goes to `output/.unfinished` and
/// appears under its final name when it is whole; a run that was killed goes on where its last shard ends when it is
/// repeated with the same options on the same files. Throws InputError when the inputs hold no document, and when
/// another tokenizer made the data set that is there (unless `overwrite`).
inline PrepareReport prepare(const text::Tokenizer& tokenizer, const PrepareOptions& options) {
  if (!(options.validation >= 0 && options.validation < 1)) {
    throw InputError("validation share is ", options.validation, ", expected at least 0 and below 1");
  }
  const ShardVocabulary vocabulary{tokenizer.fingerprint(), tokenizer.vocabulary_size(), tokenizer.bos_id(),
                                   tokenizer.eos_id()};
  detail::Preparation preparation(tokenizer, options);  // looks at the inputs before anything is touched
  const Json identity = detail::prepare_identity(options);
  const std::filesystem::path& output = options.output;
  const std::filesystem::path held_out = output / "validation";
  if (std::filesystem::exists(output) && !std::filesystem::is_directory(output)) {
    throw InputError(output.string(), ": is a file, expected a folder");
  }

  const std::filesystem::path work = output / ".unfinished", held_out_work = work / "validation";
  PrepareReport report;
  if (auto index = detail::finished_index(output, vocabulary, identity)) {
    report.validation = detail::finished_index(held_out, vocabulary, identity);
    if (detail::has_all_shards(output, *index) &&
        (!report.validation || detail::has_all_shards(held_out, *report.validation))) {
      report.train = std::move(*index);
      report.up_to_date = true;
      std::filesystem::remove_all(work);
      return report;
    }
    report.validation.reset();
  }
  if (!options.overwrite && std::filesystem::exists(output / "index.json")) {
    const ShardIndex there = read_shard_index(output / "index.json");
    if (there.vocabulary.tokenizer != vocabulary.tokenizer) {
      throw InputError(output.string(), ": holds shards of another tokenizer (", there.vocabulary.tokenizer,
                       ", this one is ", vocabulary.tokenizer, "); give --overwrite to replace them");
    }
  }

  if (!detail::finished_index(work, vocabulary, identity)) {
    try {
      ShardWriter train(work, vocabulary, identity, options.shard_tokens);
      std::optional<ShardWriter> validation;
      if (options.validation > 0) validation.emplace(held_out_work, vocabulary, identity, options.shard_tokens);
      report.resumed_documents = train.documents() + (validation ? validation->documents() : 0);
      preparation.run(train, validation ? &*validation : nullptr);
      if (train.documents() == 0) {
        throw InputError(options.inputs.front().string(), options.inputs.size() > 1 ? " and the other inputs" : "",
                         validation && validation->documents() > 0
                             ? ": every document was held out, none is left to train on"
                             : ": no documents");
      }
      if (validation && validation->documents() > 0) {
        validation->finish();
      } else {
        std::filesystem::remove_all(held_out_work);
      }
      train.finish();
    } catch (const InputError&) {  // it will not go better from where it stopped
      std::error_code ignored;
      std::filesystem::remove_all(work, ignored);
      std::filesystem::remove(output, ignored);  // if nothing else is there
      throw;
    }
  }
  // The main index goes first and comes last, so that at no time parts of two runs look like one data set.
  std::filesystem::remove(output / "index.json");
  if (std::filesystem::exists(held_out_work / "index.json")) {
    detail::publish_shards(held_out_work, held_out);
  } else if (!detail::finished_index(held_out, vocabulary, identity)) {  // unless it was moved before an interruption
    detail::remove_shards(held_out, 0);
    std::error_code ignored;
    std::filesystem::remove(held_out, ignored);  // if nothing else is there
  }
  detail::publish_shards(work, output);
  std::filesystem::remove_all(work);
  report.train = read_shard_index(output / "index.json");
  report.validation = detail::finished_index(held_out, vocabulary, identity);
  return report;
}

}  // namespace ilme::data
