// Shares the elements of SwiGLU among the threads of libtorch.
#include "swiglu.hpp"

#include <ATen/Parallel.h>

#include <cstdint>

#include "level.hpp"
#include "swiglu_rows.hpp"

namespace ilme::kernels::cpu {
namespace {

constexpr std::int64_t kGrain = 8192;  // elements that are worth waking a thread

}  // namespace

const SwigluRows& swiglu_rows() { return ILME_FASTEST_BODY(kSwiglu); }

const char* swiglu_forward(const SwigluForward& a) {
  const SwigluRows& rows = swiglu_rows();
  at::parallel_for(0, a.size, kGrain, [&](std::int64_t begin, std::int64_t end) { rows.forward(a, begin, end); });
  return nullptr;
}

const char* swiglu_backward(const SwigluBackward& a) {
  const SwigluRows& rows = swiglu_rows();
  at::parallel_for(0, a.size, kGrain, [&](std::int64_t begin, std::int64_t end) { rows.backward(a, begin, end); });
  return nullptr;
}

}  // namespace ilme::kernels::cpu
