/// A progress line for people: bar, rate and time left on a terminal, nothing anywhere else.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ilme {

namespace detail {

inline std::string printed(const char* format, double value, const char* unit) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value, unit);
  return buffer;
}

/// `value` scaled by thousands: "12.3 MB" with separator " " and unit "B".
inline std::string scaled(double value, const char* separator, const char* unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < std::size(kPrefixes)) {
    value /= 1000.0;
    ++prefix;
  }
  std::string number;
  if (prefix == 0 && value == std::floor(value)) {
    number = printed("%.0f%s", value, "");
  } else {
    number = printed(std::abs(value) < 99.95 ? "%.1f%s" : "%.0f%s", value, "");
  }
  const std::string suffix = std::string(kPrefixes[prefix]) + unit;
  return suffix.empty() ? number : number + separator + suffix;
}

/// Bytes of the UTF-8 character that starts with `lead`; 1 for a byte that cannot start one.
inline std::size_t utf8_length(unsigned char lead) {
  if (lead >= 0xF0 && lead < 0xF8) return 4;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  return 1;
}

}  // namespace detail

/// "17.9 MB": decimal units, as disks and networks count.
inline std::string format_bytes(double bytes) { return detail::scaled(bytes, " ", "B"); }

/// "78.3k", "1.2M", "640": a count or a rate, shortened.
inline std::string format_count(double count) { return detail::scaled(count, "", ""); }

/// "4.2s", "3:07", "2:15:09", "3d 04:00:00"; "?" when not finite or negative.
inline std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "?";
  if (seconds < 9.95) return detail::printed("%.1f%s", seconds, "s");
  if (seconds < 59.5) return detail::printed("%.0f%s", seconds, "s");
  const auto total = static_cast<long long>(seconds + 0.5);
  const long long days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60, rest = total % 60;
  char buffer[64];
  if (days > 0) {
    std::snprintf(buffer, sizeof buffer, "%lldd %02lld:%02lld:%02lld", days, hours, minutes, rest);
  } else if (hours > 0) {
    std::snprintf(buffer, sizeof buffer, "%lld:%02lld:%02lld", hours, minutes, rest);
  } else {
    std::snprintf(buffer, sizeof buffer, "%lld:%02lld", minutes, rest);
  }
  return buffer;
}

/// Columns of valid or broken UTF-8 `text`, one for each character.
inline std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); i += detail::utf8_length(static_cast<unsigned char>(text[i]))) ++width;
  return width;
}

/// The longest start of `text` that fits `columns`, never ending inside a character.
inline std::string_view clip_to_width(std::string_view text, std::size_t columns) {
  std::size_t i = 0;
  for (; i < text.size() && columns > 0; --columns) {
    const std::size_t length = detail::utf8_length(static_cast<unsigned char>(text[i]));
    if (i + length > text.size()) break;
    i += length;
  }
  return text.substr(0, i);
}

/// How a count is printed: as a plain number followed by a unit, or as bytes.
enum class ProgressUnit { items, bytes };

/// The state that one progress line shows.
struct ProgressLine {
  std::string label;      ///< "tokenizing"
  std::string item_name;  ///< "steps"; not used for bytes
  ProgressUnit unit = ProgressUnit::items;
  double done = 0;              ///< items or bytes
  std::optional<double> total;  ///< unknown: no bar, percent or time left
  double elapsed_seconds = 0;
  double rate = 0;     ///< items or bytes a second; 0: not known yet
  std::string suffix;  ///< "loss 2.31"
};

