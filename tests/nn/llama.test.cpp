#include "support/tiny_llama.hpp"

#include "support/gradients.hpp"
#include "support/temporary.hpp"

#include <ilme/io/safetensors.hpp>
#include <ilme/lora/adapters.hpp>
#include <ilme/ops/linear_cross_entropy.hpp>

namespace nn = ilme::nn;
namespace ops = ilme::ops;
using ilme::test::batch_of;
using ilme::test::max_difference;

namespace {

const std::vector<std::int64_t> kIds{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 22};

template <class Model>
at::Tensor logits(Model& model, const std::vector<std::vector<std::int64_t>>& documents) {
  const at::NoGradGuard no_gradient;
  return at::matmul(model.hidden(batch_of(documents)), model.lm_head_weight().t())[0];
}

struct Expected {
  bool tied;
  double loss;
  std::vector<double> first_logits;  // of the last position
  std::vector<std::pair<std::string, double>> gradient_norms;
};

// tests/references/llama_reference.py: transformers 5.24.0, fp32.
const Expected kExpected[] = {{true,
                               4.075994968414307,
                               {0.706881, 0.025375, -0.659442, -1.258228, -1.692865},
                               {{"model.embed_tokens.weight", 1.347139835357666},
                                {"model.layers.0.self_attn.k_proj.weight", 1.0852925777435303},
                                {"model.layers.1.mlp.down_proj.weight", 0.31272274255752563},
                                {"model.layers.0.input_layernorm.weight", 0.23764993250370026},
                                {"model.norm.weight", 0.5109004974365234}}},
                              {false,
                               3.9548110961914062,
                               {-1.92344, -2.093417, -1.990286, -1.627503, -1.052395},
                               {{"model.embed_tokens.weight", 0.4096509516239166},
                                {"model.layers.0.self_attn.k_proj.weight", 0.2513933777809143},
                                {"model.layers.1.mlp.down_proj.weight", 0.3196045458316803},
                                {"model.layers.0.input_layernorm.weight", 0.3468163013458252},
                                {"model.norm.weight", 0.45000916719436646}}}};

}  // namespace

TEMPLATE_TEST_CASE("Llama's logits, loss and gradients equal those of Transformers", "", ops::Reference, ops::Fused) {
  for (const Expected& expected : kExpected) {
    nn::Llama<TestType> model(ilme::test::tiny_config(expected.tied));
    ilme::test::fill_by_formula(model);
    const at::Tensor last = logits(model, {kIds})[-1];
    for (std::size_t i = 0; i < expected.first_logits.size(); ++i) {
      CHECK(last[static_cast<std::int64_t>(i)].template item<double>() ==
            Catch::Approx(expected.first_logits[i]).margin(1e-4));
    }
    const auto batch = batch_of({kIds});
    const auto loss = ops::linear_cross_entropy(model.hidden(batch), model.lm_head_weight(), batch.labels);
    const at::Tensor mean = loss.sum / static_cast<double>(loss.tokens);
    CHECK(mean.template item<double>() == Catch::Approx(expected.loss).margin(1e-5));
    mean.backward();
    const auto parameters = model.named_parameters();
    for (const auto& [name, norm] : expected.gradient_norms) {
      CHECK(parameters[name].grad().norm().template item<double>() == Catch::Approx(norm).epsilon(1e-4));
    }
  }
}

TEST_CASE("parameter names are Hugging Face's") {
  nn::Llama<ops::Fused> tied(ilme::test::tiny_config(true)), untied(ilme::test::tiny_config(false));
  CHECK(tied.named_parameters().contains("model.layers.1.self_attn.o_proj.weight"));
  CHECK(tied.named_parameters().contains("model.layers.0.post_attention_layernorm.weight"));
  CHECK(tied.named_parameters().contains("model.norm.weight"));
  CHECK_FALSE(tied.named_parameters().contains("lm_head.weight"));
  CHECK(untied.named_parameters().contains("lm_head.weight"));
  CHECK(tied.named_parameters().size() == 2 + 2 * 9);
}

