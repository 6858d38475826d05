#include "support/catch_torch.hpp"

#include <memory>

#include "support/gradients.hpp"

#include <ilme/ops/embedding.hpp>

using ilme::ops::embedding_reference;
using ilme::test::leaf;
using ilme::test::max_difference;
using ilme::test::random;
using ilme::test::relative_error;

namespace {

/// Keeps one sum, which starts as garbage.
struct Receiver : ilme::ops::GradientReceiver {
  explicit Receiver(const at::Tensor& weight)
      : sum(at::full(weight.sizes(), 1e9, weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)) {}
  void take(at::Tensor gradient) override {
    if (empty) sum.zero_();
    empty = false;
    sum.add_(gradient);
  }
  Accumulator accumulator() override { return {sum, std::exchange(empty, false)}; }
  void operator()(const torch::autograd::Variable& parameter) override { passed |= parameter.grad().defined(); }
  at::Tensor sum;
  bool empty = true, passed = false;
};

Receiver& receive(const at::Tensor& weight) {
  auto receiver = std::make_unique<Receiver>(weight);
  Receiver& found = *receiver;
  torch::autograd::impl::set_post_acc_grad_hooks(weight, std::move(receiver));
  return found;
}

}  // namespace

TEST_CASE("embedding equals its twin, values and gradients") {
  const auto dtype = GENERATE(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf);
  const bool received = GENERATE(false, true);
  const at::Tensor ids = at::tensor({3, 0, 3, 3, 6, 0}, at::kLong).view({2, 3});
  const at::Tensor values = random({7, 5}).to(dtype), dout = random({2, 3, 5}, at::kDouble, 2).to(dtype);
  const at::Tensor weight = leaf(values, dtype), weight2 = leaf(values, at::kDouble);
  Receiver* const receiver = received ? &receive(weight) : nullptr;
  const at::Tensor out = ilme::ops::embedding(weight, ids), expected = embedding_reference(weight2, ids);
  CHECK(at::equal(out, embedding_reference(weight, ids)));
  out.backward(dout);
  expected.backward(dout.to(at::kDouble));
  if (!received) {
    CHECK(relative_error(weight.grad(), weight2.grad()) <= (dtype == at::kDouble  ? 1e-10
                                                            : dtype == at::kFloat ? 1e-6
                                                                                  : 1e-2));
    return;
  }
  // In float32 whatever the dtype is, and nothing went through autograd.
  const double tolerance = dtype == at::kDouble ? 1e-10 : 1e-6;
  CHECK_FALSE(receiver->passed);
  CHECK_FALSE(weight.grad().defined());
  CHECK(relative_error(receiver->sum, weight2.grad()) <= tolerance);
  ilme::ops::embedding(weight, ids).backward(dout);  // adds
  CHECK(relative_error(receiver->sum, 2 * weight2.grad()) <= tolerance);
}

TEST_CASE("embedding takes views of ids, no ids, a frozen weight, and a weight that is stepped before its backward") {
  const at::Tensor weight = leaf(random({7, 4}), at::kFloat);
  Receiver& receiver = receive(weight);
  const at::Tensor ids = at::arange(6, at::kLong).view({2, 3}).t();
  const at::Tensor out = ilme::ops::embedding(weight, ids);
  CHECK(out.sizes() == at::IntArrayRef({3, 2, 4}));
  {
    const at::NoGradGuard no_gradient;
    weight.add_(1);
  }
  out.sum().backward();
  CHECK(receiver.sum.narrow(0, 0, 6).eq(1).all().item<bool>());
  ilme::ops::embedding(weight, at::zeros({0, 3}, at::kLong)).sum().backward();
  CHECK(receiver.sum.sum().item<double>() == 24.0);
  const at::Tensor frozen = weight.detach();
  CHECK_FALSE(ilme::ops::embedding(frozen, ids).requires_grad());
  CHECK_THROWS_AS(ilme::ops::embedding(weight, ids.to(at::kInt)), c10::ValueError);
}
