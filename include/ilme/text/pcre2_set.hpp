/// Which characters PCRE2 itself takes for a property: its Unicode version depends on the release.
#pragma once

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/text/aligned_text.hpp>
#include <ilme/text/code_set.hpp>

namespace ilme::text::detail {

/// The characters of the class `[items]`, found by matching every one; some milliseconds the first time.
inline const CodeSet& pcre2_set(const std::string& items) {
  static std::mutex mutex;
  static std::map<std::string, CodeSet> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(items); found != known.end()) return found->second;
  std::string every;
  for (char32_t c = 0; c < kFirstRawByte; ++c) {
    if (c < 0xD800 || c >= 0xE000) append_unit(every, c);
  }
  const std::string pattern = "[" + items + "]+";
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error,
                    &offset, nullptr),
      [](pcre2_code* p) { pcre2_code_free(p); });
  if (!code) throw RunError("PCRE2 has no Unicode properties, which splitting text needs");
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), &pcre2_match_data_free);
  std::vector<CodePointRange> ranges;
  for (std::size_t at = 0; pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(every.data()), every.size(), at,
                                       PCRE2_NO_UTF_CHECK, data.get(), nullptr) > 0;) {
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    const std::string_view run = std::string_view(every).substr(bounds[0], bounds[1] - bounds[0]);
    ranges.push_back({decode_utf8(run.data(), run.data() + run.size()).code_point, last_character(run).code_point});
    at = bounds[1];
  }
  return known.emplace(items, CodeSet(std::move(ranges))).first->second;
}

/// The inside of a class for `set`: `native`, some of PCRE2's properties, and what it lacks; ranges alone when there is
/// no `native` or it has too much. (PCRE2 looks a property up at once, and a pattern of ranges soon is too large.)
inline std::string class_items(const CodeSet& set, const std::string& native) {
  if (native.empty()) return set.items();
  const CodeSet& own = pcre2_set(native);
  if (!own.intersection(set.complement()).empty()) return set.items();
  return native + set.intersection(own.complement()).items();
}

}  // namespace ilme::text::detail
