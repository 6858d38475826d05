/// Means and ratios with their standard errors.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <ilme/core/error.hpp>

namespace ilme::evaluate {

/// A figure and its standard error over the sample (documents, questions, prompts); NaN where there is none to give.
struct Estimate {
  double value = 0;
  double standard_error = std::numeric_limits<double>::quiet_NaN();
};

/// sum(x) / sum(y) over n pairs, as bits over bytes of documents. Standard error of a ratio estimator by linearisation:
/// sqrt(n / (n - 1) * sum((x - value y)^2)) / sum(y) (Cochran 1977, Sampling Techniques, 6.4); for y = 1 it is that of
/// a mean. A paired difference of two such ratios over the same y is the ratio of the differences of x.
inline Estimate ratio_estimate(std::span<const double> x, std::span<const double> y) {
  if (x.size() != y.size()) throw InputError("a ratio of ", x.size(), " values over ", y.size());
  double sum_x = 0, sum_y = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum_x += x[i];
    sum_y += y[i];
  }
  Estimate estimate{sum_x / sum_y};
  if (x.size() < 2) return estimate;
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double residual = x[i] - estimate.value * y[i];
    squares += residual * residual;
  }
  const auto n = static_cast<double>(x.size());
  estimate.standard_error = std::sqrt(n / (n - 1) * squares) / sum_y;
  return estimate;
}

/// The mean of `values` with its standard error, sqrt(variance / n).
inline Estimate mean_estimate(std::span<const double> values) {
  return ratio_estimate(values, std::vector<double>(values.size(), 1.0));
}

}  // namespace ilme::evaluate