TEMPLATE_TEST_CASE("packed documents equal documents alone", "", ops::Reference, ops::Fused) {
  nn::Llama<TestType> model(ilme::test::tiny_config());
  ilme::test::fill_by_formula(model);
  const std::vector<std::vector<std::int64_t>> documents{
      {1, 5, 9, 11, 20, 2}, {1, 17, 4, 2}, {1, 7, 7, 7, 7, 7, 12, 2}};
  const at::Tensor packed = logits(model, documents);
  const at::Tensor alone =
      at::cat({logits(model, {documents[0]}), logits(model, {documents[1]}), logits(model, {documents[2]})});
  CHECK(max_difference(packed, alone) < 1e-5);
  auto changed = documents;
  changed[0][2] = 3;
  CHECK(at::equal(logits(model, changed).narrow(0, 6, 12), packed.narrow(0, 6, 12)));
}

TEST_CASE("a cache continues exactly where the full pass is") {
  nn::Llama<ops::Fused> model(ilme::test::tiny_config());
  ilme::test::fill_by_formula(model);
  const at::NoGradGuard no_gradient;
  const at::Tensor full = model.hidden(batch_of({kIds}))[0];
  nn::KvCache cache(2);
  const at::Tensor ids = at::tensor(kIds, at::kLong).unsqueeze(0);
  const at::Tensor parts = at::cat({model.hidden(ids.narrow(1, 0, 6), cache), model.hidden(ids.narrow(1, 6, 1), cache),
                                    model.hidden(ids.narrow(1, 7, 8), cache)},
                                   1)[0];
  CHECK(cache.length() == 15);
  CHECK(max_difference(parts, full) < 1e-5);
}

TEST_CASE("biases are parameters where the configuration wants them, and start at 0") {
  nn::LlamaConfig config = ilme::test::tiny_config();
  config.attention_bias = true;
  nn::Llama<ops::Fused> qwen2(config);
  CHECK(qwen2.named_parameters().size() == 2 + 2 * 12);
  CHECK(qwen2.named_parameters().contains("model.layers.1.self_attn.v_proj.bias"));
  CHECK_FALSE(qwen2.named_parameters().contains("model.layers.1.self_attn.o_proj.bias"));
  config.attention_output_bias = config.mlp_bias = true;
  nn::Llama<ops::Fused> all(config);
  CHECK(all.named_parameters().size() == 2 + 2 * 16);
  all.initialize(3);
  CHECK(all.layers[0]->mlp->down_proj->bias.abs().max().item<double>() == 0.0);
  CHECK(all.layers[0]->input_layernorm->weight.min().item<double>() == 1.0);
}

TEST_CASE("a sequence longer than the sliding window is refused") {
  nn::LlamaConfig config = ilme::test::tiny_config();
  config.sliding_window = 4;
  nn::Llama<ops::Fused> model(config);
  ilme::test::fill_by_formula(model);
  CHECK_NOTHROW(model.hidden(batch_of({{1, 2, 3, 4}, {1, 2}})));
  CHECK_THROWS_WITH(model.hidden(batch_of({{1, 2, 3, 4, 5}, {1, 2}})),
                    Catch::Matchers::ContainsSubstring("sliding_window of 4"));
  nn::KvCache cache(2);
  model.hidden(at::tensor({1, 2, 3, 4}, at::kLong).unsqueeze(0), cache);
  CHECK_THROWS_AS(model.hidden(at::tensor({1}, at::kLong).unsqueeze(0), cache), ilme::InputError);
}

TEST_CASE("initialize depends on the seed alone") {
  nn::Llama<ops::Fused> a(ilme::test::tiny_config()), b(ilme::test::tiny_config());
  a.initialize(3);
  b.initialize(3);
  CHECK(at::equal(a.embed_tokens->weight, b.embed_tokens->weight));
  b.initialize(4);
  CHECK_FALSE(at::equal(a.embed_tokens->weight, b.embed_tokens->weight));
  CHECK(a.norm->weight.min().item<double>() == 1.0);
}

