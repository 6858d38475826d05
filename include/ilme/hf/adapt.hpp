/// Moves a model folder to another tokenizer. No model is built: tensors that do not change go from the mapped files to
/// the new ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/random.hpp>
#include <ilme/hf/adapted_config.hpp>
#include <ilme/hf/adapted_tokenizer.hpp>
#include <ilme/hf/config.hpp>
#include <ilme/hf/embedding_rows.hpp>
#include <ilme/hf/token_plan.hpp>
#include <ilme/hf/weights.hpp>
#include <ilme/nn/llama_config.hpp>
#include <ilme/text/chat.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::hf {

struct AdaptOptions {
  std::filesystem::path model;            ///< model folder with its tokenizer
  std::filesystem::path tokenizer;        ///< folder of the new tokenizer
  std::filesystem::path output;           ///< absent or empty
  std::filesystem::path old_tokenizer{};  ///< folder of the model's tokenizer when it is not in `model`
  RowMethod method = RowMethod::mean;
  std::int64_t pad_to = 1;  ///< the vocabulary is padded to a multiple of it
  std::uint64_t seed = 0;
  std::uint64_t max_shard_size = kMaxShardSize;
};

/// What happened, for people.
struct AdaptReport {
  std::int64_t old_rows = 0, new_rows = 0, hidden_size = 0;
  std::int64_t copied = 0, by_role = 0, averaged = 0, fresh = 0, padded = 0;  ///< rows; padded: ids without a token too
  double pieces_per_averaged = 0;
  bool tied = false;
  struct Role {
    std::string token, role, from;
  };
  std::vector<Role> roles;                ///< special tokens that took the row of another
  std::vector<std::string> fresh_tokens;  ///< names of special tokens with a fresh row
  SpecialIds special;
  std::vector<std::string> notes;
};

namespace detail {

inline constexpr const char* kEmbeddingName = "model.embed_tokens.weight";
inline constexpr const char* kHeadName = "lm_head.weight";

inline void check_adapt_paths(const AdaptOptions& options) {
  std::error_code code;
  for (const auto& input : {options.model, options.tokenizer}) {
    if (std::filesystem::equivalent(input, options.output, code)) {
      throw InputError(options.output.string(), ": is both an input and the output; give another output folder");
    }
  }
  if (!std::filesystem::exists(options.output, code)) return;
  if (!std::filesystem::is_directory(options.output, code)) {
    throw InputError(options.output.string(), ": is a file, expected the name of a folder");
  }
  if (!std::filesystem::is_empty(options.output, code)) {
    throw InputError(options.output.string(), ": holds files already, expected a new or empty folder");
  }
}

inline void check_disk(const std::filesystem::path& output, std::uint64_t bytes) {
  std::error_code code;
  std::filesystem::path folder = std::filesystem::absolute(output, code);
  while (!std::filesystem::exists(folder, code) && folder.has_relative_path()) folder = folder.parent_path();
  const auto space = std::filesystem::space(folder, code);
  if (!code && space.available < bytes) {
    throw RunError(output.string(), ": the model needs ", bytes, " bytes, the disk has ", space.available, " free");
  }
}

inline text::Tokenizer load_old_tokenizer(const AdaptOptions& options) {
  if (!options.old_tokenizer.empty()) return text::Tokenizer::load(options.old_tokenizer);
  std::error_code code;
  if (!std::filesystem::exists(options.model / "tokenizer.json", code) &&
      !std::filesystem::exists(options.model / "tokenizer.model", code)) {
    throw InputError(options.model.string(),
                     ": the model's own tokenizer (tokenizer.json or tokenizer.model) is "
                     "missing; give its folder with --model-tokenizer");
  }
  return text::Tokenizer::load(options.model);
}

/// The embedding, and the head of a model that has one of its own. Throws InputError when they do not fit the
/// configuration.
inline std::vector<std::string> table_names(const WeightFiles& files, const nn::LlamaConfig& config) {
  const std::string where = files.folder().string();
  std::vector<std::string> names{kEmbeddingName};
  if (!config.tie_word_embeddings) names.emplace_back(kHeadName);
  for (const std::string& name : names) {
    const auto& entry = files.entry(name);
    if (entry.shape != std::vector<std::int64_t>{config.vocab_size, config.hidden_size}) {
      throw InputError(where, ": ", name, " has shape ", Json(entry.shape).dump(), ", config.json says [",
                       config.vocab_size, ",", config.hidden_size, "]");
    }
    if (!c10::isFloatingType(io::scalar_type_of_safetensors(entry.dtype))) {
      throw InputError(where, ": ", name, " has dtype ", entry.dtype, ", expected floating point");
    }
  }
  if (config.tie_word_embeddings && files.contains(kHeadName) &&
      !files.tensor(kHeadName).equal(files.tensor(kEmbeddingName))) {
    throw InputError(where, ": ", kHeadName, " differs from ", kEmbeddingName,
                     ", but config.json ties them (tie_word_embeddings is true)");
  }
  return names;
}

/// Padding, and ids that the new tokenizer leaves out.
inline std::vector<std::int64_t> ids_without_token(const TokenPlan& plan, std::int64_t rows) {
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < rows; ++id) {
    const auto i = static_cast<std::size_t>(id);
    if (i >= plan.rows().size() || plan.rows()[i].source == RowSource::unused) ids.push_back(id);
  }
  return ids;
}

