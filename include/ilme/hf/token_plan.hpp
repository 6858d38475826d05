/// Where the embedding rows of a new tokenizer come from, token by token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/hf/special_roles.hpp>
#include <ilme/text/bpe_encoder.hpp>
#include <ilme/text/token_tables.hpp>
#include <ilme/text/tokenizer.hpp>
#include <ilme/text/tokenizer_model.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::hf {

enum class RowSource : std::uint8_t {
  copied,    // the row of the old token with the same bytes, or of the special token with the same name
  by_role,   // the row of the old special token that does the same work under another name
  averaged,  // from the rows of the old tokenizer's pieces of the token's bytes
  fresh,     // nothing to take it from
  unused,    // an id without a token
};

/// For each id of the new tokenizer where its row comes from.
class TokenPlan {
 public:
  struct Row {
    RowSource source = RowSource::unused;
    text::TokenId from = 0;              ///< old id, for copied and by_role
    std::uint32_t begin = 0, count = 0;  ///< of the pieces, for averaged
  };
  /// A special token that took the row of another.
  struct RoleMatch {
    text::TokenId id, from;
    TokenRole role;
  };

  const std::vector<Row>& rows() const noexcept { return rows_; }
  std::span<const text::TokenId> pieces(const Row& row) const {
    return std::span(pieces_).subspan(row.begin, row.count);
  }
  const std::vector<RoleMatch>& role_matches() const noexcept { return role_matches_; }
  std::size_t count(RowSource source) const {
    return static_cast<std::size_t>(
        std::count_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.source == source; }));
  }

  /// The new id that took the row of the old id `old_id`, a token of the same bytes before one of the same role;
  /// nothing when none did.
  std::optional<text::TokenId> new_id(std::int64_t old_id) const {
    for (const RowSource source : {RowSource::copied, RowSource::by_role}) {
      for (std::size_t id = 0; id < rows_.size(); ++id) {
        if (rows_[id].source == source && rows_[id].from == old_id) return static_cast<text::TokenId>(id);
      }
    }
    return std::nullopt;
  }

 private:
  friend class TokenPlanner;
  std::vector<Row> rows_;
  std::vector<text::TokenId> pieces_;
  std::vector<RoleMatch> role_matches_;
};

/// Makes a plan from the old tokenizer, whose model has `old_rows` embedding rows and gives roles by `configured`, and
/// the new one. Old ids beyond `old_rows` do not count.
class TokenPlanner {
 public:
  TokenPlanner(const text::Tokenizer& old_tokenizer, const text::Tokenizer& new_tokenizer, std::int64_t old_rows,
               ConfiguredIds configured = {})
      : old_(old_tokenizer),
        new_(new_tokenizer),
        without_normalizer_(drop_normalizer(old_tokenizer)),
        old_roles_(old_tokenizer, configured),
        new_roles_(new_tokenizer),
        old_count_(std::min<std::size_t>(old_tokenizer.vocabulary_size(), static_cast<std::size_t>(old_rows))),
        encoder_(old_tokenizer.model()),
        old_ordinary_(old_tokenizer.vocabulary_size()) {
    const std::vector<bool> added = added_ids(old_);
    for (text::TokenId id = 0; id < old_count_; ++id) {
      if (!added[id] && !old_.token_bytes(id).empty()) old_ordinary_.insert(old_.token_bytes(id), id);
    }
  }

  TokenPlan plan() {
    TokenPlan plan;
    plan.rows_.resize(new_.vocabulary_size());
    for (text::TokenId id = 0; id < plan.rows_.size(); ++id) {
      if (!new_.token_bytes(id).empty()) plan.rows_[id] = new_.is_special(id) ? special(id, plan) : ordinary(id, plan);
    }
    return plan;
  }

 private:
  using Row = TokenPlan::Row;

  static std::vector<bool> added_ids(const text::Tokenizer& tokenizer) {
    std::vector<bool> added(tokenizer.vocabulary_size());
    for (const auto& token : tokenizer.model().added_tokens) added[token.id] = true;
    return added;
  }

  bool same_id(text::TokenId id) const {
    return id < old_count_ && old_.token_bytes(id) == new_.token_bytes(id) &&
           old_.is_special(id) == new_.is_special(id);
  }

