/// One step of a pre-tokeniser besides the splits by pattern: what it finds, and what becomes of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/text/byte_level.hpp>
#include <ilme/text/huggingface_tables.hpp>
#include <ilme/text/regex.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text {

/// What a split does with the places that it finds: `the-final--countdown` at "-" gives
enum class SplitBehavior : std::uint8_t {
  removed,               // the, final, countdown
  isolated,              // the, -, final, -, -, countdown
  merged_with_previous,  // the-, final-, -, countdown
  merged_with_next,      // the, -final, -, -countdown
  contiguous,            // the, -, final, --, countdown
};

namespace detail {

/// Finds places in a text. Bytes that are no UTF-8 belong to none.
class PlaceFinder {
 public:
  enum class Kind : std::uint8_t {
    pattern,       // matches of a regular expression
    literal,       // occurrences of a string
    number,        // characters that Rust calls numeric
    space,         // characters of White_Space
    punctuation,   // characters that Hugging Face's Punctuation takes
    word_or_mark,  // `\w+|[^\w\s]+` of Rust's regex
  };

  explicit PlaceFinder(Kind kind, std::string literal = {}, std::shared_ptr<const Regex> regex = {})
      : kind_(kind), literal_(std::move(literal)), regex_(std::move(regex)) {}

  Kind kind() const noexcept { return kind_; }

  /// Calls `on_place(begin, end)` in order.
  template <class OnPlace>
  void each(std::string_view text, OnPlace&& on_place) const {
    switch (kind_) {
      case Kind::pattern:
        return regex_->each_match(text, on_place);
      case Kind::literal:
        for (std::size_t at = text.find(literal_); at != std::string_view::npos;
             at = text.find(literal_, at + literal_.size())) {
          on_place(at, at + literal_.size());
        }
        return;
      case Kind::word_or_mark:
        return each_run(text, on_place);
      default:
        for (std::size_t i = 0; i < text.size();) {
          const DecodedCharacter character = decode_utf8(text.data() + i, text.data() + text.size());
          if (is_place(character.code_point)) on_place(i, i + character.length);
          i += character.length;
        }
    }
  }

 private:
  bool is_place(char32_t code) const {
    if (kind_ == Kind::space) return char_classes()[code] >= CharClass::space;
    return kind_ == Kind::number ? in_ranges(kDigitRanges, code) : in_ranges(kPunctuationRanges, code);
  }
  template <std::size_t Count>
  static bool in_ranges(const CodePointRange (&ranges)[Count], char32_t code) {
    const auto* const range = std::partition_point(std::begin(ranges), std::end(ranges),
                                                   [&](const CodePointRange& r) { return r.last < code; });
    return range != std::end(ranges) && range->first <= code;
  }
  template <class OnPlace>
  static void each_run(std::string_view text, OnPlace&& on_place) {
    enum class Class { none, word, mark };
    Class run = Class::none;
    std::size_t start = 0;
    for (std::size_t i = 0; i < text.size();) {
      const DecodedCharacter character = decode_utf8(text.data() + i, text.data() + text.size());
      const Class found = character.code_point == kInvalidCodePoint                  ? Class::none
                          : is_word_character(character.code_point)                  ? Class::word
                          : char_classes()[character.code_point] >= CharClass::space ? Class::none
                                                                                     : Class::mark;
      if (found != run) {
        if (run != Class::none) on_place(start, i);
        run = found;
        start = i;
      }
      i += character.length;
    }
    if (run != Class::none) on_place(start, text.size());
  }

  Kind kind_;
  std::string literal_;
  std::shared_ptr<const Regex> regex_;
};

/// A stretch of the text that was found, or one between.
struct FoundPart {
  std::size_t begin, end;
  bool found;
};

/// The pieces that a behaviour makes of the parts of a text, by the rules of Hugging Face's NormalizedString::split.
inline std::vector<FoundPart> merge_parts(std::vector<FoundPart> parts, SplitBehavior behavior) {
  if (behavior == SplitBehavior::isolated || behavior == SplitBehavior::removed) {
    if (behavior == SplitBehavior::removed) std::erase_if(parts, [](const FoundPart& part) { return part.found; });
    return parts;
  }
  const bool backwards = behavior == SplitBehavior::merged_with_next;
  if (backwards) std::reverse(parts.begin(), parts.end());
  std::vector<FoundPart> pieces;
  bool previous = false;
  for (const FoundPart& part : parts) {
    const bool joins = behavior == SplitBehavior::contiguous ? part.found == previous : part.found && !previous;
    if (joins && !pieces.empty()) {
      (backwards ? pieces.back().begin : pieces.back().end) = backwards ? part.begin : part.end;
    } else {
      pieces.push_back(part);
    }
    previous = part.found;
  }
  if (backwards) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

/// Calls `on_piece(begin, end)` for the non-empty pieces of `text`.
template <class OnPiece>
void split_at_places(std::string_view text, const PlaceFinder& finder, SplitBehavior behavior, bool invert,
                     OnPiece&& on_piece) {
  std::vector<FoundPart> parts;
  std::size_t done = 0;
  finder.each(text, [&](std::size_t begin, std::size_t end) {
    if (begin > done) parts.push_back({done, begin, invert});
    parts.push_back({begin, end, !invert});
    done = end;
  });
  if (done < text.size()) parts.push_back({done, text.size(), invert});
  for (const FoundPart& piece : merge_parts(std::move(parts), behavior)) {
    if (piece.begin < piece.end) on_piece(piece.begin, piece.end);
  }
}

}  // namespace detail

}  // namespace ilme::text