TEST_CASE("Transformers' tiny Llama, alone and packed: cases _tiny-llama, packing-equals-separate") {
  const auto folder = ilme::test::shared_path("cases/_tiny-llama");
  if (!folder) SKIP("shared/cases/_tiny-llama is absent");
  nn::LlamaConfig config = ilme::test::tiny_config();
  config.vocab_size = 65;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.head_dim = 8;
  config.rope_theta = 500000.0;
  config.rope_scaling = {nn::RopeScaling::Type::llama3, 32.0, 1.0, 4.0, 8192};
  nn::Llama<ops::Fused> model(config);
  const ilme::io::SafetensorsFile weights(*folder / "model.safetensors"), check(*folder / "check.safetensors");
  {
    const at::NoGradGuard no_gradient;
    for (auto& item : model.named_parameters()) item.value().copy_(weights.tensor(item.key()));
  }
  const at::Tensor ids = check.tensor("input_ids").flatten();
  CHECK(max_difference(logits(model, {{ids.data_ptr<std::int64_t>(), ids.data_ptr<std::int64_t>() + 8}}),
                       check.tensor("logits")) < 1e-4);
  const auto packed = ilme::test::shared_path("cases/packing-equals-separate/expected.safetensors");
  REQUIRE(packed);
  const std::vector<std::vector<std::int64_t>> documents{
      {1, 5, 9, 33, 64, 2}, {1, 17, 40, 2}, {1, 7, 7, 7, 7, 7, 12, 2}};
  CHECK(max_difference(logits(model, documents), ilme::io::SafetensorsFile(*packed).tensor("logits")) < 1e-4);
  const auto batch = batch_of(documents);
  const auto loss = ops::linear_cross_entropy(model.hidden(batch), model.lm_head_weight(), batch.labels);
  CHECK(loss.tokens == 15);
  CHECK(loss.sum.item<double>() / 15 == Catch::Approx(4.891548836703975).margin(1e-5));
}

TEMPLATE_TEST_CASE("checkpointed activations change no gradient", "", ops::Reference, ops::Fused) {
  const auto run = [](nn::ActivationCheckpointing kind, bool dropout) {
    using Model = ilme::lora::LoraLlama<TestType>;
    Model model(ilme::test::tiny_config(/*tied=*/true));
    ilme::test::fill_by_formula(model);
    if (dropout) {
      ilme::lora::AdapterConfig config;
      config.rank = 2;
      config.dropout = 0.4;
      config.target_pattern = "all-linear";
      ilme::lora::attach_adapters(model, config, /*seed=*/3);
      for (auto& item : model.named_parameters()) {
        if (item.key().find("lora_B") == std::string::npos) continue;
        const at::NoGradGuard no_gradient;
        item.value().copy_(ilme::test::random(item.value().sizes(), at::kFloat));
      }
    }
    model.set_activation_checkpointing(kind);
    at::manual_seed(11);
    const at::Tensor hidden = model.hidden(batch_of({kIds, {4, 4, 8}}));  // the batch is gone before the backward
    hidden.pow(3).sum().backward();
    std::vector<at::Tensor> results{hidden.detach()};
    for (const auto& item : model.named_parameters()) {
      if (item.value().requires_grad()) results.push_back(item.value().grad());
    }
    return results;
  };
  for (const bool dropout : {false, true}) {
    const auto expected = run(nn::ActivationCheckpointing::none, dropout);
    REQUIRE(expected.size() > 8);
    for (const auto kind : {nn::ActivationCheckpointing::block, nn::ActivationCheckpointing::selective}) {
      const auto got = run(kind, dropout);
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        CAPTURE(dropout, static_cast<int>(kind), i);
        REQUIRE(got[i].defined());
        CHECK(max_difference(got[i], expected[i]) <=
              (kind == nn::ActivationCheckpointing::block
                   ? 0.0
                   : 1e-4 * (1 + expected[i].abs().max().template item<double>())));
      }
    }
  }
}
