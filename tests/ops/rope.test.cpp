#include "support/catch_torch.hpp"

#include "support/gradients.hpp"
#include "support/temporary.hpp"

#include <ilme/io/safetensors.hpp>
#include <ilme/nn/rotary_embedding.hpp>
#include <ilme/ops/rope.hpp>

using ilme::ops::rope;
using ilme::ops::rope_reference;
using ilme::test::leaf;
using ilme::test::max_difference;
using ilme::test::random;
using ilme::test::relative_error;

namespace {

ilme::nn::LlamaConfig llama32() {
  ilme::nn::LlamaConfig config;
  config.head_dim = 64;
  config.rope_theta = 500000.0;
  config.rope_scaling = {ilme::nn::RopeScaling::Type::llama3, 32.0, 1.0, 4.0, 8192};
  return config;
}

}  // namespace

TEST_CASE("Llama 3 frequencies equal those of Transformers") {
  // transformers 5.24.0, _compute_llama3_parameters for Llama 3.2 1B.
  const at::Tensor frequencies = ilme::nn::rope_inverse_frequencies(llama32());
  REQUIRE(frequencies.size(0) == 32);
  const std::pair<std::int64_t, double> expected[] = {{0, 1.0},
                                                      {1, 0.663601279258728},
                                                      {14, 0.0032114461064338684},
                                                      {15, 0.0012905480107292533},
                                                      {16, 0.000429556705057621},
                                                      {17, 9.708286233944818e-05},
                                                      {31, 9.418306490260875e-08}};
  for (const auto& [i, value] : expected) CHECK(frequencies[i].item<double>() == Catch::Approx(value).epsilon(1e-6));
}

TEST_CASE("rope rotates and its gradient rotates back") {
  ilme::nn::LlamaConfig config;
  config.head_dim = 8;
  ilme::nn::RotaryEmbedding rotary(config);
  const at::Tensor positions = at::tensor({0, 1, 2, 0, 1, 300}, at::kLong).view({1, 6});
  const auto [cos, sin] = rotary.forward(positions);
  const bool fused = GENERATE(false, true);
  const at::Tensor x = leaf(random({1, 6, 2, 8}), fused ? at::kFloat : at::kDouble);
  const at::Tensor none = at::zeros({1, 6, 0}, x.options());
  const at::Tensor y =
      (fused ? rope(x.flatten(2), none, cos, sin) : rope_reference(x.flatten(2), none, cos, sin)).first.view_as(x);
  CHECK(max_difference(y[0][0], x[0][0]) == 0.0);
  CHECK(max_difference(y.norm(2, -1), x.norm(2, -1)) < 1e-6);
  // Pair (i, i + 4) turns by position * theta^(-2i/8).
  const double angle = 300 * std::pow(10000.0, -2.0 / 8);
  const double a = x[0][5][1][1].item<double>(), b = x[0][5][1][5].item<double>();
  CHECK(y[0][5][1][1].item<double>() == Catch::Approx(a * std::cos(angle) - b * std::sin(angle)).epsilon(1e-4));
  CHECK(y[0][5][1][5].item<double>() == Catch::Approx(b * std::cos(angle) + a * std::sin(angle)).epsilon(1e-4));
  y.backward(y.detach());
  CHECK(max_difference(x.grad(), x.detach()) < 1e-6);
}

TEST_CASE("rotary tables and their gradient: case rope-apply") {
  const auto folder = ilme::test::shared_path("cases/rope-apply");
  if (!folder) SKIP("shared/cases/rope-apply is absent");
  const ilme::io::SafetensorsFile in(*folder / "in.safetensors"), out(*folder / "expected.safetensors"),
      gradient(*folder / "expected_grad.safetensors"), tables(*folder / "expected_cos_sin.safetensors");
  ilme::nn::LlamaConfig config;
  config.head_dim = 8;
  ilme::nn::RotaryEmbedding rotary(config);
  const auto [cos, sin] = rotary.forward(in.tensor("position_ids"));
  for (const bool fused : {false, true}) {
    CAPTURE(fused);
    const at::Tensor q = leaf(in.tensor("q"), at::kFloat), k = in.tensor("k");  // [batch, heads, sequence, head_dim]
    const auto [rotated_q, rotated_k] =
        (fused ? rope : rope_reference)(q.transpose(1, 2).flatten(2), k.transpose(1, 2).flatten(2), cos, sin);
    const auto by_head = [&](const at::Tensor& x) { return x.unflatten(2, {x.size(2) / 8, 8}).transpose(1, 2); };
    CHECK(max_difference(by_head(rotated_q), out.tensor("q")) <= 1e-5);
    CHECK(max_difference(by_head(rotated_k), out.tensor("k")) <= 1e-5);
    (by_head(rotated_q) * gradient.tensor("upstream")).sum().backward();
    CHECK(max_difference(q.grad(), gradient.tensor("dq")) <= 1e-5);
  }

  ilme::nn::RotaryEmbedding long_rotary(llama32());
  const at::Tensor positions = tables.tensor("positions");
  const auto [long_cos, long_sin] = long_rotary.forward(positions);
  for (std::int64_t i = 0; i < positions.numel(); ++i) {
    const double tolerance = positions[i].item<std::int64_t>() < 16384 ? 1e-3 : 0.02;
    CHECK(max_difference(long_cos[i].narrow(0, 0, 32), tables.tensor("cos")[i]) <= tolerance);
    CHECK(max_difference(long_sin[i].narrow(0, 0, 32), tables.tensor("sin")[i]) <= tolerance);
  }
}

