#include "support/tiny_llama.hpp"

#include "support/gradients.hpp"
#include "support/temporary.hpp"

#include <ilme/hf/model_folder.hpp>
#include <ilme/io/safetensors.hpp>
#include <ilme/lora/adapters.hpp>

using namespace ilme;
using test::max_difference;

namespace {

using Model = lora::LoraLlama<ops::Fused>;

template <class M>
at::Tensor logits(M& model, const std::vector<std::int64_t>& ids) {
  const at::NoGradGuard no_gradient;
  return at::matmul(model.hidden(test::batch_of({ids})), model.lm_head_weight().t())[0];
}

/// A folder with the tiny model, its weights by formula.
void write_base(const std::filesystem::path& folder) {
  Model model(test::tiny_config());
  test::fill_by_formula(model);
  hf::save_model(model, folder, at::kFloat, folder / "no tokenizer");
}

}  // namespace

TEST_CASE("adapters are attached by pattern, saved, loaded and merged") {
  test::TemporaryFolder folder;
  write_base(folder / "base");
  auto model = hf::load_model<Model>(folder / "base", at::kFloat);
  const std::vector<std::int64_t> ids{3, 1, 4, 1, 5, 9};
  const at::Tensor before = logits(*model, ids);

  lora::AdapterConfig config;
  config.rank = 2;
  config.alpha = 8;
  config.target_modules = {"q_proj", "down_proj"};
  config.rank_pattern = {{"layers.1.mlp.down_proj", 3}};
  CHECK(lora::attach_adapters(*model, config, 7) == 4);
  CHECK(max_difference(logits(*model, ids), before) == 0.0);
  for (const auto& item : model->named_parameters()) {
    CHECK(item.value().requires_grad() == (item.key().find(".lora_") != std::string::npos));
  }
  {
    const at::NoGradGuard no_gradient;
    for (auto& [name, tensor] : lora::adapter_parameters(*model))
      at::Tensor(tensor).copy_(test::random(tensor.sizes()) * 0.3);
  }
  const at::Tensor adapted = logits(*model, ids);
  CHECK(max_difference(adapted, before) > 1e-2);

  lora::save_adapter(folder / "adapter", config, lora::adapter_parameters(*model));
  auto loaded = lora::load_with_adapter<ops::Fused>(folder / "base", folder / "adapter", at::kFloat);
  CHECK(max_difference(logits(*loaded, ids), adapted) == 0.0);

  CHECK(lora::merge_adapters(*loaded) == 4);
  CHECK(lora::merge_adapters(*loaded) == 0);
  CHECK(max_difference(logits(*loaded, ids), adapted) < 1e-4);
  hf::save_model(*loaded, folder / "merged", at::kFloat, folder / "base");
  auto merged = hf::load_model<nn::Llama<ops::Reference>>(folder / "merged", at::kFloat);
  CHECK(max_difference(logits(*merged, ids), adapted) < 1e-4);

  config.target_modules = {"nothing"};
  auto untouched = hf::load_model<Model>(folder / "base", at::kFloat);
  CHECK_THROWS_AS(lora::attach_adapters(*untouched, config), InputError);
}

TEST_CASE("embeddings and head trained whole beside the adapters are PEFT's") {
  const bool tied = GENERATE(true, false);  // adapters and logits by tests/references/peft_embeddings.py
  const std::vector<float> expected =
      tied ? std::vector<float>{-0.1988, -1.01957, 1.39358,  -0.61349, -0.67466, 1.40409,  -0.97072, -0.26656,
                                1.28309, -1.23702, 0.16651,  1.0419,   -1.38745, 0.58398,  0.70311,  -1.40792,
                                0.94675, 0.29847,  -1.29652, 1.22085,  -0.13412, -1.06367, 1.38059}
           : std::vector<float>{-0.59243, -0.48247, 1.15781,  -0.87431, -0.13325, 1.03046,  -1.07429, 0.22844,
                                0.80659,  -1.17364, 0.56873,  0.50718,  -1.16306, 0.85576,  0.16025,  -1.04354,
                                1.06262,  -0.20169, -0.82628, 1.16996,  -0.54473, -0.53162, 1.1677};
  const auto fixture = std::filesystem::path(ILME_SOURCE_DIR) / "tests/lora/fixtures" / (tied ? "tied" : "untied");
  test::TemporaryFolder folder;
  {
    Model base(test::tiny_config(tied));
    test::fill_by_formula(base);
    hf::save_model(base, folder / "base", at::kFloat, folder / "no tokenizer");
  }
  const auto check = [&](auto& model) {
    CHECK(max_difference(logits(model, {3, 1, 4, 1, 5, 9})[-1], at::tensor(expected)) < 2e-5);
  };
  auto model = lora::load_with_adapter<ops::Fused>(folder / "base", fixture, at::kFloat);
  check(*model);
  const auto config = lora::read_adapter_config(fixture);
  const auto parameters = lora::adapter_parameters(*model, config);
  CHECK(parameters.size() == (tied ? 5 : 6));
  for (const auto& [name, parameter] : parameters) CHECK(parameter.requires_grad());

  // Written again it is PEFT's file, tensor by tensor.
  lora::save_adapter(folder / "adapter", config, parameters);
  const io::SafetensorsFile theirs(fixture / lora::kAdapterWeightsName),
      ours(folder / "adapter" / theirs.path().filename());
  CHECK(ours.names().size() == theirs.names().size());
  for (const std::string& name : theirs.names()) CHECK(at::equal(ours.tensor(name), theirs.tensor(name)));
  const Json json = read_json(folder / "adapter" / lora::kAdapterConfigName),
             peft = read_json(fixture / lora::kAdapterConfigName);
  for (const char* key : {"modules_to_save", "ensure_weight_tying"}) CHECK(json.at(key) == peft.at(key));

  lora::merge_adapters(*model);
  hf::save_model(*model, folder / "merged", at::kFloat, folder / "base");
  auto merged = hf::load_model<nn::Llama<ops::Reference>>(folder / "merged", at::kFloat);
  check(*merged);
}

