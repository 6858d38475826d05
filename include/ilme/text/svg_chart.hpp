/// Charts as inline SVG: bars, points and lines. Colours come from the page: a mark of series i has the class `s<i>`,
/// which sets the variable --c, and the classes `grid`, `axis` and `value` style the rest.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/text/html.hpp>
#include <ilme/text/words.hpp>

namespace ilme::text {

inline constexpr std::size_t kChartSeries = 8;  // colours, used again from the ninth on

struct Bar {
  std::string label;
  double value = 0.0;
  std::string text;  // the value as it is written
  std::size_t series = 0;
};

struct ChartPoint {
  double x = 0.0, y = 0.0;
  std::string label;
  std::size_t series = 0;
};

struct ChartLine {
  std::vector<double> values;  // at x = 0, 1, 2, ...
  std::string label;
  std::size_t series = 0;
};

namespace detail {

inline std::string number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f", value);
  return buffer;
}

/// A tick's label without needless digits.
inline std::string tick_label(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", value);
  return buffer;
}

inline std::string series_class(std::size_t series) {
  return std::to_string(series % kChartSeries).insert(0, 1, 's');  // GCC 12 warns wrongly of "s" + ...
}

/// 1, 2 or 5 times a power of ten, so that about `count` steps fill `range`.
inline double nice_step(double range, int count) {
  const double raw = range / count, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power * 1.0001) return factor * power;
  }
  return 10.0 * power;
}

inline std::string svg_text(double x, double y, std::string_view attributes, std::string_view text) {
  return element("text", "x=\"" + number(x) + "\" y=\"" + number(y) + "\" " + std::string(attributes),
                 escape_html(text));
}

inline std::string svg_line(double x1, double y1, double x2, double y2, std::string_view kind) {
  return "<line class=\"" + std::string(kind) + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" +
         number(x2) + "\" y2=\"" + number(y2) + "\"/>";
}

inline std::string svg(double width, double height, std::string_view title, const std::string& content) {
  return element("svg",
                 "viewBox=\"0 0 " + number(width) + " " + number(height) + "\" role=\"img\" aria-label=\"" +
                     escape_html(title) + "\"",
                 content);
}

/// Width of a text in the charts' 13 px font, roughly.
inline double text_width(std::string_view text) { return 7.7 * static_cast<double>(count_characters(text)); }

/// The first `characters` of a text, with an ellipsis when that is not all.
inline std::string shortened(std::string_view text, std::size_t characters) {
  const char *p = text.data(), *const end = p + text.size();
  for (std::size_t i = 0; p < end; ++i) {
    if (i + 1 == characters && count_characters(std::string_view(p, static_cast<std::size_t>(end - p))) > 1) {
      return std::string(text.data(), p) + "\u2026";
    }
    p += decode_utf8(p, end).length;
  }
  return std::string(text);
}

/// A plane with axes: from data to the picture, grid lines with labels included.
struct Plane {
  static constexpr double kWidth = 520, kHeight = 280, kLeft = 48, kRight = 16, kTop = 12, kBottom = 44;
  double x_min, x_max, y_min, y_max;

  double x(double value) const { return kLeft + (value - x_min) / (x_max - x_min) * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return kHeight - kBottom - (value - y_min) / (y_max - y_min) * (kHeight - kTop - kBottom);
  }

  std::string horizontal_grid(std::string_view unit = "") const {
    std::string out;
    const double step = nice_step(y_max - y_min, 5);
    for (double at = std::ceil(y_min / step - 1e-9) * step; at <= y_max + 1e-9 * step; at += step) {
      out += svg_line(kLeft, y(at), kWidth - kRight, y(at), "grid");
      const double clean = std::abs(at) < step * 1e-9 ? 0.0 : at;
      out +=
          svg_text(kLeft - 6, y(at) + 4, "class=\"axis\" text-anchor=\"end\"", tick_label(clean) + std::string(unit));
    }
    return out;
  }
  std::string tick_below(double at, std::string_view label) const {
    return svg_text(x(at), kHeight - kBottom + 18, "class=\"axis\" text-anchor=\"middle\"", label);
  }
  std::string title_below(std::string_view title) const {
    return svg_text((kLeft + kWidth - kRight) / 2, kHeight - 6, "class=\"axis\" text-anchor=\"middle\"", title);
  }
};

struct Box {
  double left, top, right, bottom;
};

/// A place for a label of one line near the point (x, y) that meets none of `taken`: beside it, over it or under it;
/// further down when nothing is free.
inline Box free_place(double x, double y, double width, const std::vector<Box>& taken) {
  constexpr double kLine = 16, kGap = 9;
  const auto is_free = [&](const Box& box) {
    return std::none_of(taken.begin(), taken.end(), [&](const Box& other) {
      return box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom;
    });
  };
  const double centre =
      std::clamp(x, Plane::kLeft + width / 2, std::max(Plane::kLeft + width / 2, Plane::kWidth - width / 2));
  for (double down = 0;; down += kLine) {
    for (const auto& [left, top] :
         {std::pair(x + kGap, y - kLine / 2 + down), std::pair(x - kGap - width, y - kLine / 2 + down),
          std::pair(centre - width / 2, y - kGap - kLine), std::pair(centre - width / 2, y + kGap + down)}) {
      const Box box{left, top, left + width, top + kLine};
      const bool inside = box.left >= Plane::kLeft - 40 && box.right <= Plane::kWidth;
      if ((inside && is_free(box)) || down > 20 * kLine) return box;
    }
  }
}

}  // namespace detail

