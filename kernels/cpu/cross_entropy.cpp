// Shares the rows of the cross-entropy among the threads of libtorch. A row is one thread's, so its bits do not depend
// on their number.
#include "cross_entropy.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "cross_entropy_rows.hpp"
#include "level.hpp"

namespace ilme::kernels::cpu {
namespace {

/// Rows a thread takes at least: with fewer elements than ATen's own loops take it is not worth waking.
std::int64_t grain(const CrossEntropy& a) {
  return std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, a.vocabulary));
}

}  // namespace

const CrossEntropyRows& cross_entropy_rows() { return ILME_FASTEST_BODY(kCrossEntropy); }

const char* cross_entropy_forward(const CrossEntropy& a) {
  const CrossEntropyRows& rows = cross_entropy_rows();
  at::parallel_for(0, a.rows, grain(a), [&](std::int64_t begin, std::int64_t end) { rows.forward(a, begin, end); });
  return nullptr;
}

const char* cross_entropy_backward(const CrossEntropy& a) {
  const CrossEntropyRows& rows = cross_entropy_rows();
  at::parallel_for(0, a.rows, grain(a), [&](std::int64_t begin, std::int64_t end) { rows.backward(a, begin, end); });
  return nullptr;
}

}  // namespace ilme::kernels::cpu
