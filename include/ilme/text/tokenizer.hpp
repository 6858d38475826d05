/// A byte-level BPE tokenizer: text to ids and back, exactly as Hugging Face tokenizers and tiktoken do it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/huge_pages.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/parallel.hpp>
#include <ilme/text/added_tokens.hpp>
#include <ilme/text/bpe_encoder.hpp>
#include <ilme/text/post_processor.hpp>
#include <ilme/text/special_tokens.hpp>
#include <ilme/text/tiktoken.hpp>
#include <ilme/text/tokenizer_json_reader.hpp>
#include <ilme/text/tokenizer_json_writer.hpp>
#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text {

/// How the names of special tokens in a text are treated.
enum class Special {
  text,   // as any other text: the result never holds a special token (Hugging Face: encode_special_tokens)
  allow,  // they become the special tokens
};

/// Ids and for each the bytes of the source text that it stands for.
struct EncodedText {
  std::vector<TokenId> ids;
  std::vector<SourceRange> ranges;
};

/// Immutable; copies share one state; any number of threads may use one object at once.
class Tokenizer {
 public:
  /// Bytes that the words which each thread remembers take at most.
  static constexpr std::size_t kDefaultCacheBytes = BpeEncoder::Scratch::kDefaultCacheBytes;

  /// Builds the tables. Throws InputError when a byte has no token or a role in `model.config` names no token.
  explicit Tokenizer(TokenizerModel model, std::size_t cache_bytes = kDefaultCacheBytes)
      : state_(std::make_shared<State>(std::move(model), cache_bytes)) {}

  /// Reads a Hugging Face folder (`tokenizer.json`, or `tokenizer.model` in tiktoken form, and `tokenizer_config.json`
  /// if it is there), a `tokenizer.json`, or a tiktoken file, which splits by `tiktoken_pattern` (as
  /// PreTokenizer::named). Throws InputError that names the file and what in it is wrong or not supported.
  static Tokenizer load(const std::filesystem::path& folder_or_file, const std::string& tiktoken_pattern = "llama3",
                        std::size_t cache_bytes = kDefaultCacheBytes) {
    std::filesystem::path path = folder_or_file;
    if (std::filesystem::is_directory(path)) {
      path /= "tokenizer.json";
      if (!std::filesystem::exists(path)) path = folder_or_file / "tokenizer.model";
      if (!std::filesystem::exists(path)) {
        throw InputError(folder_or_file.string(), ": no tokenizer.json and no tokenizer.model in this folder");
      }
    }
    TokenizerModel model =
        starts_as_json(path) ? read_tokenizer_json(path) : read_tiktoken(path, PreTokenizer::named(tiktoken_pattern));
    std::string where = path.string();
    const std::filesystem::path config = path.parent_path() / "tokenizer_config.json";
    if (path.filename() == "tokenizer.json" && std::filesystem::exists(config)) {
      model.config = read_json(config);
      where += " with " + config.filename().string();
    }
    try {
      return Tokenizer(std::move(model), cache_bytes);
    } catch (const InputError& error) {
      throw InputError(where, ": ", error.what());
    }
  }

  /// Writes `tokenizer.json` and `tokenizer_config.json` into `folder`, each atomically; other files there stay.
  void save(const std::filesystem::path& folder) const {
    TokenizerModel model = state_->model;
    if (model.config.is_null()) model.config = make_tokenizer_config(model.added_tokens);
    save_tokenizer(model, folder);
  }

