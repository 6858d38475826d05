/// A hint for computing something again for its gradients only.
#pragma once

namespace ilme::ops {

/// While one of these lives, ops::linear on this thread does not compute its product and returns zeros that take no
/// memory, differentiable as ever: what the gradients of a linear map need is its input and its weight. For the last
/// map of a segment that is run again in the backward (nn/checkpoint.hpp).
class ValueNotNeeded {
 public:
  explicit ValueNotNeeded(bool active = true) noexcept : before_(flag()) { flag() = active; }
  ~ValueNotNeeded() { flag() = before_; }
  ValueNotNeeded(const ValueNotNeeded&) = delete;
  ValueNotNeeded& operator=(const ValueNotNeeded&) = delete;

  static bool active() noexcept { return flag(); }

 private:
  static bool& flag() noexcept {
    static thread_local bool active = false;
    return active;
  }
  bool before_;
};

}  // namespace ilme::ops
