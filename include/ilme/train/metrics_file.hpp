/// metrics.jsonl: one JSON object a line, `{"step": 10, "loss": 2.31, ...}`, that stays consistent over resumes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/train/metric_log.hpp>

namespace ilme::train {

/// Appends records to a file; each is on its way to the disk when write() returns, so that other programs can follow
/// it.
class MetricsFile {
 public:
  /// Continues the file of a run that goes on after `step`: records of later steps and a line that was torn by a crash
  /// are cut off first (by an atomic rewrite). 0 starts with an empty file. Throws RunError when it cannot be written.
  explicit MetricsFile(std::filesystem::path path, std::int64_t step = 0) : path_(std::move(path)) {
    std::string old;
    if (std::filesystem::exists(path_)) old = read_file(path_);
    const std::string kept = step > 0 ? records_up_to(old, step) : std::string();
    if (kept != old || !std::filesystem::exists(path_)) write_file(path_, kept);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd_ < 0) throw RunError(path_.string(), ": cannot open: ", ilme::detail::errno_text());
  }
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile() { ::close(fd_); }

  /// Appends one record; figures that are not finite become null. Throws RunError when writing fails.
  void write(std::int64_t step, const Metrics& metrics) {
    Json record{{"step", step}};
    for (const auto& [name, value] : metrics) record[name] = value;
    append(record);
  }

  /// Appends {"step": step, name: text}.
  void note(std::int64_t step, const std::string& name, const std::string& text) {
    append({{"step", step}, {name, text}});
  }

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void append(const Json& record) {
    const std::string line = record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t count = ::write(fd_, line.data() + done, line.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw RunError(path_.string(), ": cannot write: ", ilme::detail::errno_text());
      done += static_cast<std::size_t>(count);
    }
  }

  /// The lines of `text` that are whole records of steps up to `step`.
  static std::string records_up_to(std::string_view text, std::int64_t step) {
    std::string kept;
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      const std::string_view line = text.substr(0, end + 1);
      text.remove_prefix(end + 1);
      const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!record.is_object()) continue;
      const auto found = record.find("step");
      if (found != record.end() && found->is_number_integer() && found->get<std::int64_t>() <= step) kept += line;
    }
    return kept;
  }

  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace ilme::train
