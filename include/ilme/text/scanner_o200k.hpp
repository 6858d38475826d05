/// Hand-written scanner for the split pattern of GPT-4o (o200k_base at tiktoken): what the regular expression matches,
/// without a regular expression engine. A byte of ill-formed UTF-8 is one character of no class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <ilme/text/letter_case.hpp>
#include <ilme/text/scanner.hpp>

namespace ilme::text {

/// As tiktoken and tokenizer.json files write it: words end where a lower-case letter meets an upper-case one, and take
/// English contractions along.
inline constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace detail {

/// The end of what the two word branches of kO200kPattern match at `p` behind the optional leading character, without a
/// contraction; `p` when they match nothing. The first branch, `[not lower]*[not upper]+`, takes all it can and then
/// gives back until a character is left for the second class: marks and letters without case are in both.
inline const char* o200k_word_end(const CaseCursor& cursor, const char* p) {
  const char *run = p, *last_of_both = nullptr;
  CaseCursor::Character character = cursor.at(run);
  while (is_any(character.kind, kNotLower)) {
    run += character.length;
    if (character.kind != CaseClass::upper) last_of_both = run;
    character = cursor.at(run);
  }
  if (character.kind == CaseClass::lower) {
    return cursor.skip(run, kNotUpper);
  }
  // Capitals alone are the second branch's.
  return last_of_both != nullptr ? last_of_both : run;
}

/// The end of the piece of kO200kPattern at `p`.
inline const char* o200k_piece_end(const CaseCursor& cursor, const ClassCursor& spaces, const char* p) {
  const char* const end = cursor.end();
  const auto first = cursor.at(p);
  const char* const next = p + first.length;
  // A mark may lead a word or begin it: the match ends at the same place.
  const bool leads = is_any(first.kind, CaseClass::other | CaseClass::space);
  const char* const word = leads ? next : p;
  if (const char* const word_end = o200k_word_end(cursor, word); word_end > word) {
    return word_end < end ? word_end + contraction_length(word_end, end, true) : word_end;
  }
  if (first.kind == CaseClass::number) return cursor.skip_numbers(next, 2);
  if (is_any(first.kind, kSign) || (*p == ' ' && is_any(cursor.at(next).kind, kSign))) {
    p = cursor.skip(next, kSign);
    while (p < end && (*p == '\r' || *p == '\n' || *p == '/')) ++p;
    return p;
  }
  return spaces.skip_space(p, true);
}

/// The 64 bytes at `p` for `o200k_starts`: a newline before a slash, which may belong to its
/// piece, is unknown.
inline CaseWindow classify_for_o200k(const char* p, const char* end) {
  CaseWindow window = classify_case_window(p, end);
  window.newlines &= ~(bytes_between(p, '/', '/') >> 1) & ~(std::uint64_t{1} << (ClassWindow::kBytes - 1));
  return window;
}

/// Where pieces of kO200kPattern start in a window.
inline std::uint64_t o200k_starts(const CaseWindow& w) {
  return llama3_starts(w, 3) | (w.capitals & (w.letters & ~w.capitals) << 1);
}

}  // namespace detail

/// Calls `on_piece(string_view)` for each match of kO200kPattern in order; the pieces together are `text`.
template <class OnPiece>
void scan_o200k(std::string_view text, OnPiece&& on_piece) {
  const detail::CaseCursor cursor(text);
  const detail::ClassCursor spaces(text);
  detail::scan(
      text, detail::classify_for_o200k, detail::o200k_starts,
      [&](const char* p) { return detail::o200k_piece_end(cursor, spaces, p); }, on_piece);
}

}  // namespace ilme::text