  /// The ids of `text`, any bytes. Never adds a beginning-of-text token. A long text is worked on by up to `threads`
  /// threads (0: all) with the same result.
  std::vector<TokenId> encode(std::string_view text, Special special = Special::text, std::size_t threads = 1) const {
    std::vector<Part> parts;
    std::deque<std::string> normalized;  // what parts view when the text is rewritten
    // Eight stretches for each thread, so that none waits long for the last.
    const std::size_t workers = thread_count(threads);
    const std::size_t stretch =
        workers > 1 ? std::clamp(text.size() / (workers * 8), kStretch, kLongestStretch) : text.size() + 1;
    for_each_part(
        text, special, normalized,
        [&](std::string_view words) {
          for (const std::string_view piece : state_->model.pre_tokenizer.stretches(words, stretch)) {
            parts.push_back({piece, nullptr, {}});
          }
        },
        [&](const AddedToken& token, std::string_view) {
          parts.push_back({{}, &token, {}});
        });
    if (parts.size() == 1) {
      encode_part(parts[0]);
      return std::move(parts[0].ids);
    }
    // Neighbouring small parts go to one thread together.
    std::vector<std::size_t> groups{0};
    for (std::size_t i = 0, bytes = 0; i < parts.size(); ++i) {
      bytes += parts[i].text.size() + 8;
      if (bytes >= kStretch || i + 1 == parts.size()) {
        groups.push_back(i + 1);
        bytes = 0;
      }
    }
    parallel_for(groups.size() - 1, threads, [&](std::size_t group) {
      for (std::size_t i = groups[group]; i < groups[group + 1]; ++i) encode_part(parts[i]);
    });
    std::size_t count = 0;
    for (const Part& part : parts) count += part.ids.size();
    std::vector<TokenId> ids;
    reserve_ids(ids, count);
    for (const Part& part : parts) ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    return ids;
  }

  /// The same with what the `single` template of the post-processor puts before and after a text (a beginning-of-text
  /// token, as a rule); a text whose ids start with what comes before (`special` allows it) does not get it twice.
  std::vector<TokenId> encode_with_template(std::string_view text, Special special = Special::text,
                                            std::size_t threads = 1) const {
    std::vector<TokenId> ids = encode(text, special, threads);
    const auto& [before, after] = state_->single_template;
    if (ids.size() < before.size() || !std::equal(before.begin(), before.end(), ids.begin())) {
      ids.insert(ids.begin(), before.begin(), before.end());
    }
    ids.insert(ids.end(), after.begin(), after.end());
    return ids;
  }

  /// The ids of `encode` and where in `text` each comes from, in bytes. A byte that nothing rewrote stands for itself,
  /// so that a token inside a character has a part of it (Hugging Face gives it the whole). What a normaliser made of
  /// a character stands for all of it; of several that became one, for the first; what a normaliser or a prefix space
  /// brought in, for the character beside it: the rules of Hugging Face's `offsets`, before `trim_offsets` of a
  /// post-processor takes the spaces off. An added token has the whitespace that it takes along.
  EncodedText encode_with_offsets(std::string_view text, Special special = Special::text) const {
    EncodedText out;
    Loan scratch(*state_);
    const auto put_token = [&](const AddedToken& token, SourceRange range) {
      out.ids.push_back(token.id);
      out.ranges.push_back(range);
    };
    const auto on_piece = [&](const AlignedPiece& piece) {
      const std::size_t first = out.ids.size();
      state_->encoder.encode(piece.text, *scratch, out.ids);
      std::size_t at = 0;
      for (std::size_t i = first; i < out.ids.size(); ++i) {
        // The token's bytes follow each other, except for bytes that have no token and were left out.
        std::size_t begin = piece.text.size();
        for (const char byte : state_->model.tokens[out.ids[i]]) {
          while (piece.text[at] != byte) ++at;
          begin = std::min(begin, at++);
        }
        out.ranges.push_back({piece.ranges[begin].begin, piece.ranges[at - 1].end});
      }
    };
    const auto offset_of = [&](std::string_view part) { return static_cast<std::size_t>(part.data() - text.data()); };
    const bool as_text = special == Special::text;
    state_->first.split(
        text, as_text,
        [&](std::string_view rest) {
          const AlignedText normalized = state_->model.normalizer.normalize(AlignedText(rest, offset_of(rest)));
          const auto ranges_of = [&](std::string_view part) {
            return normalized.ranges.data() + (part.data() - normalized.text.data());
          };
          state_->second.split(
              normalized.text, as_text,
              [&](std::string_view words) {
                state_->model.pre_tokenizer.split(AlignedPiece{words, ranges_of(words)}, on_piece);
              },
              [&](const AddedToken& token, std::string_view found) {
                put_token(token, {ranges_of(found)[0].begin, ranges_of(found)[found.size() - 1].end});
              });
        },
        [&](const AddedToken& token, std::string_view found) {
          put_token(token, {offset_of(found), offset_of(found) + found.size()});
        });
    return out;
  }

