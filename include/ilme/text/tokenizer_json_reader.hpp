/// Reads Hugging Face's `tokenizer.json` for byte-level BPE. What it cannot reproduce exactly it refuses by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/byte_level.hpp>
#include <ilme/text/post_processor.hpp>
#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text {

namespace detail {

/// The file as it stands: the two large members apart, the rest as JSON.
struct TokenizerFile {
  Json rest;
  std::vector<std::pair<std::string, TokenId>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  bool has_vocabulary = false, has_merges = false;
};

/// Parser events into a TokenizerFile. (A JSON object in order keeps its members in a list: too slow for a vocabulary.)
class TokenizerFileHandler : public nlohmann::json_sax<Json> {
 public:
  TokenizerFileHandler(std::string where, TokenizerFile& file) : where_(std::move(where)), file_(file) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool binary(binary_t&) override { return false; }
  bool number_unsigned(number_unsigned_t v) override {
    if (state_ != State::vocabulary) return value(v);
    if (v > kLargestTokenId) {
      throw InputError(where_, ": token \"", key_, "\" has the id ", v, ", expected at most ", kLargestTokenId);
    }
    file_.vocabulary.emplace_back(std::move(key_), static_cast<TokenId>(v));
    return true;
  }
  bool string(string_t& v) override {
    if (state_ == State::merges) {
      const auto space = v.find(' ');
      if (space == std::string::npos || v.find(' ', space + 1) != std::string::npos) {
        fail_merge("\"" + v + "\"", "two tokens with one space between");
      }
      file_.merges.emplace_back(v.substr(0, space), v.substr(space + 1));
      return true;
    }
    if (state_ == State::merge) {
      pair_.push_back(std::move(v));
      return true;
    }
    return value(std::move(v));
  }
  bool start_object(std::size_t) override {
    if (state_ == State::other && path_ == "/model/vocab") {
      state_ = State::vocabulary;
      file_.has_vocabulary = true;
      return true;
    }
    return start(Json::object());
  }
  bool key(string_t& v) override {
    key_ = std::move(v);
    if (state_ == State::other) {
      lengths_.push_back(path_.size());
      path_ += "/" + key_;
    }
    return true;
  }
  bool end_object() override {
    if (state_ == State::vocabulary) {
      state_ = State::other;
      leave_member();
      return true;
    }
    return end();
  }
  bool start_array(std::size_t) override {
    if (state_ == State::merges) {
      state_ = State::merge;
      pair_.clear();
      return true;
    }
    if (state_ == State::other && path_ == "/model/merges") {
      state_ = State::merges;
      file_.has_merges = true;
      return true;
    }
    return start(Json::array());
  }
  bool end_array() override {
    if (state_ == State::merge) {
      if (pair_.size() != 2) fail_merge(ilme::detail::short_dump(pair_), "a pair of tokens");
      file_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      state_ = State::merges;
      return true;
    }
    if (state_ == State::merges) {
      state_ = State::other;
      leave_member();
      return true;
    }
    return end();
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    std::string reason = error.what();
    if (const auto end = reason.find("] "); end != std::string::npos) reason.erase(0, end + 2);
    for (char& c : reason) c = c == '\n' ? ' ' : c;
    throw InputError(where_, ": not valid JSON at byte ", position, ": ", reason);
  }

 private:
  static constexpr std::size_t kDeepest = 200;
  enum class State { other, vocabulary, merges, merge };

  [[noreturn]] void fail_merge(const std::string& found, const char* expected) const {
    throw InputError(where_, ": merge ", file_.merges.size(), " is ", found, ", expected ", expected);
  }
  void leave_member() {
    if (lengths_.empty()) return;
    path_.resize(lengths_.back());
    lengths_.pop_back();
  }
  bool value(Json v) {
    if (state_ == State::vocabulary) {
      throw InputError(where_, ": token \"", key_, "\" has the id ", ilme::detail::short_dump(v),
                       ", expected a number from 0 to ", kLargestTokenId);
    }
    if (state_ != State::other) fail_merge(ilme::detail::short_dump(v), "two tokens");
    put(std::move(v));
    if (!stack_.empty() && stack_.back()->is_object()) leave_member();
    return true;
  }
  Json* put(Json v) {
    if (stack_.empty()) {
      file_.rest = std::move(v);
      return &file_.rest;
    }
    if (stack_.back()->is_array()) return &stack_.back()->emplace_back(std::move(v));
    Json& member = (*stack_.back())[key_];
    member = std::move(v);
    return &member;
  }
  bool start(Json v) {
    if (state_ != State::other) value(std::move(v));
    if (stack_.size() >= kDeepest) throw InputError(where_, ": ", path_, ": more than ", kDeepest, " levels deep");
    stack_.push_back(put(std::move(v)));
    return true;
  }
  bool end() {
    stack_.pop_back();
    if (!stack_.empty() && stack_.back()->is_object()) leave_member();
    return true;
  }