namespace {

/// Random angles, as float32 tables [batch, sequence, head_dim].
std::pair<at::Tensor, at::Tensor> tables(std::int64_t batch, std::int64_t sequence, std::int64_t head_dim) {
  const at::Tensor half = random({batch, sequence, head_dim / 2}, at::kFloat, 9) * 10;
  const at::Tensor angles = at::cat({half, half}, 2);
  return {angles.cos(), angles.sin()};
}

}  // namespace

TEST_CASE("rope equals its twin, values and gradients") {
  const auto [dtype, tolerance] = GENERATE(std::pair{at::kDouble, 1e-10}, std::pair{at::kFloat, 3e-7},
                                           std::pair{at::kBFloat16, 3e-3}, std::pair{at::kHalf, 4e-4});
  const auto [heads, kv_heads, head_dim] =
      GENERATE(std::tuple{3, 1, 2}, std::tuple{4, 2, 6}, std::tuple{2, 2, 64}, std::tuple{5, 1, 80});
  const auto [cos, sin] = tables(2, 3, head_dim);
  const at::Tensor q_values = random({2, 3, heads * head_dim}),
                   k_values = random({2, 3, kv_heads * head_dim}, at::kDouble, 2);
  const at::Tensor q = leaf(q_values, dtype), k = leaf(k_values, dtype);
  const at::Tensor q2 = leaf(q_values.to(dtype), at::kDouble), k2 = leaf(k_values.to(dtype), at::kDouble);
  const auto [found_q, found_k] = rope(q, k, cos, sin);
  const auto [expected_q, expected_k] = rope_reference(q2, k2, cos, sin);
  const at::Tensor dq = random(q.sizes(), at::kDouble, 3).to(dtype), dk = random(k.sizes(), at::kDouble, 4).to(dtype);
  ((found_q * dq).sum() + (found_k * dk).sum()).backward();
  ((expected_q * dq.to(at::kDouble)).sum() + (expected_k * dk.to(at::kDouble)).sum()).backward();
  CHECK(found_q.scalar_type() == dtype);
  CHECK(relative_error(found_q, expected_q) <= tolerance);
  CHECK(relative_error(found_k, expected_k) <= tolerance);
  CHECK(relative_error(q.grad(), q2.grad()) <= tolerance);
  CHECK(relative_error(k.grad(), k2.grad()) <= tolerance);
}

TEST_CASE("rope's gradients are those of finite differences") {
  const auto [cos, sin] = tables(1, 5, 6);
  const at::Tensor dq = random({1, 5, 12}), dk = random({1, 5, 6}, at::kDouble, 2);
  const auto loss = [&, &cosine = cos, &sine = sin](const std::vector<at::Tensor>& x) {
    const auto [q, k] = rope(x[0], x[1], cosine, sine);
    return (q.to(at::kDouble) * dq).sum() + (k.to(at::kDouble) * dk).sum();
  };
  CHECK(ilme::test::difference_quotient_error(
            loss, {random({1, 5, 12}, at::kFloat, 3), random({1, 5, 6}, at::kFloat, 4)}, 0.1) < 1e-5);
}

TEST_CASE("rope leaves its inputs alone, takes views, no tokens, and one gradient of two; refuses what does not fit") {
  const auto [cos, sin] = tables(1, 4, 8);
  const at::Tensor both = leaf(random({1, 4, 24}), at::kFloat), copy = both.detach().clone();
  const auto parts = both.split_with_sizes({16, 8}, 2);  // as a projection that makes q and k together
  const auto [q, k] = rope(parts[0], parts[1], cos, sin);
  CHECK(at::equal(both, copy));
  CHECK(relative_error(q, rope_reference(parts[0], parts[1], cos, sin).first) < 1e-6);
  k.sum().backward();  // q takes no part
  CHECK(both.grad().narrow(2, 0, 16).eq(0).all().item<bool>());
  CHECK(both.grad().narrow(2, 16, 8).ne(0).any().item<bool>());
  const auto [no_cos, no_sin] = tables(0, 4, 8);
  const at::Tensor empty = at::zeros({0, 4, 16});
  CHECK(rope(empty, empty, no_cos, no_sin).first.sizes() == empty.sizes());
  CHECK_THROWS_AS(rope(parts[0].narrow(2, 0, 12), parts[1], cos, sin), c10::ValueError);
  CHECK_THROWS_AS(rope(empty, parts[1], cos, sin), c10::ValueError);
}