TEST_CASE("whole modules that a model cannot hold are refused by name") {
  test::TemporaryFolder folder;
  write_base(folder / "base");
  const auto fixtures = std::filesystem::path(ILME_SOURCE_DIR) / "tests/lora/fixtures";
  const auto load = [&](const std::filesystem::path& adapter) {
    return lora::load_with_adapter<ops::Fused>(folder / "base", adapter, at::kFloat);
  };
  // The model ties what this adapter trained apart.
  CHECK_THROWS_WITH(load(fixtures / "untied"), Catch::Matchers::ContainsSubstring("trained apart"));
  const auto changed = [&](const char* key, const Json& value) {
    std::filesystem::remove_all(folder / "changed");
    std::filesystem::copy(fixtures / "tied", folder / "changed");
    Json json = read_json(fixtures / "tied/adapter_config.json");
    json[key] = value;
    write_json(folder / "changed/adapter_config.json", json);
    return folder / "changed";
  };
  CHECK_THROWS_WITH(load(changed("modules_to_save", {"norm"})), Catch::Matchers::ContainsSubstring("\"norm\""));
  CHECK_THROWS_WITH(load(changed("modules_to_save", nullptr)), Catch::Matchers::ContainsSubstring("modules_to_save"));
  CHECK_THROWS_WITH(load(changed("modules_to_save", {"lm_head"})), Catch::Matchers::ContainsSubstring("lm_head"));
}

TEST_CASE("a model is saved beside other files without touching them, and never over a file") {
  test::TemporaryFolder folder;
  write_file(folder / "run" / "metrics.jsonl", "{}\n");
  write_base(folder / "run");
  CHECK(read_file(folder / "run" / "metrics.jsonl") == "{}\n");
  CHECK_NOTHROW(hf::load_model<Model>(folder / "run", at::kBFloat16));
  write_file(folder / "file", "x");
  CHECK_THROWS_AS(write_base(folder / "file"), InputError);
  CHECK(read_file(folder / "file") == "x");
}

TEST_CASE("adapters that PEFT wrote give its logits, others are refused: case lora-patterns") {
  const auto folder = test::shared_path("cases/lora-patterns");
  if (!folder) SKIP("shared/cases/lora-patterns is absent");
  const auto base = *folder / "../_tiny-llama";
  const at::Tensor ids = io::SafetensorsFile(*folder / "in.safetensors").tensor("input_ids");
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (!entry.is_directory()) continue;
    INFO(entry.path());
    if (entry.path().filename().string().starts_with("refuse_")) {
      CHECK_THROWS_AS(lora::load_with_adapter<ops::Fused>(base, entry.path(), at::kFloat), InputError);
      continue;
    }
    auto model = lora::load_with_adapter<ops::Fused>(base, entry.path(), at::kFloat);
    const auto expected = entry.path() / "expected_logits.safetensors";
    if (!std::filesystem::exists(expected)) continue;
    const io::SafetensorsFile file(expected);
    const at::Tensor values = file.tensor(file.names().front());
    for (std::int64_t row = 0; row < ids.size(0); ++row) {
      const auto* data = ids.const_data_ptr<std::int64_t>() + row * ids.size(1);
      CHECK(max_difference(logits(*model, {data, data + ids.size(1)}),
                           values.view({ids.size(0), ids.size(1), -1})[row]) < 1e-4);
    }
    ++compared;
  }
  CHECK(compared == 6);
}
