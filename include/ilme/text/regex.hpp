/// Splitting by a regular expression of the user's, through PCRE2.
#pragma once

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/text/oniguruma.hpp>
#include <ilme/text/regex_literals.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text {

/// A compiled pattern in Oniguruma's Ruby syntax, as Hugging Face takes it; immutable, used by several threads at once.
class Regex {
 public:
  /// Throws InputError when the pattern does not compile, or has what PCRE2 cannot do alike.
  explicit Regex(std::string pattern) : pattern_(std::move(pattern)), needed_(detail::LiteralFinder(pattern_).find()) {
    const std::string translated = detail::OnigurumaTranslator(pattern_).translate();
    const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
        pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    // PCRE2 10.42 takes the character of a lookahead for one that the match must hold once more further on.
    const std::uint32_t safe = pattern_.find("(?=") == std::string::npos ? 0 : PCRE2_NO_START_OPTIMIZE;
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | safe, &error, &offset,
                              context.get()),
                [](pcre2_code* code) { pcre2_code_free(code); });
    if (!code_) throw InputError("pattern \"", pattern_, "\" is not supported: ", message(error));
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without it matching is only slower
  }

  /// Calls `on_match(begin, end)` with the byte bounds of every match in `text`, in order and without overlaps; an
  /// empty match counts unless it stands right after the match before it (as in Rust's onig). What lies between two
  /// runs of ill-formed bytes is matched as a text of its own. Throws RunError when a match needs more memory or
  /// backtracking than PCRE2 allows.
  template <class OnMatch>
  void each_match(std::string_view text, OnMatch&& on_match) const {
    if (!may_match(text)) return;
    each_stretch(text, [&](std::string_view stretch, bool valid) {
      if (!valid) return;
      const auto offset = static_cast<std::size_t>(stretch.data() - text.data());
      each_match_in_valid(stretch, [&](std::size_t begin, std::size_t end) { on_match(offset + begin, offset + end); });
    });
  }

  /// Calls `on_piece(string_view)` for every match and every stretch between matches that is not empty, in order;
  /// together they are `text`. A run of ill-formed bytes is a piece by itself.
  template <class OnPiece>
  void split(std::string_view text, OnPiece&& on_piece) const {
    each_stretch(text, [&](std::string_view stretch, bool valid) {
      std::size_t emitted = 0;
      if (valid) {
        each_match_in_valid(stretch, [&](std::size_t begin, std::size_t end) {
          if (begin > emitted) on_piece(stretch.substr(emitted, begin - emitted));
          if (end > begin) on_piece(stretch.substr(begin, end - begin));
          emitted = end;
        });
      }
      if (emitted < stretch.size()) on_piece(stretch.substr(emitted));
    });
  }

 private:
  static std::string message(int error) {
    PCRE2_UCHAR text[200] = {};
    pcre2_get_error_message(error, text, sizeof text);
    return reinterpret_cast<const char*>(text);
  }

  /// False when `text` lacks what every match needs; far faster than to match.
  bool may_match(std::string_view text) const {
    return needed_.empty() || std::any_of(needed_.begin(), needed_.end(), [&](const std::string& literal) {
             return text.find(literal) != std::string_view::npos;
           });
  }

  /// Calls `visit(stretch, valid)` for the runs of well-formed characters and those of ill-formed bytes.
  template <class Visit>
  static void each_stretch(std::string_view text, Visit&& visit) {
    for (const char *p = text.data(), *const end = p + text.size(); p < end;) {
      const char* const start = p;
      const bool valid = decode_utf8(p, end).code_point != kInvalidCodePoint;
      while (p < end) {
        const DecodedCharacter character = decode_utf8(p, end);
        if ((character.code_point != kInvalidCodePoint) != valid) break;
        p += character.length;
      }
      visit(std::string_view(start, static_cast<std::size_t>(p - start)), valid);
    }
  }

  template <class OnMatch>
  void each_match_in_valid(std::string_view text, OnMatch&& on_match) const {
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr), &pcre2_match_data_free);
    std::size_t position = 0, last_end = std::string_view::npos;
    while (position <= text.size()) {
      const auto match = [&](std::uint32_t options) {
        return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), position, options,
                           data.get(), nullptr);
      };
      int found = match(PCRE2_NO_UTF_CHECK);
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);  // slower, on the heap
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) throw RunError("matching the pattern \"", pattern_, "\" failed: ", message(found));
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
      const std::size_t begin = bounds[0], end = bounds[1];
      if (begin == end && end == last_end) {
        position += position < text.size() ? decode_utf8(text.data() + position, text.data() + text.size()).length : 1;
        continue;
      }
      position = last_end = end;
      on_match(begin, end);
    }
  }

  std::string pattern_;
  std::vector<std::string> needed_;  // see detail::LiteralFinder
  std::shared_ptr<pcre2_code> code_;
};

}  // namespace ilme::text
