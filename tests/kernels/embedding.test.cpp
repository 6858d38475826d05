#include "support/catch_torch.hpp"

#include "support/kernels.hpp"

#include "kernels/cpu/embedding_rows.hpp"

namespace {

using namespace ilme::kernels;
using ilme::test::kernel_type;

EmbeddingBackward arguments(const at::Tensor& gradient, const at::Tensor& ids, const at::Tensor& sum) {
  return {gradient.const_data_ptr(),
          ids.const_data_ptr<std::int64_t>(),
          sum.mutable_data_ptr<float>(),
          ids.numel(),
          gradient.size(1),
          kernel_type(gradient.scalar_type()),
          nullptr};
}

}  // namespace

TEST_CASE("every instruction set of the embedding kernel adds the same bits, repeated ids in order") {
  const at::ScalarType type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const std::int64_t size = GENERATE(1, 16, 77);
  const at::Tensor gradient = at::randn({300, size}).to(type), ids = at::randint(7, {300}, at::kLong);
  const at::Tensor start = at::randn({9, size});
  at::Tensor expected = start.clone();
  for (std::int64_t i = 0; i < 300; ++i) expected[ids[i].item<std::int64_t>()] += gradient[i].to(at::kFloat);
  for (const auto& [name, rows] : ILME_RUNNABLE(cpu::EmbeddingRows, cpu::kEmbedding)) {
    CAPTURE(name, type, size);
    const at::Tensor sum = start.clone();
    rows->add(arguments(gradient, ids, sum), 0, size);
    CHECK(at::equal(sum, expected));
  }
  const auto added = [&] {
    const at::Tensor sum = start.clone();
    REQUIRE(table().cpu.embedding_backward(arguments(gradient, ids, sum)) == nullptr);
    return sum;
  };
  const auto [one, three] = ilme::test::with_threads(1, 3, added);
  CHECK(at::equal(one, expected));
  CHECK(at::equal(three, expected));
}

TEST_CASE("the embedding kernel shares wide rows among threads, keeps NaN visible, and takes no tokens") {
  at::Tensor gradient = at::randn({257, 1000}).to(at::kBFloat16);
  gradient[5][999] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor ids = at::randint(1, 50, {257}, at::kLong);
  const auto added = [&] {
    const at::Tensor sum = at::zeros({50, 1000});
    REQUIRE(table().cpu.embedding_backward(arguments(gradient, ids, sum)) == nullptr);
    return sum;
  };
  const auto [one, three] = ilme::test::with_threads(1, 3, added);
  CHECK(at::equal(one.nan_to_num(7.0), three.nan_to_num(7.0)));
  CHECK(one.isnan().sum().item<std::int64_t>() == 1);
  CHECK(one[0].eq(0).all().item<bool>());
  const at::Tensor untouched = at::ones({2, 3});
  REQUIRE(table().cpu.embedding_backward(arguments(at::zeros({0, 3}), at::zeros({0}, at::kLong), untouched)) ==
          nullptr);
  CHECK(untouched.eq(1).all().item<bool>());
}