  /// An extended tokenizer keeps its base's ids: then the row is the one at the same id, even if two tokens have the
  /// same bytes.
  Row special(text::TokenId id, TokenPlan& plan) {
    if (same_id(id)) return {RowSource::copied, id};
    const auto same_name = old_.token_to_id(new_.token_bytes(id));
    if (same_name && *same_name < old_count_ && old_.is_special(*same_name)) return {RowSource::copied, *same_name};
    const auto role = new_roles_.role_of(id);
    if (!role) return {RowSource::fresh};
    if (const auto from = counterpart(*role)) {
      plan.role_matches_.push_back({id, *from, *role});
      return {RowSource::by_role, *from};
    }
    // In ChatML a line break stands between the name of the speaker and the message.
    if (*role == TokenRole::header_end && old_.token_to_id("<|im_start|>")) return pieces_of("\n", plan);
    return {RowSource::fresh};
  }

  /// The old special token for a role, or for the role that comes nearest to it.
  std::optional<text::TokenId> counterpart(TokenRole role) const {
    std::vector<TokenRole> roles{role};
    if (role == TokenRole::begin_of_text || role == TokenRole::padding || role == TokenRole::turn_end) {
      roles.push_back(TokenRole::end_of_text);
    }
    if (role == TokenRole::end_of_text) roles.push_back(TokenRole::turn_end);
    for (const TokenRole candidate : roles) {
      const auto id = old_roles_.find(candidate);
      if (id && *id < old_count_) return id;
    }
    return std::nullopt;
  }

  Row ordinary(text::TokenId id, TokenPlan& plan) {
    if (same_id(id)) return {RowSource::copied, id};
    const std::string_view bytes = new_.token_bytes(id);
    if (const text::TokenId* same = old_ordinary_.find(bytes)) return {RowSource::copied, *same};
    const auto added = old_.token_to_id(bytes);
    if (added && *added < old_count_ && !old_.is_special(*added)) return {RowSource::copied, *added};
    return pieces_of(bytes, plan);
  }

  /// What the old tokenizer makes of `bytes` inside a text. Where its own steps would not see just these bytes (a token
  /// that is a part of a character; a space that is put in front of every text), the bytes are merged as one word.
  /// Bytes that the old vocabulary lacks give nothing.
  Row pieces_of(std::string_view bytes, TokenPlan& plan) {
    std::vector<text::TokenId> ids;
    if (!text::is_valid_utf8(bytes)) {
      encoder_.encode(bytes, scratch_, ids);
    } else {
      const std::string seen = normalized(bytes);
      if (old_.model().pre_tokenizer.rewrites()) {
        encoder_.encode(seen, scratch_, ids);
      } else {
        ids = without_normalizer_.encode(seen);
      }
    }
    std::erase_if(ids, [&](text::TokenId id) { return id >= old_count_; });
    if (ids.empty()) return {RowSource::fresh};
    const Row row{RowSource::averaged, 0, static_cast<std::uint32_t>(plan.pieces_.size()),
                  static_cast<std::uint32_t>(ids.size())};
    plan.pieces_.insert(plan.pieces_.end(), ids.begin(), ids.end());
    return row;
  }

  /// As the old normaliser has it in the middle of a text: it may strip spaces, but only at the ends.
  std::string normalized(std::string_view bytes) const {
    std::string seen = old_.model().normalizer.normalize(bytes);
    if (bytes.starts_with(' ') && !seen.starts_with(' ')) seen.insert(0, 1, ' ');
    if (bytes.ends_with(' ') && !seen.ends_with(' ')) seen += ' ';
    return seen;
  }

  static text::Tokenizer drop_normalizer(const text::Tokenizer& tokenizer) {
    if (tokenizer.model().normalizer.empty()) return tokenizer;
    text::TokenizerModel model = tokenizer.model();
    model.normalizer = {};
    return text::Tokenizer(std::move(model));
  }

  text::Tokenizer old_, new_, without_normalizer_;
  SpecialRoleFinder old_roles_, new_roles_;
  std::size_t old_count_;
  text::BpeEncoder encoder_;
  text::BpeEncoder::Scratch scratch_;
  text::TokenIndex old_ordinary_;
};

}  // namespace ilme::hf
