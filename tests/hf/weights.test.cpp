#include "support/catch_torch.hpp"

#include <ilme/hf/config.hpp>
#include <ilme/hf/weights.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;

namespace {

/// model.embed_tokens.weight [5, 3], model.norm.weight [3], and, untied, lm_head.weight [5, 3]; lora: an adapter too.
struct TinyModel : torch::nn::Module {
  struct Inner : torch::nn::Module {
    Inner() {
      register_module("embed_tokens", torch::nn::Embedding(5, 3));
      auto norm = std::make_shared<torch::nn::Module>();
      norm->register_parameter("weight", torch::randn({3}));
      register_module("norm", norm);
    }
  };
  explicit TinyModel(bool tied, bool lora = false) {
    register_module("model", std::make_shared<Inner>());
    if (!tied) register_module("lm_head", torch::nn::Linear(torch::nn::LinearOptions(3, 5).bias(false)));
    if (lora) register_module("lora_A", torch::nn::Linear(3, 2));
  }
};

at::Tensor parameter(const torch::nn::Module& module, const std::string& name) {
  return module.named_parameters()[name];
}

}  // namespace

TEST_CASE("weights: a saved model loads into another one, in any floating-point type") {
  test::TemporaryFolder folder;
  TinyModel saved(false, true), loaded(false, true);
  hf::save_parameters(saved, folder.path(), torch::kBFloat16);
  const hf::WeightFiles files(folder.path());
  CHECK(files.names().size() == 3);
  CHECK(files.entry("lm_head.weight").dtype == "BF16");
  hf::load_parameters(loaded, files);
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}) {
    CHECK(torch::equal(parameter(loaded, name), parameter(saved, name).to(torch::kBFloat16).to(torch::kFloat)));
    CHECK(parameter(loaded, name).requires_grad());
  }
  CHECK_THROWS_WITH(files.tensor("absent"), ContainsSubstring("absent"));
}

TEST_CASE("weights: shards with an index") {
  test::TemporaryFolder folder;
  TinyModel saved(false), loaded(false);
  hf::save_parameters(saved, folder.path(), torch::kFloat);
  hf::save_parameters(saved, folder.path(), torch::kFloat, 61);
  CHECK_FALSE(std::filesystem::exists(folder / "model.safetensors"));
  CHECK(std::filesystem::exists(folder / "model-00003-of-00003.safetensors"));
  hf::load_parameters(loaded, hf::WeightFiles(folder.path()));
  CHECK(torch::equal(parameter(loaded, "lm_head.weight"), parameter(saved, "lm_head.weight")));
  const Json index = read_json(folder / "model.safetensors.index.json");
  CHECK(index["metadata"]["total_size"] == (15 + 3 + 15) * 4);

  const auto with_map = [&](const std::string& name, const Json& file) {
    Json changed = index;
    changed["weight_map"][name] = file;
    write_json(folder / "model.safetensors.index.json", changed);
    return [&] { hf::WeightFiles files(folder.path()); };
  };
  CHECK_THROWS_WITH(with_map("more", "model-00001-of-00003.safetensors")(), ContainsSubstring("\"more\" is not in"));
  CHECK_THROWS_WITH(with_map("more", "gone.safetensors")(), ContainsSubstring("gone.safetensors is missing"));
  CHECK_THROWS_WITH(with_map("more", "../x.safetensors")(), ContainsSubstring("not a file name"));
  CHECK_THROWS_WITH(with_map("more", 3)(), ContainsSubstring("not a file name"));
  std::filesystem::copy(folder / "model-00001-of-00003.safetensors", folder / "copy.safetensors");
  CHECK_THROWS_WITH(with_map("more", "copy.safetensors")(), ContainsSubstring("is also in"));
  std::filesystem::remove(folder / "copy.safetensors");
  std::filesystem::copy_file(folder / "model-00003-of-00003.safetensors", folder / "model-00004-of-00004.safetensors");
  CHECK_THROWS_WITH(with_map("more", "model-00001-of-00003.safetensors")(),
                    ContainsSubstring("model-00004-of-00004.safetensors"));
  write_json(folder / "model.safetensors.index.json", Json::object());
  CHECK_THROWS_WITH(hf::WeightFiles(folder.path()), ContainsSubstring("weight_map"));

  // Saving as one file again leaves nothing of the shards.
  hf::save_parameters(saved, folder.path(), torch::kFloat);
  CHECK_FALSE(std::filesystem::exists(folder / "model.safetensors.index.json"));
  CHECK_FALSE(std::filesystem::exists(folder / "model-00001-of-00003.safetensors"));
  CHECK_NOTHROW(hf::WeightFiles(folder / "model.safetensors"));
  CHECK_THROWS_WITH(hf::WeightFiles(folder / "nowhere"), ContainsSubstring("holds neither"));
}

