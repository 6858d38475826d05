#include "support/catch_torch.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

#include <ilme/ops/attention.hpp>

#include "kernels/cpu/attention_rows.hpp"
#include "support/gradients.hpp"
#include "support/kernels.hpp"

namespace {

using namespace ilme::kernels;
using ilme::test::leaf;
using ilme::test::random;
using ilme::test::relative_error;

struct Shape {
  std::vector<std::int64_t> offsets;
  std::int64_t heads, kv_heads, head_dim;
};

struct Result {
  at::Tensor out, dq, dk, dv;
};

/// Float64 values and gradients of the plain path for inputs of any type.
Result reference(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in, const at::Tensor& dout,
                 const std::vector<std::int64_t>& offsets) {
  const at::Tensor q = leaf(q_in, at::kDouble), k = leaf(k_in, at::kDouble), v = leaf(v_in, at::kDouble);
  const at::Tensor out = ilme::ops::attention_reference(q, k, v, offsets);
  out.backward(dout.to(at::kDouble));
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

/// Every document and head by the loops of one instruction set.
Result by_rows(const cpu::AttentionRows& rows, const Shape& shape, const at::Tensor& q, const at::Tensor& k,
               const at::Tensor& v, const at::Tensor& dout) {
  const DType dtype = *ilme::ops::detail::kernel_dtype(q.scalar_type());
  const auto documents = static_cast<std::int64_t>(shape.offsets.size()) - 1;
  const PackedDocuments packed{shape.offsets.data(),
                               documents,
                               shape.heads,
                               shape.kv_heads,
                               shape.head_dim,
                               1 / std::sqrt(static_cast<float>(shape.head_dim)),
                               dtype};
  std::int64_t longest = 0;
  for (std::int64_t d = 0; d < documents; ++d) longest = std::max(longest, shape.offsets[d + 1] - shape.offsets[d]);
  std::vector<float> workspace(static_cast<std::size_t>(rows.workspace(longest, shape.head_dim, true)), NAN);
  const float nan = NAN;
  Result result{at::full_like(q, nan), at::full_like(q, nan), at::full_like(k, nan), at::full_like(v, nan)};
  at::Tensor log_sum = at::full({q.size(0), shape.heads}, nan, at::kFloat);
  const AttentionForward forward{packed,
                                 q.const_data_ptr(),
                                 k.const_data_ptr(),
                                 v.const_data_ptr(),
                                 result.out.mutable_data_ptr(),
                                 log_sum.mutable_data_ptr<float>(),
                                 nullptr};
  const AttentionBackward backward{packed,
                                   dout.const_data_ptr(),
                                   q.const_data_ptr(),
                                   k.const_data_ptr(),
                                   v.const_data_ptr(),
                                   log_sum.const_data_ptr<float>(),
                                   result.dq.mutable_data_ptr(),
                                   result.dk.mutable_data_ptr(),
                                   result.dv.mutable_data_ptr(),
                                   nullptr};
  for (std::int64_t d = 0; d < documents; ++d) {
    for (std::int64_t h = 0; h < shape.kv_heads; ++h) rows.forward(forward, d, h, workspace.data());
    for (std::int64_t h = 0; h < shape.kv_heads; ++h) rows.backward(backward, d, h, workspace.data());
  }
  return result;
}

void check_equal(const Result& found, const Result& expected, double tolerance) {
  CHECK(relative_error(found.out, expected.out) < tolerance);
  CHECK(relative_error(found.dq, expected.dq) < tolerance);
  CHECK(relative_error(found.dk, expected.dk) < tolerance);
  CHECK(relative_error(found.dv, expected.dv) < tolerance);
}

}  // namespace

TEST_CASE("the attention kernel equals the plain path for every instruction set") {
  const auto [type, tolerance] =
      GENERATE(std::tuple{at::kFloat, 2e-6}, std::tuple{at::kBFloat16, 6e-3}, std::tuple{at::kHalf, 1e-3});
  const Shape shape = GENERATE(Shape{{0, 1}, 1, 1, 1}, Shape{{0, 5, 6, 40}, 4, 2, 6}, Shape{{0, 16, 49, 150}, 6, 2, 16},
                               Shape{{0, 3, 70}, 3, 1, 33}, Shape{{0, 257}, 2, 2, 64});
  CAPTURE(type, shape.offsets, shape.head_dim);
  const std::int64_t tokens = shape.offsets.back();
  const at::Tensor q = random({tokens, shape.heads, shape.head_dim}, type, 1) * 2,
                   k = random({tokens, shape.kv_heads, shape.head_dim}, type, 2),
                   v = random({tokens, shape.kv_heads, shape.head_dim}, type, 3),
                   dout = random({tokens, shape.heads, shape.head_dim}, type, 4);
  const Result expected = reference(q, k, v, dout, shape.offsets);
  for (const auto& [name, rows] : ILME_RUNNABLE(cpu::AttentionRows, cpu::kAttention)) {
    CAPTURE(name);
    check_equal(by_rows(*rows, shape, q, k, v, dout), expected, tolerance);
  }
}

TEST_CASE("ops::attention gives the same bits for any number of threads, and the plain path's values") {
  std::vector<std::int64_t> offsets{0};
  for (std::int64_t length : {7, 1, 90, 33, 200, 16, 64, 5}) offsets.push_back(offsets.back() + length);
  const std::int64_t tokens = offsets.back();
  const at::Tensor up = random({tokens, 6, 32}, at::kFloat, 9);
  const auto run = [&](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const at::Tensor q = leaf(random({tokens, 6, 32}, at::kFloat, 5), at::kFloat),
                     k = leaf(random({tokens, 3, 32}, at::kFloat, 6), at::kFloat),
                     v = leaf(random({tokens, 3, 32}, at::kFloat, 7), at::kFloat);
    const at::Tensor out = ilme::ops::attention(q, k, v, offsets);
    out.backward(up);
    at::set_num_threads(before);
    return Result{out.detach(), q.grad(), k.grad(), v.grad()};
  };
  const Result one = run(1), two = run(2), five = run(5);
  for (const Result* other : {&two, &five}) {
    CHECK(one.out.equal(other->out));
    CHECK(one.dq.equal(other->dq));
    CHECK(one.dk.equal(other->dk));
    CHECK(one.dv.equal(other->dv));
  }
  check_equal(one,
              reference(random({tokens, 6, 32}, at::kFloat, 5), random({tokens, 3, 32}, at::kFloat, 6),
                        random({tokens, 3, 32}, at::kFloat, 7), up, offsets),
              2e-6);
}

TEST_CASE("attention with scores that leave the range of exp") {
  const std::vector<std::int64_t> offsets{0, 20, 50};
  const at::Tensor q = random({50, 2, 8}, at::kFloat, 1) * 200, k = random({50, 1, 8}, at::kFloat, 2) * 10,
                   v = random({50, 1, 8}, at::kFloat, 3), up = random({50, 2, 8}, at::kFloat, 4);
  const at::Tensor q1 = leaf(q, at::kFloat), k1 = leaf(k, at::kFloat), v1 = leaf(v, at::kFloat);
  const at::Tensor out = ilme::ops::attention(q1, k1, v1, offsets);
  out.backward(up);
  check_equal({out.detach(), q1.grad(), k1.grad(), v1.grad()}, reference(q, k, v, up, offsets), 1e-3);
}