/// The ids of the moved model: what the new tokenizer declares, else what took the place of the old ids. Generation
/// stops at every token that ended it before, at the new tokenizer's end of text and at its end of turn.
inline SpecialIds special_ids(const nn::LlamaConfig& config, const text::Tokenizer& tokenizer, const IdMap& new_id) {
  SpecialIds ids;
  const auto take = [&](std::optional<text::TokenId> declared, std::int64_t old_id) -> std::optional<std::int64_t> {
    if (declared) return *declared;
    return old_id >= 0 ? new_id(old_id) : std::nullopt;
  };
  ids.bos = take(tokenizer.bos_id(), config.bos_token_id);
  ids.pad = take(tokenizer.pad_id(), config.pad_token_id);
  const auto add = [&](std::optional<std::int64_t> id) {
    if (id && std::find(ids.eos.begin(), ids.eos.end(), *id) == ids.eos.end()) ids.eos.push_back(*id);
  };
  for (const std::int64_t id : config.eos_token_ids) add(new_id(id));
  if (const auto eos = tokenizer.eos_id()) add(*eos);
  for (const auto format : {text::ChatFormat::llama3, text::ChatFormat::chatml}) {
    if (!text::detail::missing_chat_tokens(tokenizer, format).empty()) continue;
    for (const text::TokenId id : text::stop_ids(tokenizer, format)) add(id);
  }
  return ids;
}

inline void fill_report(AdaptReport& report, const TokenPlan& plan, RowMethod method,
                        const text::Tokenizer& old_tokenizer, const text::Tokenizer& new_tokenizer) {
  const auto count = [&](RowSource source) { return static_cast<std::int64_t>(plan.count(source)); };
  report.copied = count(RowSource::copied);
  report.by_role = count(RowSource::by_role);
  report.fresh = count(RowSource::fresh);
  (method == RowMethod::mean ? report.averaged : report.fresh) += count(RowSource::averaged);
  report.padded = report.new_rows - report.copied - report.by_role - report.averaged - report.fresh;
  double pieces = 0;
  for (std::size_t id = 0; id < plan.rows().size(); ++id) {
    const TokenPlan::Row& row = plan.rows()[id];
    pieces += row.count;
    const auto token = static_cast<text::TokenId>(id);
    if (row.source == RowSource::fresh && new_tokenizer.is_special(token)) {
      report.fresh_tokens.emplace_back(new_tokenizer.token_bytes(token));
    }
  }
  report.pieces_per_averaged = report.averaged > 0 ? pieces / static_cast<double>(report.averaged) : 0;
  for (const auto& match : plan.role_matches()) {
    report.roles.push_back({std::string(new_tokenizer.token_bytes(match.id)), role_title(match.role),
                            std::string(old_tokenizer.token_bytes(match.from))});
  }
}

}  // namespace detail

