#include "support/tiny_llama.hpp"

#include "support/gradients.hpp"
#include "support/temporary.hpp"

#include <ilme/io/safetensors.hpp>
#include <ilme/lora/lora.hpp>

using ilme::lora::Lora;
using ilme::nn::Linear;
using ilme::test::max_difference;
using ilme::test::random;

TEST_CASE("a fresh adapter changes nothing, and without one Lora is its base") {
  Lora<Linear> lora(6, 5, at::kFloat);
  {
    const at::NoGradGuard no_gradient;
    lora.weight.copy_(random({5, 6}));
  }
  const at::Tensor x = random({3, 6}, at::kFloat, 2);
  const at::Tensor base = at::linear(x, lora.weight);
  CHECK(at::equal(lora.forward(x), base));
  CHECK(lora.named_parameters().size() == 1);
  lora.attach({.rank = 2, .scaling = 4.0});
  CHECK(at::equal(lora.forward(x), base));
  CHECK(lora.named_parameters().contains("lora_A.weight"));
  CHECK(lora.lora_A->weight.abs().max().item<double>() > 0);
  CHECK_THROWS_AS(lora.attach({.rank = 2}), c10::ValueError);
}

TEST_CASE("an adapter adds scaling * B A x; merging gives the same and leaves the weight alone") {
  Lora<Linear> lora(6, 5, at::kDouble);
  lora.attach({.rank = 2, .scaling = 4.0});
  {
    const at::NoGradGuard no_gradient;
    lora.weight.copy_(random({5, 6}));
    lora.lora_B->weight.copy_(random({5, 2}, at::kDouble, 3));
  }
  const at::Tensor before = lora.weight.detach().clone(), x = random({3, 6}, at::kDouble, 2);
  const at::Tensor expected = at::linear(x, lora.weight + 4.0 * lora.lora_B->weight.mm(lora.lora_A->weight));
  CHECK(max_difference(lora.forward(x), expected) < 1e-12);
  CHECK(max_difference(at::linear(x, lora.merged_weight()), expected) < 1e-12);
  CHECK(at::equal(lora.weight, before));
}

TEST_CASE("a base with a bias keeps it under an adapter") {
  Lora<Linear> lora(6, 5, at::kDouble, /*bias=*/true);
  lora.attach({.rank = 2, .scaling = 4.0});
  const at::NoGradGuard no_gradient;
  lora.weight.copy_(random({5, 6}));
  lora.bias.copy_(random({5}, at::kFloat, 4));
  lora.lora_B->weight.copy_(random({5, 2}, at::kDouble, 3));
  const at::Tensor x = random({3, 6}, at::kDouble, 2);
  CHECK(lora.named_parameters().size() == 4);
  CHECK(max_difference(lora.forward(x), at::linear(x, lora.merged_weight(), lora.bias)) < 1e-12);
}

TEST_CASE("dropout acts on the adapter alone and only while training") {
  Lora<Linear> lora(64, 5, at::kFloat);
  lora.attach({.rank = 2, .scaling = 1.0, .dropout = 0.5});
  {
    const at::NoGradGuard no_gradient;
    lora.weight.zero_();
    lora.lora_B->weight.fill_(1.0);
  }
  const at::Tensor x = at::ones({1, 64});
  lora.train();
  CHECK_FALSE(at::equal(lora.forward(x), lora.forward(x)));
  lora.eval();
  CHECK(at::equal(lora.forward(x), lora.forward(x)));
}

TEST_CASE("a bf16 weight is merged with one rounding: case lora-bf16-merge") {
  const auto folder = ilme::test::shared_path("cases/lora-bf16-merge");
  if (!folder) SKIP("shared/cases/lora-bf16-merge is absent");
  const ilme::io::SafetensorsFile in(*folder / "in.safetensors"), out(*folder / "expected.safetensors");
  Lora<Linear> lora(16, 24, at::kBFloat16);
  lora.attach({.rank = 4, .scaling = 4.0});
  const at::NoGradGuard no_gradient;
  lora.weight.copy_(in.tensor("weight"));
  lora.lora_A->weight.copy_(in.tensor("lora_A"));
  lora.lora_B->weight.copy_(in.tensor("lora_B"));
  const at::Tensor merged = lora.merged_weight(), expected = out.tensor("merged");
  CHECK(merged.scalar_type() == at::kBFloat16);
  CHECK(merged.ne(expected).sum().item<std::int64_t>() <= 3);
  CHECK(at::equal(lora.weight, in.tensor("weight")));
}

TEST_CASE("a Lora model computes what the plain model does until adapters are attached") {
  ilme::nn::Llama<ilme::ops::Fused> plain(ilme::test::tiny_config());
  ilme::nn::Llama<ilme::ops::Fused, Lora<Linear>> lora(ilme::test::tiny_config());
  ilme::test::fill_by_formula(plain);
  ilme::test::fill_by_formula(lora);
  const at::NoGradGuard no_gradient;
  const auto batch = ilme::test::batch_of({{1, 2, 3, 4}});
  CHECK(at::equal(plain.hidden(batch), lora.hidden(batch)));
}
