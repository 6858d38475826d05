/// Reading sentences in two languages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/data/input_file.hpp>
#include <ilme/text/parity.hpp>

namespace ilme::data {

namespace detail {

/// The lines of a file, empty ones too, without their ends (LF, CR LF); no byte-order mark.
inline std::vector<std::string> all_lines(const std::filesystem::path& path) {
  InputFile file(path);
  std::string bytes;
  constexpr std::size_t kBlock = std::size_t{1} << 18;
  for (std::size_t size = 0;; size = bytes.size()) {
    bytes.resize(size + kBlock);
    const std::size_t count = file.read(bytes.data() + size, kBlock);
    bytes.resize(size + count);
    if (count == 0) break;
  }
  std::string_view rest = bytes;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  std::vector<std::string> lines;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return lines;
}

/// A name for a file of sentences: "az" for "flores/az.txt.gz".
inline std::string language_of(std::filesystem::path path) {
  if (path.extension() == ".gz" || path.extension() == ".zst") path = path.stem();
  if (path.extension() == ".txt" || path.extension() == ".tsv") path = path.stem();
  return path.filename().string();
}

inline bool is_blank(std::string_view text) { return text.find_first_not_of(" \t") == std::string_view::npos; }

/// Adds a pair; both sides are empty (nothing to add), or none.
inline void add_pair(text::ParallelText& out, std::string first, std::string second, const std::string& first_where,
                     const std::string& second_where) {
  if (is_blank(first) && is_blank(second)) return;
  if (is_blank(first) || is_blank(second)) {
    const bool which = is_blank(first);
    throw InputError(which ? first_where : second_where, ": has no sentence, but its translation, ",
                     which ? second_where : first_where, ", has one; are the two aligned?");
  }
  out.pairs.push_back({std::move(first), std::move(second)});
}

inline text::ParallelText read_aligned(const std::filesystem::path& first, const std::filesystem::path& second) {
  text::ParallelText out{language_of(first), language_of(second), {}};
  std::vector<std::string> a = all_lines(first), b = all_lines(second);
  if (a.size() != b.size()) {
    const bool longer = a.size() > b.size();
    throw InputError((longer ? first : second).string(), ":", std::min(a.size(), b.size()) + 1,
                     ": has no partner: ", first.string(), " has ", a.size(), " lines and ", second.string(), " has ",
                     b.size(), ", expected one line in each for a sentence");
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    add_pair(out, std::move(a[i]), std::move(b[i]), concat(first.string(), ":", i + 1),
             concat(second.string(), ":", i + 1));
  }
  return out;
}

/// Two columns between tabs, or four as Tatoeba exports pairs: number, sentence, number, translation.
inline text::ParallelText read_columns(const std::filesystem::path& path) {
  const std::string name = language_of(path);
  text::ParallelText out{name + " left", name + " right", {}};
  const std::vector<std::string> lines = all_lines(path);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string where = concat(path.string(), ":", i + 1);
    if (is_blank(lines[i])) continue;
    std::vector<std::string> cells;
    for (std::string_view rest = lines[i];;) {
      const std::size_t tab = rest.find('\t');
      cells.emplace_back(rest.substr(0, tab));
      if (tab == std::string_view::npos) break;
      rest.remove_prefix(tab + 1);
    }
    const auto is_number = [](const std::string& cell) {
      return !cell.empty() && cell.find_first_not_of("0123456789") == std::string::npos;
    };
    if (cells.size() == 4 && is_number(cells[0]) && is_number(cells[2])) {
      cells = {cells[1], cells[3]};
    } else if (cells.size() != 2) {
      throw InputError(where, ": has ", cells.size(), cells.size() == 1 ? " column" : " columns",
                       " between tabs, expected two: a sentence and its translation");
    }
    add_pair(out, std::move(cells[0]), std::move(cells[1]), where + " (left)", where + " (right)");
  }
  return out;
}

}  // namespace detail

/// Parallel text from `FIRST:SECOND`, two files that are aligned line by line (as FLORES and Moses have it), or from
/// one file of two columns between tabs (or Tatoeba's four: number, sentence, number, translation); `.gz` and `.zst`
/// too. Pairs that are empty on both sides are left out. Throws InputError that names file:line when sides do not
/// match.
inline text::ParallelText read_parallel_text(const std::string& name) {
  std::error_code ignored;
  text::ParallelText text;
  if (const std::size_t colon = name.find(':'); colon == std::string::npos || std::filesystem::exists(name, ignored)) {
    text = detail::read_columns(name);
  } else {
    std::size_t at = colon;  // a path may hold a colon itself
    while (at != std::string::npos && !std::filesystem::exists(name.substr(0, at), ignored))
      at = name.find(':', at + 1);
    if (at == std::string::npos) at = colon;
    text = detail::read_aligned(name.substr(0, at), name.substr(at + 1));
  }
  if (text.pairs.empty()) throw InputError(name, ": holds no pair of sentences");
  return text;
}

}  // namespace ilme::data
