/// Steps that teach nothing: counted, and too many in a row end the run.
#pragma once

#include <cstdint>

#include <ilme/core/error.hpp>
#include <ilme/train/step_report.hpp>

namespace ilme::train {

class BadSteps {
 public:
  /// `limit`: so many in a row end the run; 0: any number is fine.
  explicit BadSteps(std::int64_t limit) : limit_(limit) {
    if (limit < 0) throw InputError("max_bad_steps is ", limit, ", expected 0 (no limit) or more");
  }

  /// Counts the step when it was skipped. Throws RunError with the last one's loss, norm and documents when there have
  /// been too many.
  void count(const StepReport& report) {
    in_a_row_ = report.skipped ? in_a_row_ + 1 : 0;
    total_ += report.skipped;
    if (limit_ == 0 || in_a_row_ < limit_) return;
    throw RunError("step ", report.step, ": ", in_a_row_, " steps in a row taught nothing (loss ", report.loss,
                   ", gradient norm ", report.grad_norm, ", counted tokens ", report.loss_tokens, ")",
                   report.documents.empty() ? "" : "; the last one read " + report.documents,
                   "; try a lower learning rate or look at the data");
  }

  std::int64_t total() const noexcept { return total_; }

  /// Goes on with another total, and none in a row.
  void restore(std::int64_t total) noexcept {
    total_ = total;
    in_a_row_ = 0;
  }

 private:
  std::int64_t limit_, total_ = 0, in_a_row_ = 0;
};

}  // namespace ilme::train
