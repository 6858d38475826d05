#include "support/catch_torch.hpp"

#include <tuple>
#include <utility>

#include "support/kernels.hpp"

#include "kernels/cpu/rope_rows.hpp"

namespace {

using namespace ilme::kernels;
using ilme::test::difference;
using ilme::test::kernel_type;

/// Two heads of queries to one of keys.
struct Inputs {
  Inputs(std::int64_t tokens, std::int64_t dim, at::ScalarType type)
      : head_dim(dim), q(at::randn({tokens, 2, dim}).to(type)), k(at::randn({tokens, 1, dim}).to(type)) {
    const at::Tensor half = 10 * at::randn({tokens, dim / 2}), angles = at::cat({half, half}, 1);
    cos = angles.cos();
    sin = angles.sin();
  }
  Rope arguments(const at::Tensor& q_out, const at::Tensor& k_out, bool backward) const {
    return {q.const_data_ptr(),
            k.const_data_ptr(),
            q_out.mutable_data_ptr(),
            k_out.mutable_data_ptr(),
            cos.const_data_ptr<float>(),
            sin.const_data_ptr<float>(),
            q.size(0),
            q.size(1),
            k.size(1),
            head_dim,
            backward,
            kernel_type(q.scalar_type()),
            nullptr};
  }
  /// x * cos + [-b, a] * sin for x = [a, b], in float64.
  at::Tensor exact(const at::Tensor& x, bool backward) const {
    const at::Tensor precise = x.to(at::kDouble);
    const auto halves = precise.chunk(2, -1);
    const at::Tensor turned = at::cat({-halves[1], halves[0]}, -1) * sin.unsqueeze(1);
    return precise * cos.unsqueeze(1) + (backward ? -turned : turned);
  }
  std::int64_t head_dim;
  at::Tensor q, k, cos, sin;
};

}  // namespace

TEST_CASE("every instruction set of the RoPE kernel is as close to float64 as the type can be") {
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kFloat, 3e-7}, std::pair{at::kBFloat16, 4e-3}, std::pair{at::kHalf, 5e-4});
  const auto [tokens, head_dim] = GENERATE(std::pair{1, 2}, std::pair{3, 6}, std::pair{2, 64}, std::pair{5, 80});
  const bool backward = GENERATE(false, true);
  at::manual_seed(head_dim);
  const Inputs in(tokens, head_dim, type);
  const at::Tensor q = in.exact(in.q, backward), k = in.exact(in.k, backward);
  for (const auto& [name, rows] : ILME_RUNNABLE(cpu::RopeRows, cpu::kRope)) {
    CAPTURE(name, type, head_dim, backward);
    const at::Tensor q_out = at::empty_like(in.q), k_out = at::empty_like(in.k);
    rows->rotate(in.arguments(q_out, k_out, backward), 0, tokens);
    CHECK(difference(q_out, q) <= tolerance);
    CHECK(difference(k_out, k) <= tolerance);
  }
}

TEST_CASE("the RoPE kernel's bits do not depend on the number of threads, and it may write over its inputs") {
  const Inputs in(1001, 32, at::kBFloat16);
  const auto rotated = [&] {
    std::pair<at::Tensor, at::Tensor> out{at::empty_like(in.q), at::empty_like(in.k)};
    REQUIRE(table().cpu.rope(in.arguments(out.first, out.second, false)) == nullptr);
    return out;
  };
  const auto [one, three] = ilme::test::with_threads(1, 3, rotated);
  CHECK(at::equal(one.first, three.first));
  CHECK(at::equal(one.second, three.second));
  REQUIRE(table().cpu.rope(in.arguments(in.q, in.k, false)) == nullptr);
  CHECK(at::equal(in.q, one.first));
  CHECK(at::equal(in.k, one.second));
}
