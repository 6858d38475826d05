/// Help text in two columns that fit in 100: the option, and what it does with its default.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace ilme {

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const bool flag = option->get_items_expected_max() == 0;
    std::string left = option->get_name(is_positional, true);
    if (const auto comma = left.find(",--"); comma != std::string::npos) left.insert(comma + 1, " ");
    if (!flag && !is_positional) left += " " + value_name(*option);
    if (option->get_items_expected_max() > 1) left += "...";
    std::string right = option->get_description();
    std::string fallback = option->get_default_str();
    if (fallback.size() > 1 && fallback.front() == '[' && fallback.back() == ']') {
      fallback = fallback.substr(1, fallback.size() - 2);
    }
    if (option->get_type_name() == "BOOLEAN") fallback = fallback == "1" || fallback == "true" ? "true" : "false";
    if (option->get_required()) {
      right += " (required)";
    } else if (!flag && !fallback.empty() && fallback != "\"\"") {
      right += " (default " + fallback + ")";
    }
    return columns(left, right);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return columns(command->get_name(), command->get_description());
  }

 private:
  static constexpr std::size_t kLeft = 30, kWidth = 100;

  static std::string value_name(const CLI::Option& option) {
    const std::string type = option.get_type_name();  // "INT", or with a check "INT:POSITIVE", "TEXT:{a,b}"
    if (const auto open = type.find('{'); open != std::string::npos && type.back() == '}') {
      std::string choices = type.substr(open + 1, type.size() - open - 2);
      std::replace(choices.begin(), choices.end(), ',', '|');
      return choices;
    }
    const std::string kind = type.substr(0, type.find(':'));
    if (kind == "INT" || kind == "UINT") return "N";
    if (kind == "FLOAT") return "X";
    if (kind == "BOOLEAN") return "true|false";
    return kind;
  }

  static std::string columns(const std::string& left, const std::string& right) {
    std::string text = "  " + left;
    std::size_t column = text.size();
    const auto begin_line = [&] {
      text += "\n" + std::string(kLeft, ' ');
      column = kLeft;
    };
    if (column + 2 > kLeft) {
      begin_line();
    } else {
      text.append(kLeft - column, ' ');
      column = kLeft;
    }
    std::istringstream words(right);
    for (std::string word; words >> word;) {
      if (column > kLeft && column + 1 + word.size() > kWidth) begin_line();
      if (column > kLeft) text += ' ', ++column;
      text += word;
      column += word.size();
    }
    return text + "\n";
  }
};

}  // namespace ilme