/// Horizontal bars from zero with their labels to the left and their values behind them.
inline std::string bar_chart(std::string_view title, const std::vector<Bar>& bars) {
  using namespace detail;
  constexpr double kWidth = 520, kRow = 28, kThick = 18;
  constexpr std::size_t kLongestLabel = 24;
  double labels = 40, values = 30, largest = 0;
  for (const Bar& bar : bars) {
    labels = std::max(labels, text_width(shortened(bar.label, kLongestLabel)));
    values = std::max(values, text_width(bar.text));
    largest = std::max(largest, bar.value);
  }
  const double left = labels + 10, room = kWidth - left - values - 10;
  std::string out;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double top = kRow * static_cast<double>(i) + (kRow - kThick) / 2, base = top + kThick - 4;
    const double length = largest > 0 ? std::max(1.0, bars[i].value / largest * room) : 1.0;
    out += svg_text(left - 8, base, "text-anchor=\"end\"", shortened(bars[i].label, kLongestLabel));
    out += "<rect class=\"mark " + series_class(bars[i].series) + "\" rx=\"2\" x=\"" + number(left) + "\" y=\"" +
           number(top) + "\" width=\"" + number(length) + "\" height=\"" + number(kThick) + "\"/>";
    out += svg_text(left + length + 6, base, "class=\"value\"", bars[i].text);
  }
  return svg(kWidth, kRow * static_cast<double>(bars.size()), title, out);
}

/// Points with their labels; x is on a scale of powers of two and counts things ("32k").
inline std::string log_point_chart(std::string_view title, std::string_view x_title,
                                   const std::vector<ChartPoint>& points) {
  using namespace detail;
  if (points.empty()) return "";
  Plane plane{1e300, -1e300, 0.0, 0.0};
  for (const ChartPoint& point : points) {
    plane.x_min = std::min(plane.x_min, std::log2(std::max(point.x, 1.0)));
    plane.x_max = std::max(plane.x_max, std::log2(std::max(point.x, 1.0)));
    plane.y_max = std::max(plane.y_max, point.y * 1.08);
  }
  plane.x_min = std::floor(plane.x_min - 0.1);
  plane.x_max = std::ceil(plane.x_max + 0.1);
  if (plane.y_max <= 0.0) plane.y_max = 1.0;
  std::string out = plane.horizontal_grid();
  for (double at = plane.x_min; at <= plane.x_max; ++at) {
    const double value = std::exp2(at);
    out += svg_line(plane.x(at), Plane::kTop, plane.x(at), Plane::kHeight - Plane::kBottom, "grid");
    out += plane.tick_below(at, value >= 1024 ? tick_label(value / 1024) + "k" : tick_label(value));
  }
  out += plane.title_below(x_title);

  std::vector<Box> taken;
  std::vector<double> xs, ys;
  for (const ChartPoint& point : points) {
    xs.push_back(plane.x(std::log2(std::max(point.x, 1.0))));
    ys.push_back(plane.y(point.y));
    taken.push_back({xs.back() - 7, ys.back() - 7, xs.back() + 7, ys.back() + 7});
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    out += "<circle class=\"mark " + series_class(points[i].series) + "\" cx=\"" + number(xs[i]) + "\" cy=\"" +
           number(ys[i]) + "\" r=\"5\"/>";
    const std::string label = shortened(points[i].label, 20);
    const Box box = free_place(xs[i], ys[i], text_width(label), taken);
    taken.push_back(box);
    out += svg_text((box.left + box.right) / 2, box.bottom - 4, "text-anchor=\"middle\"", label);
  }
  return svg(Plane::kWidth, Plane::kHeight, title, out);
}

/// Lines over x = 0, 1, 2, ... with `x_labels` below (an empty one leaves its place free); y is in percent.
inline std::string percent_line_chart(std::string_view title, std::string_view x_title,
                                      const std::vector<std::string>& x_labels, const std::vector<ChartLine>& lines) {
  using namespace detail;
  if (x_labels.size() < 2) return "";
  Plane plane{0.0, static_cast<double>(x_labels.size() - 1), 0.0, 0.0};
  for (const ChartLine& line : lines) {
    for (const double value : line.values) plane.y_max = std::max(plane.y_max, 105.0 * value);
  }
  if (plane.y_max <= 0.0) plane.y_max = 1.0;
  std::string out = plane.horizontal_grid(" %");
  for (std::size_t i = 0; i < x_labels.size(); ++i) {
    if (!x_labels[i].empty()) out += plane.tick_below(static_cast<double>(i), x_labels[i]);
  }
  out += plane.title_below(x_title);
  for (const ChartLine& line : lines) {
    std::string path;
    for (std::size_t i = 0; i < line.values.size(); ++i) {
      path += number(plane.x(static_cast<double>(i))) + "," + number(plane.y(100.0 * line.values[i])) + " ";
    }
    out += "<polyline class=\"" + series_class(line.series) + "\" points=\"" + path + "\">" +
           element("title", "", escape_html(line.label)) + "</polyline>";
  }
  return svg(Plane::kWidth, Plane::kHeight, title, out);
}

}  // namespace ilme::text