/// Writes to options.output the model of options.model with the tokenizer of options.tokenizer: embedding and head by
/// TokenPlanner and move_rows, every other tensor as it is, and all files that name tokens. Tied embeddings stay tied.
/// The output appears as a whole. Peak memory: the mapped model (pages that the system can take back) and the new
/// tables. Throws InputError for folders that do not fit each other, RunError when the disk is too small or writing
/// fails.
inline AdaptReport adapt_model(const AdaptOptions& options) {
  detail::check_adapt_paths(options);
  constexpr std::int64_t kLargest = std::int64_t{1} << 31;
  if (options.pad_to < 1 || options.pad_to > kLargest) {
    throw InputError("pad-to is ", options.pad_to, ", expected 1 to ", kLargest);
  }
  const nn::LlamaConfig config = read_config(options.model);
  const WeightFiles files(options.model);
  const text::Tokenizer old_tokenizer = detail::load_old_tokenizer(options);
  const text::Tokenizer new_tokenizer = text::Tokenizer::load(options.tokenizer);

  AdaptReport report;
  report.old_rows = config.vocab_size;
  report.hidden_size = config.hidden_size;
  report.tied = config.tie_word_embeddings;
  const auto tokens = static_cast<std::int64_t>(new_tokenizer.vocabulary_size());
  report.new_rows = (tokens + options.pad_to - 1) / options.pad_to * options.pad_to;
  if (report.new_rows > kLargest) {
    throw InputError(options.tokenizer.string(), ": ", tokens, " tokens padded to a multiple of ", options.pad_to,
                     " are ", report.new_rows, " rows, expected at most ", kLargest);
  }
  if (static_cast<std::int64_t>(old_tokenizer.vocabulary_size()) > config.vocab_size) {
    report.notes.push_back(concat("the model's tokenizer has ", old_tokenizer.vocabulary_size(),
                                  " tokens, its embedding ", config.vocab_size, " rows: the rest is taken as absent"));
  }

  const auto optional_id = [](std::int64_t id) {
    return id < 0 ? std::nullopt : std::optional(static_cast<text::TokenId>(id));
  };
  const ConfiguredIds configured{
      optional_id(config.bos_token_id),
      config.eos_token_ids.empty() ? std::nullopt : optional_id(config.eos_token_ids.front()),
      optional_id(config.pad_token_id)};
  const TokenPlan plan = TokenPlanner(old_tokenizer, new_tokenizer, config.vocab_size, configured).plan();
  detail::fill_report(report, plan, options.method, old_tokenizer, new_tokenizer);
  const IdMap new_id = [&](std::int64_t id) -> std::optional<std::int64_t> { return plan.new_id(id); };
  report.special = detail::special_ids(config, new_tokenizer, new_id);

  const std::vector<std::string> tables = detail::table_names(files, config);
  // A tied model's file may hold the head as a copy; the new one does not.
  const auto is_table = [&](const std::string& name) {
    return name == detail::kEmbeddingName || name == detail::kHeadName;
  };
  std::uint64_t bytes = 0;
  for (const std::string& name : tables) {
    const auto element = c10::elementSize(io::scalar_type_of_safetensors(files.entry(name).dtype));
    bytes += static_cast<std::uint64_t>(report.new_rows * config.hidden_size) * element;
  }
  for (const std::string& name : files.names()) {
    if (!is_table(name)) bytes += files.entry(name).end - files.entry(name).begin;
  }
  detail::check_disk(options.output, bytes);

  std::vector<bool> text_tokens(old_tokenizer.vocabulary_size());
  for (text::TokenId id = 0; id < text_tokens.size(); ++id) {
    text_tokens[id] = !old_tokenizer.is_special(id) && !old_tokenizer.token_bytes(id).empty();
  }
  io::NamedTensors tensors;
  for (const std::string& name : tables) {
    const TrainedRows rows(files.tensor(name), text_tokens, options.model.string() + ": " + name);
    tensors.emplace_back(name, move_rows(rows, plan, report.new_rows, options.method,
                                         name == detail::kHeadName ? random_bits(options.seed, 1) : options.seed));
  }
  for (const std::string& name : files.names()) {
    if (!is_table(name)) tensors.emplace_back(name, files.tensor(name));
  }

  AtomicDirectory fresh(options.output);
  save_weights(tensors, fresh.path(), std::nullopt, options.max_shard_size);
  std::error_code code;
  const auto generation = options.model / "generation_config.json";
  write_json(fresh.path() / "config.json", adapted_config(read_json(options.model / "config.json"), report.new_rows,
                                                          report.special, new_id, report.notes));
  write_json(fresh.path() / "generation_config.json",
             adapted_generation_config(
                 std::filesystem::exists(generation, code) ? read_json(generation) : Json::object(), report.special,
                 detail::ids_without_token(plan, report.new_rows), new_id, report.notes));
  write_adapted_tokenizer(fresh.path(), options.tokenizer, new_tokenizer,
                          options.old_tokenizer.empty() ? options.model : options.old_tokenizer, old_tokenizer,
                          config.max_position_embeddings, report.notes);
  read_config(fresh.path());
  fresh.commit();
  return report;
}

}  // namespace ilme::hf
