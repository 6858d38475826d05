/// Errors with context: which file, key or tensor, what was found, what was expected.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace ilme {

/// Joins its arguments as `operator<<` prints them: `concat("row ", 3, ": ", value)`.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

/// Base of every error that the library throws by itself. The text is one line that names the file, the key or tensor,
/// what was found and what was expected; a program prints it and ends with `exit_code()`.
class Error : public std::runtime_error {
 public:
  int exit_code() const noexcept { return exit_code_; }

 protected:
  Error(int exit_code, const std::string& what) : std::runtime_error(what), exit_code_(exit_code) {}

 private:
  int exit_code_;
};

/// Bad usage or bad input: a missing or malformed file, an impossible option value. Exit code 2.
class InputError : public Error {
 public:
  template <class... Parts>
  explicit InputError(const Parts&... parts) : Error(2, concat(parts...)) {}
};

/// A failure while running: a full disk, a loss that is not finite. Exit code 1.
class RunError : public Error {
 public:
  template <class... Parts>
  explicit RunError(const Parts&... parts) : Error(1, concat(parts...)) {}
};

}  // namespace ilme