  /// The bytes of the ids, special tokens by their names or, with `skip_special`, left out; invalid UTF-8 if the ids
  /// are cut inside a character. Throws InputError on an id beyond the vocabulary.
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const {
    std::string text;
    for (const TokenId id : ids) {
      const std::string_view bytes = token_bytes(id);
      if (!(skip_special && is_special(id))) text += bytes;
    }
    return text;
  }

  /// The largest id + 1.
  std::size_t vocabulary_size() const { return state_->model.tokens.size(); }

  /// The id of the added token called `content`, else of the token with these bytes.
  std::optional<TokenId> token_to_id(std::string_view content) const {
    for (const TokenIndex* index : {&state_->added, &state_->ordinary}) {
      if (const TokenId* id = index->find(content)) return *id;
    }
    return std::nullopt;
  }

  /// The bytes of a token; an added token's name; "" for an id that the vocabulary leaves out. Throws InputError on an
  /// id beyond the vocabulary.
  std::string_view token_bytes(TokenId id) const {
    if (id >= vocabulary_size()) {
      throw InputError("token id ", id, " is beyond the vocabulary of ", vocabulary_size(), " tokens");
    }
    return state_->model.tokens[id];
  }

  /// True for control tokens (`special` in tokenizer.json).
  bool is_special(TokenId id) const { return id < state_->special.size() && state_->special[id]; }

  /// Roles from tokenizer_config.json; without that file by guess_roles.
  std::optional<TokenId> bos_id() const { return state_->bos; }
  std::optional<TokenId> eos_id() const { return state_->eos; }
  std::optional<TokenId> pad_id() const { return state_->pad; }

  /// 32 hexadecimal digits, equal for tokenizers that give equal ids by equal tables; shards and checkpoints store it.
  std::string fingerprint() const { return text::fingerprint(state_->model); }

  const TokenizerModel& model() const { return state_->model; }

 private:
  static constexpr std::size_t kStretch = std::size_t{1} << 17, kLongestStretch = 8 * kStretch;

  struct Part {
    std::string_view text;
    const AddedToken* token;
    std::vector<TokenId> ids;
  };

  struct State {
    State(TokenizerModel given, std::size_t cache)
        : model(std::move(given)),
          cache_bytes(cache),
          encoder(model),
          first(model.added_tokens, false),
          second(model.added_tokens, true, model.normalizer),
          single_template(read_single_template(model.post_processor, model.tokens.size())),
          special(model.tokens.size()),
          ordinary(model.tokens.size()) {
      std::vector<bool> is_added(model.tokens.size());
      for (const AddedToken& token : model.added_tokens) {
        added.insert(token.content, token.id);
        is_added[token.id] = true;
        special[token.id] = token.special;
      }
      for (TokenId id = 0; id < model.tokens.size(); ++id) {
        if (!is_added[id] && !model.tokens[id].empty()) ordinary.insert(model.tokens[id], id);
      }
      const SpecialRoles guessed = model.config.is_null() ? guess_roles(model.added_tokens) : SpecialRoles{};
      bos = role("bos_token", guessed.bos);
      eos = role("eos_token", guessed.eos);
      pad = role("pad_token", guessed.pad);
    }

