#include "support/catch_torch.hpp"

#include <tuple>
#include <vector>

#include <ATen/Parallel.h>

#include "support/gradients.hpp"

#include <ilme/ops/matrix_product.hpp>

using namespace ilme;
using test::random;

namespace {

bool has_kernel(at::ScalarType type) {
  const auto& cpu = kernels::table().cpu;
  return cpu.matrix_product != nullptr && cpu.has_matrix_product(*ops::detail::kernel_dtype(type));
}

/// [rows, columns] of a wider matrix, or the transpose of [columns, rows] of one: strides are not sizes.
at::Tensor matrix(std::int64_t rows, std::int64_t columns, bool transposed, at::ScalarType type, std::uint64_t seed) {
  if (transposed) return matrix(columns, rows, false, type, seed).t();
  return random({rows, columns + 3}, type, seed).narrow(1, 1, columns);
}

}  // namespace

TEST_CASE("the matrix product equals float64, for every layout and sizes that are multiples of nothing") {
  const at::ScalarType type = GENERATE(at::kFloat, at::kBFloat16);
  if (!has_kernel(type)) SKIP("this processor has no matrix product kernel for " << c10::toString(type));
  const auto [m, n, k] = GENERATE(std::tuple{1, 1, 1}, std::tuple{3, 17, 5}, std::tuple{70, 65, 33},
                                  std::tuple{129, 1100, 513}, std::tuple{300, 40, 2100});
  const bool a_transposed = GENERATE(false, true), b_transposed = GENERATE(false, true);
  CAPTURE(type, m, n, k, a_transposed, b_transposed);
  const at::Tensor a = matrix(m, k, a_transposed, type, 1), b = matrix(k, n, b_transposed, type, 2);
  const at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  const at::Tensor scale = at::mm(a.to(at::kDouble).abs(), b.to(at::kDouble).abs()) + 1e-3;
  const auto error = [&](const at::Tensor& c, double times = 1) {
    return ((c.to(at::kDouble) - times * expected).abs() / scale).max().item<double>();
  };
  at::Tensor sum = at::full({m, n + 2}, 7.0, at::kFloat).narrow(1, 0, n);
  ops::detail::product_kernel(sum, a, b, /*add=*/false);
  CHECK(error(sum) <= 1e-6);
  ops::detail::product_kernel(sum, a, b, /*add=*/true);
  CHECK(error(sum, 2) <= 2e-6);
  at::Tensor rounded = at::full({m, n}, 7.0, type);
  ops::detail::product_kernel(rounded, a, b, /*add=*/false);
  CHECK(error(rounded) <= (type == at::kFloat ? 1e-6 : 4e-3));
}

TEST_CASE("the bits of a matrix product do not depend on threads, nor an element's on the others") {
  const at::ScalarType type = GENERATE(at::kFloat, at::kBFloat16);
  if (!has_kernel(type)) SKIP("this processor has no matrix product kernel for " << c10::toString(type));
  const at::Tensor a = random({700, 1100}, type, 1), b = random({1100, 1300}, type, 2);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = ops::detail::product(a, b);
  at::set_num_threads(3);
  const at::Tensor three = ops::detail::product(a, b);
  at::set_num_threads(threads);
  CHECK(at::equal(one, three));
  CHECK(at::equal(ops::detail::product(a.narrow(0, 130, 200), b.narrow(1, 77, 600)),
                  one.narrow(0, 130, 200).narrow(1, 77, 600)));
}

TEST_CASE("a NaN stays in its row and column, and an empty product is zero") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    if (!has_kernel(type)) SKIP("this processor has no matrix product kernel for " << c10::toString(type));
    at::Tensor a = random({130, 50}, type, 1);
    const at::Tensor b = random({50, 40}, type, 2);
    a[3][7] = std::numeric_limits<float>::quiet_NaN();
    const at::Tensor c = ops::detail::product(a, b);
    CHECK(c[3].isnan().all().item<bool>());
    CHECK(c.isnan().sum().item<std::int64_t>() == 40);
    at::Tensor nothing = at::ones({4, 6}, type);
    ops::detail::product_kernel(nothing, at::empty({4, 0}, type), at::empty({0, 6}, type), /*add=*/false);
    CHECK(at::equal(nothing, at::zeros_like(nothing)));
  }
}
