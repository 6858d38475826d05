/// What the tests of compiled kernels share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "support/catch_torch.hpp"

#include <ilme/kernels/abi.hpp>

#include "kernels/cpu/level.hpp"

namespace ilme::test {

inline kernels::DType kernel_type(at::ScalarType type) {
  return type == at::kFloat      ? kernels::DType::float32
         : type == at::kBFloat16 ? kernels::DType::bfloat16
                                 : kernels::DType::float16;
}

/// Largest difference, as a share of the largest value (of the terms, where they cancel).
inline double difference(const at::Tensor& a, const at::Tensor& b) {
  const double scale = std::max(b.to(at::kDouble).abs().max().item<double>(), 0.1);
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() / scale;
}

/// The results of call() with so many threads each.
template <class Call>
auto with_threads(int few, int many, const Call& call) {
  const int threads = at::get_num_threads();
  at::set_num_threads(few);
  auto first = call();
  at::set_num_threads(many);
  auto second = call();
  at::set_num_threads(threads);
  return std::pair{std::move(first), std::move(second)};
}

/// The bodies of a kernel that this processor runs, by name.
template <class Rows>
std::vector<std::pair<const char*, const Rows*>> runnable(
    std::initializer_list<std::pair<const char*, const Rows*>> by_level) {
  const auto count = static_cast<std::ptrdiff_t>(kernels::cpu::level()) + 1;
  return {by_level.begin(), by_level.begin() + std::min<std::ptrdiff_t>(count, std::ssize(by_level))};
}

}  // namespace ilme::test

/// runnable() of the bodies whose names begin with `name`, in ascending order of the instruction sets.
#if defined(__x86_64__)
#define ILME_RUNNABLE(Rows, name)                            \
  ilme::test::runnable<Rows>({{"baseline", &name##Baseline}, \
                              {"avx2", &name##Avx2},         \
                              {"avx512", &name##Avx512},     \
                              {"avx512_bf16", &name##Avx512Bf16}})
#else
#define ILME_RUNNABLE(Rows, name) ilme::test::runnable<Rows>({{"baseline", &name##Baseline}})
#endif
