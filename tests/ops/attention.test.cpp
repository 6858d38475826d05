#include "support/catch_torch.hpp"

#include "support/gradients.hpp"

#include <ilme/ops/attention.hpp>

using ilme::ops::attention_reference;
using ilme::test::leaf;
using ilme::test::max_difference;
using ilme::test::random;

namespace {

/// Softmax over an explicit mask, one head at a time.
at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& offsets) {
  const std::int64_t tokens = q.size(0), group = q.size(1) / k.size(1);
  at::Tensor mask = at::zeros({tokens, tokens}, at::kBool);
  for (std::size_t d = 1; d < offsets.size(); ++d) {
    for (std::int64_t i = offsets[d - 1]; i < offsets[d]; ++i) {
      mask[i].narrow(0, offsets[d - 1], i - offsets[d - 1] + 1).fill_(true);
    }
  }
  std::vector<at::Tensor> heads;
  for (std::int64_t h = 0; h < q.size(1); ++h) {
    at::Tensor scores = q.select(1, h).mm(k.select(1, h / group).t()) / std::sqrt(static_cast<double>(q.size(2)));
    scores = scores.masked_fill(~mask, -std::numeric_limits<double>::infinity());
    heads.push_back(scores.softmax(-1).mm(v.select(1, h / group)));
  }
  return at::stack(heads, 1);
}

}  // namespace

TEST_CASE("attention stays inside each document, values and gradients") {
  const std::vector<std::int64_t> offsets =
      GENERATE(std::vector<std::int64_t>{0, 11}, std::vector<std::int64_t>{0, 4, 8, 11},
               std::vector<std::int64_t>{0, 1, 2, 3, 10, 11});
  const at::Tensor q = leaf(random({11, 4, 6}), at::kDouble), k = leaf(random({11, 2, 6}, at::kDouble, 2), at::kDouble),
                   v = leaf(random({11, 2, 6}, at::kDouble, 3), at::kDouble), up = random({11, 4, 6}, at::kDouble, 4);
  attention_reference(q, k, v, offsets).backward(up);
  const at::Tensor q2 = leaf(q.detach(), at::kDouble), k2 = leaf(k.detach(), at::kDouble),
                   v2 = leaf(v.detach(), at::kDouble);
  const at::Tensor expected = masked_attention(q2, k2, v2, offsets);
  expected.backward(up);
  CHECK(max_difference(attention_reference(q, k, v, offsets), expected) < 1e-10);
  CHECK(max_difference(q.grad(), q2.grad()) < 1e-10);
  CHECK(max_difference(k.grad(), k2.grad()) < 1e-10);
  CHECK(max_difference(v.grad(), v2.grad()) < 1e-10);
}

TEST_CASE("offsets that do not cover the tokens are refused") {
  const at::Tensor q = random({5, 2, 4});
  CHECK_THROWS_AS(attention_reference(q, q, q, {0, 4}), c10::ValueError);
  CHECK_THROWS_AS(attention_reference(q, q, q, {0, 3, 3, 5}), c10::ValueError);
  CHECK_THROWS_AS(attention_reference(q, q, q, {}), c10::ValueError);
}