    std::optional<TokenId> role(const char* key, std::string name) const {
      if (model.config.is_object() && model.config.contains(key)) {
        const Json& value = model.config.at(key);  // a string, or an added token written out
        const Json& content = value.is_object() && value.contains("content") ? value.at("content") : value;
        if (content.is_string()) name = content.get<std::string>();
      }
      if (name.empty()) return std::nullopt;
      for (const TokenIndex* index : {&added, &ordinary}) {
        if (const TokenId* id = index->find(name)) return *id;
      }
      throw InputError(key, " is \"", name, "\", which is not in the vocabulary");
    }

    TokenizerModel model;
    std::size_t cache_bytes;
    BpeEncoder encoder;
    AddedTokenMatcher first, second;
    SingleTemplate single_template;
    std::vector<bool> special;
    TokenIndex added, ordinary;
    std::optional<TokenId> bos, eos, pad;
    std::mutex mutex;
    std::vector<std::unique_ptr<BpeEncoder::Scratch>> idle;  // scratches that no thread uses just now
  };

  /// A scratch on loan from the state.
  class Loan {
   public:
    explicit Loan(State& state) : state_(state) {
      const std::lock_guard lock(state_.mutex);
      if (!state_.idle.empty()) {
        scratch_ = std::move(state_.idle.back());
        state_.idle.pop_back();
      }
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() {
      if (!scratch_) return;
      const std::lock_guard lock(state_.mutex);
      state_.idle.push_back(std::move(scratch_));
    }
    BpeEncoder::Scratch& operator*() {
      if (!scratch_) scratch_ = std::make_unique<BpeEncoder::Scratch>(state_.cache_bytes);
      return *scratch_;
    }

   private:
    State& state_;
    std::unique_ptr<BpeEncoder::Scratch> scratch_;
  };

  static bool starts_as_json(const std::filesystem::path& path) {
    const std::string start = read_file(path).substr(0, 64);
    const std::size_t first = start.find_first_not_of(" \t\r\n");
    return first != std::string::npos && start[first] == '{';
  }

  template <class OnText, class OnToken>
  void for_each_part(std::string_view text, Special special, std::deque<std::string>& normalized, OnText&& on_text,
                     OnToken&& on_token) const {
    const bool as_text = special == Special::text;
    state_->first.split(
        text, as_text,
        [&](std::string_view rest) {
          if (!state_->model.normalizer.empty())
            rest = normalized.emplace_back(state_->model.normalizer.normalize(rest));
          state_->second.split(rest, as_text, on_text, on_token);
        },
        on_token);
  }

  static void reserve_ids(std::vector<TokenId>& ids, std::size_t count) {
    ids.reserve(count);
    advise_huge_pages(ids.data(), count * sizeof(TokenId));
  }

  void encode_part(Part& part) const {
    if (part.token != nullptr) {
      part.ids.push_back(part.token->id);
      return;
    }
    Loan scratch(*state_);
    // Address space costs nothing, moving many ids does; there are never more of them than bytes.
    const std::size_t bytes = part.text.size();
    if (bytes < kStretch) {
      part.ids.reserve(bytes / 3);
    } else if (bytes <= kLongestStretch) {
      part.ids.reserve(bytes);
    } else {
      reserve_ids(part.ids, std::min(bytes, bytes / 2 + (std::size_t{1} << 25)));
    }
    const PreTokenizer& pre_tokenizer = state_->model.pre_tokenizer;
    if (pre_tokenizer.rewrites()) {
      return pre_tokenizer.split(part.text,
                                 [&](std::string_view piece) { state_->encoder.encode(piece, *scratch, part.ids); });
    }
    BpeEncoder::Batch batch(state_->encoder, *scratch, part.ids, part.text);
    pre_tokenizer.split(part.text, [&](std::string_view piece) { batch.push(piece); });
  }

  std::shared_ptr<State> state_;
};

}  // namespace ilme::text
