#include "support/catch_torch.hpp"

#include "support/gradients.hpp"
#include "support/temporary.hpp"

#include <ilme/io/safetensors.hpp>
#include <ilme/nn/rotary_embedding.hpp>
#include <ilme/ops/rope.hpp>

using ilme::test::max_difference;

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
  const at::Tensor x = ilme::test::leaf(ilme::test::random({1, 6, 2, 8}), at::kDouble);
  const at::Tensor y = ilme::ops::rope_reference(x, cos, sin);
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
  const at::Tensor q = ilme::test::leaf(in.tensor("q"), at::kFloat);
  const at::Tensor rotated = ilme::ops::rope_reference(q.transpose(1, 2), cos, sin).transpose(1, 2);
  CHECK(max_difference(rotated, out.tensor("q")) <= 1e-5);
  const at::Tensor k = ilme::ops::rope_reference(in.tensor("k").transpose(1, 2), cos, sin).transpose(1, 2);
  CHECK(max_difference(k, out.tensor("k")) <= 1e-5);
  (rotated * gradient.tensor("upstream")).sum().backward();
  CHECK(max_difference(q.grad(), gradient.tensor("dq")) <= 1e-5);

  ilme::nn::RotaryEmbedding long_rotary(llama32());
  const at::Tensor positions = tables.tensor("positions");
  const auto [long_cos, long_sin] = long_rotary.forward(positions);
  for (std::int64_t i = 0; i < positions.numel(); ++i) {
    const double tolerance = positions[i].item<std::int64_t>() < 16384 ? 1e-3 : 0.02;
    CHECK(max_difference(long_cos[i].narrow(0, 0, 32), tables.tensor("cos")[i]) <= tolerance);
    CHECK(max_difference(long_sin[i].narrow(0, 0, 32), tables.tensor("sin")[i]) <= tolerance);
  }
}
