/// Text in aligned columns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ilme/text/words.hpp>

namespace ilme::text {

/// Rows of cells that become lines: the first column to the left, the others to the right.
class TextTable {
 public:
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string str() const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line = "  ";
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths[i] - width(row[i]), ' ');
        line += i == 0 ? row[i] + padding : "  " + padding + row[i];
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + '\n';
    }
    return out;
  }

 private:
  static std::size_t width(const std::string& cell) { return count_characters(cell); }

  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ilme::text
