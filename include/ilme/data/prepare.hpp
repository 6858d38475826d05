/// From text files to token shards: what `ilme-prepare` does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/preparation.hpp>
#include <ilme/data/shard_folder.hpp>
#include <ilme/data/shard_index.hpp>
#include <ilme/data/shard_writer.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::data {

struct PrepareReport {
  ShardIndex train;
  std::optional<ShardIndex> validation = std::nullopt;
  bool up_to_date = false;              // the output was there, made from the same inputs: nothing was done
  std::uint64_t resumed_documents = 0;  // taken over from an interrupted run
};

namespace detail {

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

/// Where the parts of a run lie: finished, and under way.
struct PrepareFolders {
  explicit PrepareFolders(const std::filesystem::path& output)
      : train(output),
        held_out(output / "validation"),
        train_work(output / ".unfinished"),
        held_out_work(train_work / "validation") {}
  std::filesystem::path train, held_out, train_work, held_out_work;
};

/// What an earlier run with the same inputs, options and tokenizer left, if it is all there.
inline std::optional<PrepareReport> earlier_report(const PrepareFolders& folders, const ShardVocabulary& vocabulary,
                                                   const Json& identity, bool wants_validation) {
  auto train = finished_index(folders.train, vocabulary, identity);
  if (!train || !has_all_shards(folders.train, *train)) return std::nullopt;
  PrepareReport report{.train = std::move(*train), .up_to_date = true};
  if (wants_validation) {
    report.validation = finished_index(folders.held_out, vocabulary, identity);
    if (!report.validation || !has_all_shards(folders.held_out, *report.validation)) return std::nullopt;
  }
  return report;
}

/// Makes the shards in the folders for work; returns the documents taken over from an interrupted run.
inline std::uint64_t make_shards(Preparation& preparation, const PrepareOptions& options, const PrepareFolders& folders,
                                 const ShardVocabulary& vocabulary, const Json& identity) {
  ShardWriter train(folders.train_work, vocabulary, identity, options.shard_tokens);
  std::optional<ShardWriter> held_out;
  if (options.validation > 0) held_out.emplace(folders.held_out_work, vocabulary, identity, options.shard_tokens);
  const std::uint64_t resumed = train.documents() + (held_out ? held_out->documents() : 0);
  preparation.run(train, held_out ? &*held_out : nullptr);
  if (train.documents() == 0) {
    const bool all_held_out = held_out && held_out->documents() > 0;
    throw InputError(options.inputs.front().string(), options.inputs.size() > 1 ? " and the other inputs" : "",
                     all_held_out ? ": every document was held out, none is left to train on" : ": no documents");
  }
  if (held_out && held_out->documents() > 0) {
    held_out->finish();
  } else {
    std::filesystem::remove_all(folders.held_out_work);
  }
  train.finish();
  return resumed;
}

/// Moves finished work to its place. The main index goes first and comes last, so that at no time parts of two runs
/// look like one data set. May be repeated after an interruption at any point.
inline void publish(const PrepareFolders& folders, const ShardVocabulary& vocabulary, const Json& identity) {
  std::filesystem::remove(folders.train / "index.json");
  if (std::filesystem::exists(folders.held_out_work / "index.json")) {
    publish_shards(folders.held_out_work, folders.held_out);
  } else if (!finished_index(folders.held_out, vocabulary, identity)) {  // unless it was moved before an interruption
    remove_shards(folders.held_out, 0);
    std::error_code ignored;
    std::filesystem::remove(folders.held_out, ignored);  // if nothing else is there
  }
  publish_shards(folders.train_work, folders.train);
  std::filesystem::remove_all(folders.train_work);
}

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
  const detail::PrepareFolders folders(options.output);
  if (std::filesystem::exists(folders.train) && !std::filesystem::is_directory(folders.train)) {
    throw InputError(folders.train.string(), ": is a file, expected a folder");
  }
  const ShardVocabulary vocabulary{tokenizer.fingerprint(), tokenizer.vocabulary_size(),
                                   detail::first_id(tokenizer, options), tokenizer.eos_id()};
  detail::Preparation preparation(tokenizer, options);  // looks at the inputs before anything is touched
  const Json identity = detail::prepare_identity(options);
  if (auto report = detail::earlier_report(folders, vocabulary, identity, options.validation > 0)) {
    std::filesystem::remove_all(folders.train_work);
    return std::move(*report);
  }
  if (!options.overwrite && std::filesystem::exists(folders.train / "index.json")) {
    const ShardIndex there = read_shard_index(folders.train / "index.json");
    if (there.vocabulary.tokenizer != vocabulary.tokenizer) {
      throw InputError(folders.train.string(), ": holds shards of another tokenizer (", there.vocabulary.tokenizer,
                       ", this one is ", vocabulary.tokenizer, "); give --overwrite to replace them");
    }
  }
  PrepareReport report;
  if (!finished_index(folders.train_work, vocabulary, identity)) {
    try {
      report.resumed_documents = detail::make_shards(preparation, options, folders, vocabulary, identity);
    } catch (const RunError&) {  // a full disk: what is finished waits for the next run
      throw;
    } catch (...) {  // faulty input: it will not go better from where it stopped
      std::error_code ignored;
      std::filesystem::remove_all(folders.train_work, ignored);
      std::filesystem::remove(folders.train, ignored);  // if nothing else is there
      throw;
    }
  }
  detail::publish(folders, vocabulary, identity);
  report.train = read_shard_index(folders.train / "index.json");
  report.validation = finished_index(folders.held_out, vocabulary, identity);
  return report;
}

}  // namespace ilme::data
