#include "support/tiny_llama.hpp"

#include "support/temporary.hpp"

#include <ilme/core/json.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/ops/linear_cross_entropy.hpp>

using namespace ilme;
using Catch::Matchers::ContainsSubstring;

namespace {

/// As test::fill_by_formula, with matrices twice as large: attention is then far from uniform.
void fill_strongly(torch::nn::Module& model) {
  test::fill_by_formula(model);
  const at::NoGradGuard no_gradient;
  for (auto& weight : model.parameters()) {
    if (weight.dim() == 2) weight.mul_(2);
  }
}

double difference(const at::Tensor& found, const Json& expected) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest =
        std::max(largest, std::abs(found[static_cast<std::int64_t>(i)].item<double>() - expected[i].get<double>()));
  }
  return largest;
}

}  // namespace

// tests/references/architectures_reference.py: transformers 5.24.0, fp32, 40 tokens where the models are meant for 16.
TEST_CASE("every architecture, bias and rotary type computes what Transformers computes") {
  const Json fixture = read_json(ILME_SOURCE_DIR "/tests/hf/fixtures/architectures.json");
  const auto ids = fixture["ids"].get<std::vector<std::int64_t>>();
  for (const Json& entry : fixture["cases"]) {
    CAPTURE(entry["name"].get<std::string>());
    test::TemporaryFolder source, folder;
    write_json(source / "config.json", entry["config"]);
    const nn::LlamaConfig config = hf::read_config(source.path());
    nn::Llama<ops::Fused> model(config);
    fill_strongly(model);
    const auto batch = test::batch_of({ids});
    if (config.sliding_window > 0 && config.sliding_window < 40) {
      CHECK_THROWS_WITH(model.hidden(batch), ContainsSubstring("sliding_window"));
      continue;
    }
    const at::Tensor hidden = model.hidden(batch);
    const at::Tensor logits = at::matmul(hidden[0].detach(), model.lm_head_weight().detach().t());
    CHECK(difference(logits[-1], entry["logits"]) < 1e-4);
    CHECK(difference(logits[20], entry["middle_logits"]) < 1e-4);
    const auto loss = ops::linear_cross_entropy(hidden, model.lm_head_weight(), batch.labels);
    const at::Tensor mean = loss.sum / static_cast<double>(loss.tokens);
    CHECK(mean.item<double>() == Catch::Approx(entry["loss"].get<double>()).margin(1e-5));
    mean.backward();
    const auto parameters = model.named_parameters();
    for (const auto& [name, norm] : entry["gradient_norms"].items()) {
      CAPTURE(name);
      CHECK(parameters[name].grad().norm().item<double>() ==
            Catch::Approx(norm.get<double>()).epsilon(2e-4).margin(2e-6));
    }

    // In a generation the cached keys keep the angles that they got: with `dynamic` only one pass is the same.
    if (config.rope_scaling.type != nn::RopeScaling::Type::dynamic) {
      const at::NoGradGuard no_gradient;
      nn::KvCache cache(config.num_hidden_layers);
      const at::Tensor row = at::tensor(ids, at::kLong).unsqueeze(0);
      model.hidden(row.narrow(1, 0, 25), cache);
      const at::Tensor rest = model.hidden(row.narrow(1, 25, 15), cache);
      CHECK((rest[0] - hidden.detach()[0].narrow(0, 25, 15)).abs().max().item<double>() < 1e-4);
    }

    // Saved as we save it, it is the same model.
    hf::save_model(model, folder / "model", at::kFloat, source.path(),
                   {.source = source.path(), .max_shard_size = 2000});
    CHECK(hf::read_config(folder / "model") == config);
    const auto again = hf::load_model<nn::Llama<ops::Fused>>(folder / "model", at::kFloat);
    for (const auto& item : again->named_parameters()) CHECK(at::equal(item.value(), parameters[item.key()]));
  }
}

TEST_CASE("dynamic: a document's frequencies depend on its own length alone") {
  nn::LlamaConfig config = test::tiny_config();
  config.max_position_embeddings = 4;
  config.rope_scaling = {nn::RopeScaling::Type::dynamic, 2.0};
  nn::Llama<ops::Fused> model(config);
  fill_strongly(model);
  const at::NoGradGuard no_gradient;
  const std::vector<std::int64_t> longer{1, 5, 9, 11, 20, 2, 7, 8}, shorter{1, 17, 4};
  const at::Tensor both = model.hidden(test::batch_of({longer, shorter}))[0];
  CHECK((both.narrow(0, 0, 8) - model.hidden(test::batch_of({longer}))[0]).abs().max().item<double>() < 1e-5);
  CHECK((both.narrow(0, 8, 3) - model.hidden(test::batch_of({shorter}))[0]).abs().max().item<double>() < 1e-5);
  nn::KvCache cache(2);
  const at::Tensor row = at::tensor(longer, at::kLong).unsqueeze(0);
  CHECK((model.hidden(row, cache)[0] - both.narrow(0, 0, 8)).abs().max().item<double>() < 1e-5);
}

// tests/references/folder_reference.py: bf16 in shards, rotary parameters and data type as each version writes them.
TEST_CASE("a folder of Transformers 4 or 5 is read, and written again with the same tensors and settings") {
  for (const char* version : {"transformers4", "transformers5"}) {
    CAPTURE(version);
    const std::filesystem::path source = std::filesystem::path(ILME_SOURCE_DIR) / "tests/hf/fixtures" / version;
    const auto model = hf::load_model<nn::Llama<ops::Fused>>(source, at::kBFloat16);
    CHECK(model->config().rope_scaling.type == nn::RopeScaling::Type::llama3);
    CHECK(model->config().rope_theta == 500.0);
    CHECK(model->config().eos_token_ids == std::vector<std::int64_t>{1, 2});

    const at::NoGradGuard no_gradient;
    const auto exact = hf::load_model<nn::Llama<ops::Fused>>(source, at::kFloat);
    const Json expected = read_json(source / "expected.json");
    const auto batch = test::batch_of({expected["ids"].get<std::vector<std::int64_t>>()});
    CHECK(difference(at::matmul(exact->hidden(batch)[0], exact->lm_head_weight().t())[-1], expected["logits"]) < 1e-4);

    test::TemporaryFolder folder;
    hf::save_model(*model, folder / "model", at::kBFloat16, source, {.source = source, .max_shard_size = 700});
    const hf::WeightFiles before(source), after(folder / "model");
    CHECK(after.names().size() == before.names().size());
    CHECK_FALSE(after.contains("lm_head.weight"));
    for (const std::string& name : before.names()) {
      CAPTURE(name);
      CHECK(after.entry(name).dtype == "BF16");
      CHECK(at::equal(after.tensor(name).view(at::kShort), before.tensor(name).view(at::kShort)));
    }
    CHECK(hf::read_config(folder / "model") == model->config());
    CHECK(read_json(folder / "model" / "config.json")["my_key"] == "kept");
    Json generation = read_json(folder / "model" / "generation_config.json");
    CHECK(generation["top_p"] == 0.9);
    CHECK(generation["temperature"] == 0.6);
  }
}