/// One line of at most `columns` columns: label, bar, percent, count, rate, elapsed < left, suffix. What does not fit
/// is left out: first the bar shrinks and goes, then the end is cut.
inline std::string format_progress(const ProgressLine& line, std::size_t columns) {
  const bool bytes = line.unit == ProgressUnit::bytes;
  const std::string name = line.item_name.empty() || bytes ? "" : " " + line.item_name;
  const auto amount = [&](double value) {
    if (bytes) return format_bytes(value);
    return value < 1e6 ? detail::printed("%.0f%s", value, "") : format_count(value);
  };
  std::string count = amount(line.done);
  if (line.total) {
    const std::string total = amount(*line.total);
    // "12.3/17.9 MB" when both have the unit in common.
    const auto space = count.find(' '), total_space = total.find(' ');
    if (space != std::string::npos && count.substr(space) == total.substr(total_space)) count.resize(space);
    count += "/" + total;
  }
  count += name;
  std::string tail = "  " + count;
  if (line.rate > 0) tail += "  " + (bytes ? format_bytes(line.rate) : format_count(line.rate)) + "/s";
  tail += "  " + format_duration(line.elapsed_seconds);
  if (line.total && line.rate > 0 && line.done < *line.total) {
    tail += " < " + format_duration((*line.total - line.done) / line.rate);
  }
  if (!line.suffix.empty()) tail += "  " + line.suffix;

  std::string text = line.label;
  if (line.total) {
    const double share = *line.total > 0 ? std::clamp(line.done / *line.total, 0.0, 1.0) : 1.0;
    const std::string percent = detail::printed(" %3.0f%%%s", std::floor(share * 100.0), "");
    const std::size_t others = display_width(text) + display_width(percent) + display_width(tail) + 3;
    const std::size_t bar = columns > others ? std::min<std::size_t>(columns - others, 30) : 0;
    if (bar >= 5) {
      const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar));
      text += (text.empty() ? "[" : " [") + std::string(filled, '=');
      if (filled < bar) text.append(">").append(bar - filled - 1, ' ');
      text += "]";
    }
    text += percent;
  }
  text += tail;
  return std::string(clip_to_width(text, columns));
}

/// Shows progress on a terminal by redrawing one line, at most ten times a second; when the stream is not a terminal it
/// prints nothing at all. Not thread-safe: one thread reports. The line is finished or wiped by the destructor, so an
/// error message that follows starts on a clean line.
class ProgressBar {
 public:
  struct Options {
    std::string label = {};
    std::string item_name = {};
    ProgressUnit unit = ProgressUnit::items;
    std::optional<double> total = std::nullopt;
    double already_done = 0;  ///< work of an earlier run: counts as done, not for the rate
  };

  explicit ProgressBar(Options options, std::FILE* stream = stderr)
      : stream_(stream),
        enabled_(::isatty(::fileno(stream)) == 1 && !dumb_terminal()),
        start_(Clock::now()),
        begin_(options.already_done) {
    line_.label = std::move(options.label);
    line_.item_name = std::move(options.item_name);
    line_.unit = options.unit;
    line_.total = options.total;
    line_.done = begin_;
    draw(/*force=*/true);
  }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() { clear(); }

  /// Whether anything is drawn; false: the program prints its own key=value lines.
  bool enabled() const noexcept { return enabled_; }

  /// Sets the amount done so far.
  void update(double done) {
    line_.done = done;
    draw(false);
  }
  /// Sets the amount done so far and what is shown behind it, e.g. "loss 2.31  7.9k tokens/s".
  void update(double done, std::string suffix) {
    line_.suffix = std::move(suffix);
    update(done);
  }
  void advance(double more = 1) { update(line_.done + more); }
  void set_total(std::optional<double> total) { line_.total = total; }

  /// Wipes the line so that something else can be printed; the next update draws it again.
  void clear() {
    if (!drawn_) return;
    std::fputs("\r\x1b[K", stream_);
    std::fflush(stream_);
    drawn_ = false;
  }

  /// Draws the last state and leaves it on the screen, with the cursor on the next line.
  void finish() {
    if (!enabled_) return;
    draw(true);
    std::fputc('\n', stream_);
    std::fflush(stream_);
    drawn_ = false;
    enabled_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static bool dumb_terminal() {
    const char* term = std::getenv("TERM");
    return term != nullptr && std::string_view(term) == "dumb";
  }

  /// Columns of the terminal; else COLUMNS, else 80. One is left free: a full line would wrap.
  std::size_t columns() const {
    long width = 0;
    winsize size{};
    if (::ioctl(::fileno(stream_), TIOCGWINSZ, &size) == 0) width = size.ws_col;
    if (width <= 0) {
      const char* given = std::getenv("COLUMNS");
      width = given != nullptr ? std::strtol(given, nullptr, 10) : 0;
    }
    return static_cast<std::size_t>(width > 1 ? width - 1 : 79);
  }

  void draw(bool force) {
    if (!enabled_) return;
    const auto now = Clock::now();
    if (!force && now - last_draw_ < std::chrono::milliseconds(100)) return;
    last_draw_ = now;
    line_.elapsed_seconds = std::chrono::duration<double>(now - start_).count();
    line_.rate = line_.elapsed_seconds > 0.2 ? (line_.done - begin_) / line_.elapsed_seconds : 0;
    const std::string text = "\r" + format_progress(line_, columns()) + "\x1b[K";
    std::fputs(text.c_str(), stream_);
    std::fflush(stream_);
    drawn_ = true;
  }

  std::FILE* stream_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_, last_draw_{};
  double begin_;
  ProgressLine line_;
};

}  // namespace ilme