TEST_CASE("weights: what does not fit is listed, and nothing is changed") {
  test::TemporaryFolder folder;
  TinyModel model(false);
  const at::Tensor before = parameter(model, "model.norm.weight").clone();
  const auto load = [&](io::NamedTensors tensors) {
    io::save_safetensors(folder / "model.safetensors", tensors);
    hf::load_parameters(model, hf::WeightFiles(folder.path()));
  };
  const at::Tensor table = torch::randn({5, 3}), norm = torch::randn({3});
  const std::string embed = "model.embed_tokens.weight", norm_name = "model.norm.weight", head = "lm_head.weight";
  CHECK_THROWS_WITH(load({{norm_name, norm}, {embed, table}}), ContainsSubstring("missing tensors: lm_head.weight"));
  CHECK_THROWS_WITH(load({{norm_name, norm}, {embed, table}, {head, table}, {"extra", table}}),
                    ContainsSubstring("does not have: extra"));
  CHECK_THROWS_WITH(load({{norm_name, norm}, {embed, table}, {head, table.t()}}),
                    ContainsSubstring("lm_head.weight has shape [3,5], expected [5,3]"));
  CHECK_THROWS_WITH(load({{norm_name, norm}, {embed, table}, {head, table.to(torch::kChar)}}),
                    ContainsSubstring("dtype I8"));
  CHECK(torch::equal(parameter(model, norm_name), before));
  CHECK_NOTHROW(load({{norm_name, norm},
                      {embed, table},
                      {head, table.to(torch::kHalf)},
                      {"model.layers.0.self_attn.rotary_emb.inv_freq", norm}}));
  CHECK(torch::equal(parameter(model, norm_name), norm));
}

TEST_CASE("weights: a tied model takes a file with an equal head, not one with another") {
  test::TemporaryFolder folder;
  TinyModel model(true);
  const at::Tensor table = torch::randn({5, 3});
  io::NamedTensors tensors{{"model.embed_tokens.weight", table}, {"model.norm.weight", torch::randn({3})}};
  const auto load = [&] {
    io::save_safetensors(folder / "model.safetensors", tensors);
    hf::load_parameters(model, hf::WeightFiles(folder.path()));
  };
  CHECK_NOTHROW(load());
  tensors.emplace_back("lm_head.weight", table);
  CHECK_NOTHROW(load());
  tensors.back().second = table + 1;
  CHECK_THROWS_WITH(load(), ContainsSubstring("tie_word_embeddings"));
}

TEST_CASE("weights: other formats are named with the remedy") {
  const std::pair<const char*, const char*> cases[] = {{"consolidated.00.pth", "convert_llama_weights_to_hf"},
                                                       {"consolidated.safetensors", "Mistral"},
                                                       {"pytorch_model-00001-of-00002.bin", "save_pretrained"},
                                                       {"model.q4.gguf", "GGUF"}};
  for (const auto& [file, remedy] : cases) {
    test::TemporaryFolder folder;
    write_file(folder / file, "x");
    CHECK_THROWS_WITH(hf::WeightFiles(folder.path()), ContainsSubstring(remedy) && ContainsSubstring(file));
    CHECK_THROWS_WITH(hf::read_config(folder.path()), ContainsSubstring(remedy));
  }
  CHECK_THROWS_WITH(hf::read_config("nowhere"), ContainsSubstring("nowhere/config.json"));
}

TEST_CASE("weights: _tiny-llama's names are found") {
  const auto folder = test::shared_path("cases/_tiny-llama");
  if (!folder) SKIP("cases/_tiny-llama is absent");
  const hf::WeightFiles files(*folder);
  CHECK(files.contains("model.layers.1.mlp.down_proj.weight"));
  CHECK_FALSE(files.contains("lm_head.weight"));
  CHECK(files.entry("model.embed_tokens.weight").shape == std::vector<std::int64_t>{65, 32});
}
