/// JSON files with errors that name the file, the key, the value and what was expected.
#pragma once

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>

namespace ilme {

using Json = nlohmann::ordered_json;

/// Parses `text`; `where` (a file, or a file and a line) opens the error.
inline Json parse_json(std::string_view text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    std::string reason = error.what();
    if (const auto end = reason.find("] "); end != std::string::npos) reason.erase(0, end + 2);
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    throw InputError(where, ": not valid JSON: ", reason);
  }
}

inline Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

/// Writes indented JSON with a final newline, atomically.
inline void write_json(const std::filesystem::path& path, const Json& value) {
  write_file(path, value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

namespace detail {

inline std::string short_dump(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

/// Levenshtein distance, for "did you mean".
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace detail

/// The candidate nearest to a mistyped `name`, or "" when none is near.
template <class Names>
std::string nearest_name(std::string_view name, const Names& candidates) {
  std::string best;
  std::size_t best_distance = name.size() / 2 + 1;
  for (const auto& candidate : candidates) {
    const std::size_t distance = detail::edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

/// Reads the members of a JSON object into typed values and remembers which keys were asked for, so that
/// `refuse_unknown()` can name one that nobody knows. `where` opens every error (usually the file name).
class JsonObject {
 public:
  JsonObject(const Json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value_.is_object()) throw InputError(where_, ": expected a JSON object, found ", detail::short_dump(value_));
  }

  bool has(const std::string& key) {
    known_.insert(key);
    const auto found = value_.find(key);
    return found != value_.end() && !found->is_null();
  }

  /// The member, converted; an absent or null one is an error.
  template <class T>
  T require(const std::string& key) {
    if (!has(key)) throw InputError(where_, ": key \"", key, "\" is missing");
    return convert<T>(key);
  }

  /// The member, converted; `fallback` when it is absent or null.
  template <class T>
  T get(const std::string& key, T fallback) {
    return has(key) ? convert<T>(key) : fallback;
  }

  /// The member as it stands; null when absent.
  Json raw(const std::string& key) { return has(key) ? value_.at(key) : Json(); }

  /// Throws when the object has a key that was never asked for.
  void refuse_unknown() const {
    for (const auto& [key, member] : value_.items()) {
      if (known_.contains(key)) continue;
      const std::string near = nearest_name(key, known_);
      throw InputError(where_, ": unknown key \"", key, "\"", near.empty() ? "" : "; did you mean \"" + near + "\"?");
    }
  }

  const std::string& where() const noexcept { return where_; }

 private:
  template <class T>
  T convert(const std::string& key) const {
    const Json& member = value_.at(key);
    bool fits = true;
    if constexpr (std::is_same_v<T, bool>) {
      fits = member.is_boolean();
    } else if constexpr (std::is_integral_v<T>) {
      fits = member.is_number_integer() && (std::is_signed_v<T> || member.is_number_unsigned());
    } else if constexpr (std::is_floating_point_v<T>) {
      fits = member.is_number();
    }
    if (fits) {
      try {
        return member.get<T>();
      } catch (const Json::exception&) {
      }
    }
    throw InputError(where_, ": key \"", key, "\" has a value of the wrong type: ", detail::short_dump(member));
  }

  const Json& value_;
  std::string where_;
  std::set<std::string> known_;
};

}  // namespace ilme