  std::string where_;
  TokenizerFile& file_;
  State state_ = State::other;
  std::string key_, path_;
  std::vector<std::size_t> lengths_;  // of `path_` before each member that is open
  std::vector<Json*> stack_;
  std::vector<std::string> pair_;
};

/// Turns a TokenizerFile into a model, or says what stands in the way.
class TokenizerFileInterpreter {
 public:
  TokenizerFileInterpreter(const TokenizerFile& file, std::string where) : file_(file), where_(std::move(where)) {}

  TokenizerModel read() {
    JsonObject root(file_.rest, where_);
    root.get<std::string>("version", "");
    read_model(root.raw("model"));
    for (const char* key : {"truncation", "padding"}) {
      if (root.has(key)) refuse(key, root.raw(key), "null");
    }
    model_.normalizer = Normalizer::from_json(root.raw("normalizer"), where_ + ": normalizer");
    read_added_tokens(root.raw("added_tokens"));
    read_tokens();
    check_unknown_token();
    read_merges();
    model_.pre_tokenizer = PreTokenizer::from_json(root.raw("pre_tokenizer"), where_ + ": pre_tokenizer");
    model_.post_processor = root.raw("post_processor");
    read_single_template(model_.post_processor, model_.tokens.size(), where_ + ": post_processor");
    check_decoder(root.raw("decoder"));
    root.refuse_unknown();
    return std::move(model_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const Json& found, const std::string& expected) const {
    throw InputError(where_, ": ", what, " ", ilme::detail::short_dump(found), " is not supported, expected ",
                     expected);
  }
  static std::string type_of(const Json& value) {
    const auto type = value.is_object() ? value.find("type") : value.end();
    return value.is_object() && type != value.end() && type->is_string() ? type->get<std::string>() : "";
  }

  void read_model(const Json& json) {
    JsonObject model(json, where_ + ": model");
    if (const std::string type = model.get<std::string>("type", "BPE"); type != "BPE")
      refuse("model type", type, "BPE");
    if (model.get<double>("dropout", 0.0) != 0.0) refuse("model dropout", model.raw("dropout"), "null");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!model.get<std::string>(key, "").empty()) refuse(std::string("model ") + key, model.raw(key), "null");
    }
    if (model.get<bool>("byte_fallback", false)) refuse("model byte_fallback", true, "false");
    unknown_token_ = model.get<std::string>("unk_token", "");
    model.get<bool>("fuse_unk", false);
    model_.ignore_merges = model.get<bool>("ignore_merges", false);
    if (!file_.has_vocabulary) throw InputError(where_, ": model.vocab is missing");
    if (!file_.has_merges) throw InputError(where_, ": model.merges is missing");
    model.refuse_unknown();
  }

  void read_added_tokens(const Json& json) {
    if (json.is_null()) return;
    if (!json.is_array())
      throw InputError(where_, ": added_tokens is ", ilme::detail::short_dump(json), ", expected an array");
    for (const Json& entry : json) {
      JsonObject object(entry, where_ + ": added_tokens");
      AddedToken token;
      token.content = object.require<std::string>("content");
      const auto id = object.require<std::uint64_t>("id");
      if (id > kLargestTokenId) {
        throw InputError(where_, ": added token \"", token.content, "\" has the id ", id, ", expected at most ",
                         kLargestTokenId);
      }
      token.id = static_cast<TokenId>(id);
      token.special = object.get<bool>("special", false);
      token.normalized = object.get<bool>("normalized", !token.special);
      if (token.content.empty()) throw InputError(where_, ": added token ", id, " is empty");
      token.single_word = object.get<bool>("single_word", false);
      token.lstrip = object.get<bool>("lstrip", false);
      token.rstrip = object.get<bool>("rstrip", false);
      object.refuse_unknown();
      model_.added_tokens.push_back(std::move(token));
    }
  }

