/// Unicode normalisation forms, lowercase and combining marks, exactly as Hugging Face's normalisers know them.
#pragma once

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ilme/text/aligned_text.hpp>
#include <ilme/text/huggingface_tables.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text {

/// The normalisation forms of Unicode Standard Annex 15.
enum class NormalizationForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

namespace detail {

/// What the forms need to know about characters. Hugging Face (the crate unicode-normalization-alignments) has the data
/// of Unicode 9: to it, what later versions brought does not decompose, compose or combine. utf8proc's data, of any
/// later version, is the same for what Unicode 9 has (the stability policy of normalisation promises that), so that it
/// is asked about the characters of huggingface_tables.hpp only. Tests compare every code point.
class NormalizationTable {
 public:
  static const NormalizationTable& get() {
    static const NormalizationTable table;
    return table;
  }

  /// False when a character never changes under `form` and never interacts with the characters before it.
  bool is_active(char32_t code, NormalizationForm form) const {
    return (flags(code) >> static_cast<unsigned>(form) & 1U) != 0;
  }
  bool is_mark(char32_t code) const { return (flags(code) & kMark) != 0; }
  bool changes_in_lowercase(char32_t code) const { return (flags(code) & kCased) != 0; }

  /// The canonical combining class.
  std::uint8_t combining_class(char32_t code) const {
    if ((flags(code) & kMark) == 0) return 0;
    return static_cast<std::uint8_t>(utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class);
  }

