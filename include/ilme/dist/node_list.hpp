/// SLURM's short forms: lists of hosts, and of task counts.
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <ilme/core/error.hpp>

namespace ilme::dist {

namespace detail {

/// Splits at the commas outside of brackets.
inline std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

inline bool parse_number(std::string_view text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

}  // namespace detail

/// The hosts of a list as SLURM writes it ("node[001-003,7],login", "r[1-2]n[0-1]"), in its order; `where` (the
/// variable's name) opens the error about one that is malformed.
inline std::vector<std::string> expand_node_list(const std::string& list, const std::string& where) {
  constexpr std::size_t kMostHosts = 100'000;
  const auto malformed = [&] {
    return InputError(where, " is \"", list, "\", which is no list of hosts: expected something like node[001-003,7]");
  };
  std::vector<std::string> hosts;
  for (const std::string& item : detail::split_list(list)) {
    std::vector<std::string> names = {""};
    for (std::string_view rest = item; !rest.empty();) {
      std::size_t open = rest.find('[');
      if (open == std::string_view::npos) open = rest.size();
      if (rest.substr(0, open).find(']') != std::string_view::npos) throw malformed();
      for (std::string& name : names) name += rest.substr(0, open);
      rest.remove_prefix(open);
      if (rest.empty()) break;
      const std::size_t close = rest.find(']');
      if (close == std::string_view::npos) throw malformed();
      std::vector<std::string> longer;
      for (const std::string& range : detail::split_list(rest.substr(1, close - 1))) {
        const std::size_t dash = range.find('-');
        const std::string first = range.substr(0, dash);
        const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
        int from = 0, to = 0;
        if (!detail::parse_number(first, from) || !detail::parse_number(last, to) || from > to) throw malformed();
        for (int number = from; number <= to; ++number) {
          std::string digits = std::to_string(number);
          if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
          for (const std::string& name : names) longer.push_back(name + digits);
          if (longer.size() > kMostHosts) throw malformed();
        }
      }
      names = std::move(longer);
      rest.remove_prefix(close + 1);
    }
    for (const std::string& name : names) {
      if (name.empty()) throw malformed();
      hosts.push_back(name);
    }
  }
  return hosts;
}

/// Tasks of every host as SLURM counts them ("2(x3),1" is 2, 2, 2, 1).
inline std::vector<int> expand_task_counts(const std::string& counts, const std::string& where) {
  std::vector<int> tasks;
  for (const std::string& item : detail::split_list(counts)) {
    const std::size_t open = item.find("(x");
    int count = 0, times = 1;
    bool fits = detail::parse_number(std::string_view(item).substr(0, open), count);
    if (open != std::string::npos) {
      fits = fits && item.back() == ')' &&
             detail::parse_number(std::string_view(item).substr(open + 2, item.size() - open - 3), times) &&
             times <= 100'000;
    }
    if (!fits) throw InputError(where, " is \"", counts, "\": expected task counts such as 2(x3),1");
    tasks.insert(tasks.end(), times, count);
  }
  return tasks;
}

}  // namespace ilme::dist
