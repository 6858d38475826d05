/// Writes `tokenizer.json` and `tokenizer_config.json` that Hugging Face loads with equal ids.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/byte_level.hpp>
#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text {

namespace detail {

/// The merges in the order in which Hugging Face applies them.
inline std::vector<Merge> merges_in_order(const TokenizerModel& model) {
  std::vector<Merge> merges = model.merges;
  if (model.rank_is_result) {
    std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) { return a.result < b.result; });
  }
  return merges;
}

}  // namespace detail

/// The text of `tokenizer.json`. Added tokens stand in `added_tokens` and in `model.vocab`: Hugging Face heeds their
/// ids only in the latter.
inline std::string tokenizer_json(const TokenizerModel& model) {
  const auto quoted = [](std::string_view text) {
    return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::vector<std::string> names(model.tokens.size());
  for (std::size_t id = 0; id < names.size(); ++id) names[id] = to_byte_level(model.tokens[id]);
  Json added = Json::array();
  for (const AddedToken& token : model.added_tokens) {
    names[token.id] = token.content;
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  for (std::string& name : names) {
    if (!name.empty()) name = quoted(name);
  }
  const Json decoder = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": ";
  out += added.dump() + ",\n  \"normalizer\": " + model.normalizer.json().dump();
  out += ",\n  \"pre_tokenizer\": " + model.pre_tokenizer.json().dump();
  out += ",\n  \"post_processor\": " + model.post_processor.dump() + ",\n  \"decoder\": " + decoder.dump();
  out += ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n";
  out += "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n";
  out += "    \"byte_fallback\": false,\n    \"ignore_merges\": ";
  out += model.ignore_merges ? "true" : "false";
  out += ",\n    \"vocab\": {";
  const char* separator = "\n";
  for (std::size_t id = 0; id < names.size(); ++id) {
    if (names[id].empty()) continue;
    out += separator;
    out += "      " + names[id] + ": " + std::to_string(id);
    separator = ",\n";
  }
  out += "\n    },\n    \"merges\": [";
  separator = "\n";
  for (const Merge& merge : detail::merges_in_order(model)) {
    out += separator;
    out += "      [" + names[merge.left] + ", " + names[merge.right] + "]";
    separator = ",\n";
  }
  out += "\n    ]\n  }\n}\n";
  return out;
}

/// Writes `tokenizer.json` and, unless `model.config` is null, `tokenizer_config.json` into `folder`, each atomically;
/// other files there stay.
inline void save_tokenizer(const TokenizerModel& model, const std::filesystem::path& folder) {
  write_file(folder / "tokenizer.json", tokenizer_json(model));
  if (!model.config.is_null()) write_json(folder / "tokenizer_config.json", model.config);
}

}  // namespace ilme::text