  /// Calls `on_part(char32_t)` for the characters of the full decomposition, `code` itself when it has none.
  template <class OnPart>
  void decompose(char32_t code, bool compatibility, OnPart&& on_part) const {
    if ((flags(code) & kDecomposes) == 0) return on_part(code);
    std::array<utf8proc_int32_t, 32> parts;  // the longest has 18
    int boundary = 0;
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0));
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(), parts.size(), options, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) on_part(static_cast<char32_t>(parts[static_cast<std::size_t>(i)]));
  }

  /// The character that two make together, or 0.
  char32_t compose(char32_t first, char32_t second) const {
    // Hangul by arithmetic, section 3.12 of the standard.
    if (first - kHangulL < 19 && second - kHangulV < 21) {
      return kHangul + ((first - kHangulL) * 21 + (second - kHangulV)) * 28;
    }
    if (first - kHangul < 11172 && (first - kHangul) % 28 == 0 && second - kHangulT - 1 < 27) {
      return first + (second - kHangulT);
    }
    const auto found = pairs_.find(std::uint64_t{first} << 32 | second);
    return found == pairs_.end() ? 0 : found->second;
  }

  /// The lowercase form; that of U+0130 is an i and U+0307, of which this gives the i.
  char32_t lowercase(char32_t code) const {
    if (code == 0x130) return 'i';
    const auto* const run = std::partition_point(std::begin(kLowercaseRuns), std::end(kLowercaseRuns),
                                                 [&](const LowercaseRun& candidate) { return candidate.last < code; });
    return static_cast<char32_t>(static_cast<std::int64_t>(code) + run->difference);
  }

 private:
  static constexpr char32_t kHangul = 0xAC00, kHangulL = 0x1100, kHangulV = 0x1161, kHangulT = 0x11A7;
  static constexpr std::uint8_t kMark = 16, kDecomposes = 32, kCased = 64;  // the low four: active, by form

  NormalizationTable() : page_of_(0x1100, 0), pages_(256, 0) {
    for (const CodePointRange& range : kMarkRanges) {
      for (char32_t c = range.first; c <= range.last; ++c) flag(c) |= kMark;
    }
    for (const CodePointRange& range : kDecomposableRanges) {
      for (char32_t c = range.first; c <= range.last; ++c) flag(c) |= kDecomposes;
    }
    for (const LowercaseRun& run : kLowercaseRuns) {
      for (char32_t c = run.first; c <= run.last; c += static_cast<char32_t>(run.step)) flag(c) |= kCased;
    }
    flag(0x130) |= kCased;
    add_pairs();
    for (const auto& ranges :
         {std::span<const CodePointRange>(kDecomposableRanges), std::span<const CodePointRange>(kMarkRanges)}) {
      for (const CodePointRange& range : ranges) {
        for (char32_t c = range.first; c <= range.last; ++c) add_activity(c);
      }
    }
  }

  std::uint8_t flags(char32_t code) const {
    return code < kFirstRawByte ? pages_[std::size_t{page_of_[code >> 8]} * 256 + (code & 0xFF)] : std::uint8_t{0};
  }
  std::uint8_t& flag(char32_t code) {
    std::uint16_t& page = page_of_[code >> 8];
    if (page == 0) {
      page = static_cast<std::uint16_t>(pages_.size() / 256);
      pages_.resize(pages_.size() + 256, 0);
    }
    return pages_[std::size_t{page} * 256 + (code & 0xFF)];
  }

  static constexpr std::uint8_t bit(NormalizationForm form) {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(form));
  }

  /// Enters the primary composites, and that what is second in a pair may change together with what precedes it.
  void add_pairs() {
    constexpr std::uint8_t kComposed = bit(NormalizationForm::nfc) | bit(NormalizationForm::nfkc);
    for (char32_t c = kHangulV; c < kHangulV + 21; ++c) flag(c) |= kComposed;
    for (char32_t c = kHangulT + 1; c < kHangulT + 28; ++c) flag(c) |= kComposed;
    std::vector<std::pair<std::u32string, char32_t>> composites;
    for (const CodePointRange& range : kDecomposableRanges) {
      for (char32_t c = range.first; c <= range.last; ++c) {
        if (c - kHangul < 11172 || utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->comp_exclusion) continue;
        std::u32string parts;
        decompose(c, false, [&](char32_t part) { parts += part; });
        // Composition starts from what does not combine with the character before it.
        if (parts.size() > 1 && combining_class(parts[0]) == 0) composites.emplace_back(std::move(parts), c);
      }
    }
    // The first of a pair is a composite of one part less.
    std::stable_sort(composites.begin(), composites.end(),
                     [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
    for (const auto& [parts, c] : composites) {
      char32_t first = parts[0];
      for (std::size_t i = 1; i + 1 < parts.size(); ++i) first = compose(first, parts[i]);
      pairs_.emplace(std::uint64_t{first} << 32 | parts.back(), c);
      flag(parts.back()) |= kComposed;
    }
  }

  /// Sets the four bits of `c`.
  void add_activity(char32_t c) {
    std::uint8_t& own = flag(c);
    if (combining_class(c) != 0) {
      own |= 15;
      return;
    }
    for (const bool compatibility : {false, true}) {
      std::u32string parts;
      decompose(c, compatibility, [&](char32_t part) { parts += part; });
      if (parts.size() == 1 && parts[0] == c) continue;
      own |= bit(compatibility ? NormalizationForm::nfkd : NormalizationForm::nfd);
      char32_t composed = parts[0];
      for (std::size_t i = 1; i < parts.size() && composed != 0; ++i) composed = compose(composed, parts[i]);
      if (composed != c) own |= bit(compatibility ? NormalizationForm::nfkc : NormalizationForm::nfc);
    }
  }

  std::vector<std::uint16_t> page_of_;  // page 0: nothing to know
  std::vector<std::uint8_t> pages_;
  std::unordered_map<std::uint64_t, char32_t> pairs_;
};

/// One character of a stretch that is normalised, and how many characters of the source it takes: 1 for its own, 0 when
/// it came in, more when those after it went into it.
struct NormalizedUnit {
  char32_t code;
  std::int32_t taken;
  std::uint8_t combining_class;
};

/// Decomposition with canonical ordering of a stretch that starts with an inactive character or at the start.
inline void decompose_stretch(std::string_view stretch, bool compatibility, std::vector<NormalizedUnit>& out) {
  const NormalizationTable& table = NormalizationTable::get();
  std::size_t marks = 0;  // where the present run of combining characters starts
  const auto order = [&] {
    std::stable_sort(
        out.begin() + static_cast<std::ptrdiff_t>(marks), out.end(),
        [](const NormalizedUnit& a, const NormalizedUnit& b) { return a.combining_class < b.combining_class; });
  };
  for (const char *p = stretch.data(), *end = p + stretch.size(); p < end;) {
    const Unit unit = decode_unit(p, end);
    p += unit.length;
    std::int32_t taken = 1;
    table.decompose(unit.code, compatibility, [&](char32_t part) {
      const std::uint8_t combining_class = table.combining_class(part);
      if (combining_class == 0) {
        order();
        marks = out.size() + 1;
      }
      out.push_back({part, std::exchange(taken, 0), combining_class});
    });
  }
  order();
}

/// Canonical composition (definition D117) of what decompose_stretch made.
inline void compose_stretch(std::vector<NormalizedUnit>& units) {
  const NormalizationTable& table = NormalizationTable::get();
  constexpr auto kNone = static_cast<std::size_t>(-1);
  std::size_t size = 0, starter = kNone;
  int last_class = -1;  // of what stands between the starter and the present character; -1: nothing does
  for (const NormalizedUnit unit : units) {
    if (starter != kNone && (last_class < unit.combining_class)) {
      if (const char32_t composite = table.compose(units[starter].code, unit.code)) {
        units[starter].code = composite;
        units[starter].taken += unit.taken;
        continue;
      }
    }
    if (unit.combining_class == 0) {
      starter = size;
      last_class = -1;
    } else {
      last_class = unit.combining_class;
    }
    units[size++] = unit;
  }
  units.resize(size);
}

/// Writes `text` in `form`. A character that is not active opens a stretch that is normalised by itself; so most of a
/// text is copied as it stands.
template <class Rewriter>
void write_normalized(std::string_view text, NormalizationForm form, Rewriter& out) {
  const NormalizationTable& table = NormalizationTable::get();
  const bool compatibility = form == NormalizationForm::nfkc || form == NormalizationForm::nfkd;
  const bool composed = form == NormalizationForm::nfc || form == NormalizationForm::nfkc;
  const char *const end = text.data() + text.size(), *kept = text.data(), *last = kept;
  const auto between = [](const char* from, const char* to) {
    return std::string_view(from, static_cast<std::size_t>(to - from));
  };
  std::vector<NormalizedUnit> units;
  for (const char* p = text.data(); p < end;) {
    if (static_cast<unsigned char>(*p) < 0x80) {  // never active
      last = p++;
      continue;
    }
    Unit unit = decode_unit(p, end);
    if (!table.is_active(unit.code, form)) {
      last = p;
      p += unit.length;
      continue;
    }
    out.keep(between(kept, last));
    for (; p < end; p += unit.length) {
      unit = decode_unit(p, end);
      if (!table.is_active(unit.code, form)) break;
    }
    units.clear();
    decompose_stretch(between(last, p), compatibility, units);
    if (composed) compose_stretch(units);
    for (const NormalizedUnit& part : units) {
      if (part.taken > 0) {
        out.replace(part.code, static_cast<std::size_t>(part.taken - 1));
      } else {
        out.insert(part.code);
      }
    }
    kept = last = p;
  }
  out.keep(between(kept, end));
}

/// Writes every character in lowercase, each by itself and the same in every locale.
template <class Rewriter>
void write_lowercase(std::string_view text, Rewriter& out) {
  const NormalizationTable& table = NormalizationTable::get();
  const char* kept = text.data();
  for (const char *p = kept, *end = kept + text.size(); p < end;) {
    const Unit unit = decode_unit(p, end);
    if (table.changes_in_lowercase(unit.code)) {
      out.keep({kept, static_cast<std::size_t>(p - kept)});
      out.replace(table.lowercase(unit.code), 0);
      if (unit.code == 0x130) out.insert(0x307);
      kept = p + unit.length;
    }
    p += unit.length;
  }
  out.keep({kept, static_cast<std::size_t>(text.data() + text.size() - kept)});
}

/// Writes `text` without its combining marks.
template <class Rewriter>
void write_without_marks(std::string_view text, Rewriter& out) {
  const NormalizationTable& table = NormalizationTable::get();
  const char* kept = text.data();
  for (const char *p = kept, *end = kept + text.size(); p < end;) {
    const Unit unit = decode_unit(p, end);
    if (table.is_mark(unit.code)) {
      out.keep({kept, static_cast<std::size_t>(p - kept)});
      out.drop({p, unit.length});
      kept = p + unit.length;
    }
    p += unit.length;
  }
  out.keep({kept, static_cast<std::size_t>(text.data() + text.size() - kept)});
}

}  // namespace detail

}  // namespace ilme::text
