/// Learning-rate schedules as plain functions of the step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <ilme/core/error.hpp>

namespace ilme::optim {

enum class Decay { constant, linear, cosine, wsd };

/// "constant", "linear", "cosine" or "wsd"; InputError for anything else.
inline Decay parse_decay(const std::string& name) {
  if (name == "constant") return Decay::constant;
  if (name == "linear") return Decay::linear;
  if (name == "cosine") return Decay::cosine;
  if (name == "wsd") return Decay::wsd;
  throw InputError("schedule \"", name, "\": expected constant, linear, cosine or wsd");
}

/// Linear warm-up from peak / warmup_steps to `peak`, then a decay to `floor` that ends with the last step. Cosine:
/// Loshchilov & Hutter 2016; wsd (warm-up, stable, decay): Hu et al. 2024, "MiniCPM", with a linear decay over the last
/// `decay_fraction` of the steps.
struct Schedule {
  Decay decay = Decay::cosine;
  double peak = 1e-3;
  double floor = 0.0;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  double decay_fraction = 0.2;

  /// The learning rate of step `step`, counted from 1 to total_steps; `floor` after the end (`peak` for constant). With
  /// a limit of time, `time_share` is the share of it that has passed: the decay is as far as steps or time are, the
  /// one that is further.
  double operator()(std::int64_t step, double time_share = 0) const {
    if (step <= warmup_steps) return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
    const auto after = static_cast<double>(step - warmup_steps);
    const auto length = static_cast<double>(std::max<std::int64_t>(total_steps - warmup_steps, 1));
    const double progress = std::min(std::max(after / length, time_share), 1.0);
    switch (decay) {
      case Decay::constant:
        return peak;
      case Decay::linear:
        return peak + (floor - peak) * progress;
      case Decay::cosine:
        return floor + (peak - floor) * 0.5 * (1.0 + std::cos(progress * 3.14159265358979323846));
      case Decay::wsd: {
        const double falling = std::max(0.0, (progress - (1.0 - decay_fraction)) / decay_fraction);
        return peak + (floor - peak) * std::min(falling, 1.0);
      }
    }
    return peak;
  }
};

}  // namespace ilme::optim