  void put_token(TokenId id, std::string bytes, const std::string& name) {
    if (id >= model_.tokens.size()) model_.tokens.resize(std::size_t{id} + 1);
    if (!model_.tokens[id].empty())
      throw InputError(where_, ": token \"", name, "\" has the id ", id, " of another token");
    model_.tokens[id] = std::move(bytes);
  }

  /// An added token that model.vocab has too has the id of model.vocab, as at Hugging Face.
  void read_tokens() {
    ids_.reserve(file_.vocabulary.size() * 2);
    for (const auto& [name, id] : file_.vocabulary) {
      if (!ids_.emplace(name, id).second) throw InputError(where_, ": token \"", name, "\" is there twice");
    }
    std::unordered_map<std::string_view, TokenId> added;
    std::unordered_map<std::string, std::string_view> normalized;
    for (AddedToken& token : model_.added_tokens) {
      if (const auto found = ids_.find(token.content); found != ids_.end()) token.id = found->second;
      if (!added.emplace(token.content, token.id).second) {
        throw InputError(where_, ": added token \"", token.content, "\" is there twice");
      }
      put_token(token.id, token.content, token.content);
      if (!token.normalized) continue;
      const auto [place, is_new] = normalized.emplace(model_.normalizer.normalize(token.content), token.content);
      if (place->first.empty()) {
        throw InputError(where_, ": added token ", ilme::detail::short_dump(token.content),
                         " is empty when normalized, which is not supported");
      }
      if (!is_new) {
        throw InputError(where_, ": added tokens \"", place->second, "\" and \"", token.content,
                         "\" are one and the same when normalized, expected different ones");
      }
    }
    for (const auto& [name, id] : file_.vocabulary) {
      if (added.contains(name)) continue;
      std::optional<std::string> bytes = from_byte_level(name);
      if (!bytes || bytes->empty()) {
        throw InputError(where_, ": token ", id, " \"", name, "\" is not written in the byte-level alphabet");
      }
      put_token(id, *std::move(bytes), name);
    }
  }

  /// With a token for every byte nothing is ever unknown; without a name for the unknown, bytes are left out.
  void check_unknown_token() const {
    for (int byte = 0; byte < 256 && !unknown_token_.empty(); ++byte) {
      const std::string name = to_byte_level(std::string(1, static_cast<char>(byte)));
      if (!ids_.contains(name)) {
        throw InputError(where_, ": model unk_token \"", unknown_token_, "\" with a vocabulary that has no token \"",
                         name, "\" for the byte ", byte, " is not supported, expected null or a token for every byte");
      }
    }
  }

  void read_merges() {
    model_.merges.reserve(file_.merges.size());
    std::string joined;
    for (const auto& merge : file_.merges) {
      const std::string &left = merge.first, &right = merge.second;
      const auto id_of = [&](const std::string& name) {
        if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
        throw InputError(where_, ": merge ", model_.merges.size(), " (\"", left, "\" \"", right, "\"): token \"", name,
                         "\" is not in the vocabulary");
      };
      joined = left + right;
      model_.merges.push_back({id_of(left), id_of(right), id_of(joined)});
    }
  }

  void check_decoder(const Json& json) const {
    const bool is_sequence = type_of(json) == "Sequence" && json.contains("decoders") && json.at("decoders").is_array();
    std::size_t byte_levels = 0, others = 0;
    for (const Json& step : is_sequence ? json.at("decoders") : Json::array({json})) {
      const std::string type = type_of(step);
      byte_levels += type == "ByteLevel" ? 1 : 0;
      others += type == "ByteLevel" || (type == "Fuse" && is_sequence) ? 0 : 1;
    }
    if (byte_levels != 1 || others > 0) refuse("decoder", json, "ByteLevel, or a Sequence of it and Fuse");
  }

  const TokenizerFile& file_;
  std::string where_, unknown_token_;
  TokenizerModel model_;
  std::unordered_map<std::string_view, TokenId> ids_;
};

}  // namespace detail

/// The model of a `tokenizer.json`. Throws InputError that names the file and the key, merge or token.
inline TokenizerModel read_tokenizer_json(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  detail::TokenizerFile file;
  detail::TokenizerFileHandler handler(path.string(), file);
  Json::sax_parse(text, &handler);
  return detail::TokenizerFileInterpreter(file, path.string()).read();
}

}  // namespace ilme::text
