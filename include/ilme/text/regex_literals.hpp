/// What a text must hold for a regular expression to match in it.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/text/unicode.hpp>

namespace ilme::text::detail {

/// Reads a pattern from left to right, only as far as is safe: whatever it does not know makes it give up.
class LiteralFinder {
 public:
  explicit LiteralFinder(std::string_view pattern) : pattern_(pattern) {}

  /// Strings of which every match needs at least one; none when nothing is known.
  std::vector<std::string> find() {
    while (at_ < pattern_.size()) {
      if (!read_atom()) return {};
    }
    end_run();
    const auto shortest = [](const std::vector<std::string>& strings) {
      const auto by_size = [](const auto& a, const auto& b) { return a.size() < b.size(); };
      return std::min_element(strings.begin(), strings.end(), by_size)->size();
    };
    const auto best = std::max_element(found_.begin(), found_.end(), [&](const auto& a, const auto& b) {
      return std::pair(shortest(a), b.size()) < std::pair(shortest(b), a.size());
    });
    return best != found_.end() ? *best : std::vector<std::string>();
  }

 private:
  bool read_atom() {
    const char c = pattern_[at_];
    if (c == '|' || c == ')' || c == '*' || c == '+' || c == '?' || c == '{') return false;
    std::vector<std::string> strings;  // what the atom is one of, when that is known
    if (c == '(') {
      if (!skip_group()) return false;
    } else if (c == '[') {
      if (!read_class(strings)) return false;
    } else if (c == '\\') {
      if (!read_escape(strings)) return false;
    } else {
      const std::string_view character = next_character();
      if (c != '.' && c != '^' && c != '$') strings.emplace_back(character);
    }
    bool optional = false, repeated = false;
    if (!read_quantifier(optional, repeated)) return false;
    if (strings.size() != 1 || optional) {
      end_run();
      if (!strings.empty() && !optional) found_.push_back(std::move(strings));
    } else {
      run_ += strings[0];
      if (repeated) end_run();
    }
    return true;
  }

  void end_run() {
    if (!run_.empty()) found_.push_back({std::exchange(run_, {})});
  }

  std::string_view next_character() {
    const std::string_view rest = pattern_.substr(at_);
    const std::size_t length = decode_utf8(rest.data(), rest.data() + rest.size()).length;
    at_ += length;
    return rest.substr(0, length);
  }

  bool read_escape(std::vector<std::string>& strings) {
    if (++at_ == pattern_.size()) return false;
    const char c = pattern_[at_];
    if (std::ispunct(static_cast<unsigned char>(c))) {
      strings.emplace_back(1, c);
    } else if (c == 'p' || c == 'P') {
      const std::size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos || pattern_[at_ + 1] != '{') return false;
      at_ = close;
    } else if (std::string_view("sSdDwWbBAGKzZ").find(c) == std::string_view::npos) {
      return false;
    }
    ++at_;
    return true;
  }

  /// Gives the members of a class that lists characters, nothing for any other.
  bool read_class(std::vector<std::string>& members) {
    ++at_;
    bool plain = true;
    for (bool first = true; at_ < pattern_.size(); first = false) {
      const char c = pattern_[at_];
      if (c == ']' && !first) {
        ++at_;
        if (!plain) members.clear();
        return true;
      }
      if (c == '[' || c == ']' || c == '&') return false;  // nested classes, intersections, a bracket as a member
      if (c == '\\' || c == '-' || c == '^') plain = false;
      if (c == '\\' && ++at_ == pattern_.size()) return false;
      const std::string_view member = next_character();
      if (c == '^' && first && at_ < pattern_.size() && pattern_[at_] == ']') return false;
      members.emplace_back(member);
    }
    return false;
  }

  bool skip_group() {
    // Comments, and flags for the rest of the pattern.
    const std::string_view head = pattern_.substr(at_, 3);
    if (head.starts_with("(*") || head == "(?#") return false;
    if (head.starts_with("(?")) {
      const std::size_t end =
          pattern_.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-^", at_ + 2);
      if (end == std::string_view::npos || pattern_[end] == ')') return false;
    }
    std::vector<std::string> ignored;
    for (std::size_t depth = 0; at_ < pattern_.size();) {
      const char c = pattern_[at_];
      if (c == '[') {
        if (!read_class(ignored)) return false;
        ignored.clear();
        continue;
      }
      at_ += c == '\\' ? 2 : 1;
      if (c == '(') {
        if (pattern_.substr(at_).starts_with("?#")) return false;
        ++depth;
      }
      if (c == ')' && --depth == 0) return true;
    }
    return false;
  }

  bool read_quantifier(bool& optional, bool& repeated) {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '{') {
        const std::size_t close = pattern_.find_first_not_of("0123456789,", at_ + 1);
        if (close == std::string_view::npos || pattern_[close] != '}' || close == at_ + 1) return false;
        at_ = close;
        optional = true;
      } else if (c == '*' || c == '?') {
        optional = true;  // also of `+?`: less is known than could be
      } else if (c != '+') {
        return true;
      }
      repeated = true;
      ++at_;
    }
    return true;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string run_;
  std::vector<std::vector<std::string>> found_;
};

}  // namespace ilme::text::detail
