#include "support/tiny_llama.hpp"

#include <stdexcept>

#include <ilme/checkpoint/model_export.hpp>
#include <ilme/dist/thread_ranks.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;
using dist::World;

namespace {

io::NamedTensors weights() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const auto random = [&](std::vector<std::int64_t> shape) { return at::randn(shape, generator); };
  return {{"model.embed_tokens.weight", random({23, 16})},
          {"model.layers.0.mlp.up_proj.weight", random({20, 16})},
          {"model.layers.0.mlp.lora_A.weight", random({2, 16})},
          {"model.norm.weight", random({16})},
          {"lm_head.weight", random({23, 16})}};
}

/// This rank's parts, cut in the middle of rows; with two ranks to a part when `replicas`.
checkpoint::Slices slices(const World& world, bool replicas = false) {
  const int rank = replicas ? world.rank / 2 : world.rank, size = replicas ? world.size / 2 : world.size;
  checkpoint::Slices parts;
  for (const auto& [name, tensor] : weights()) {
    const std::int64_t begin = tensor.numel() * rank / size, end = tensor.numel() * (rank + 1) / size;
    parts.push_back({name, tensor.flatten().slice(0, begin, end), tensor.sizes().vec(), begin});
  }
  return parts;
}

/// Every file's bytes by name.
std::map<std::string, std::string> contents(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_file(entry.path());
  }
  return files;
}

}  // namespace

TEST_CASE("ranks write the model folder that one process writes, byte for byte") {
  test::TemporaryFolder folder;
  write_file(folder / "tokenizer/tokenizer.json", "{}\n");
  io::NamedTensors plain = weights();
  plain.erase(plain.begin() + 2);  // the adapter
  for (const at::ScalarType dtype : {torch::kBFloat16, torch::kFloat}) {
    for (const std::uint64_t most : {std::uint64_t{1500}, hf::kMaxShardSize}) {
      const hf::SaveOptions options{.source = {}, .max_shard_size = most};
      const auto whole = folder / "whole";
      hf::save_weights(plain, whole, dtype, most);
      hf::detail::write_side_files(test::tiny_config(), whole, dtype, folder / "tokenizer", options);
      const auto expected = contents(whole);
      CHECK(expected.contains("model.safetensors.index.json") == (most == 1500));
      for (const int ranks : {1, 2, 3, 4}) {
        CAPTURE(dtype, most, ranks);
        const auto made = folder / "made";
        dist::run_ranks(ranks, [&](const World& world) {
          checkpoint::save_model(slices(world, ranks == 4), test::tiny_config(), made, dtype, folder / "tokenizer",
                                 world.all, options);
        });
        CHECK((contents(made) == expected));                // in brackets: not printed
        if (ranks == 2) std::filesystem::remove_all(made);  // now and then into a folder that has a model
      }
      std::filesystem::remove_all(whole);
    }
  }
}

TEST_CASE("a rank that cannot write leaves the older model") {
  test::TemporaryFolder folder;
  const auto made = folder / "made";
  write_file(made / "notes.txt", "mine");
  const auto save = [&](const World& world, const checkpoint::Slices& parts) {
    checkpoint::save_model(parts, test::tiny_config(), made, torch::kFloat, folder.path(), world.all);
  };
  dist::run_ranks(2, [&](const World& world) { save(world, slices(world)); });
  const auto before = contents(made);
  CHECK(before.contains("notes.txt"));
  dist::run_ranks(2, [&](const World& world) {
    checkpoint::Slices parts = slices(world);
    // Storage that is gone: reading it throws.
    if (world.rank == 1) {
      parts[0].tensor = torch::empty({parts[0].tensor.numel()}, torch::device(torch::kMeta));
    }
    try {
      save(world, parts);
    } catch (const RunError& error) {
      if (std::string(error.what()).find("(rank 1)") != std::string::npos) return;
      throw;
    }
    throw std::logic_error("no error");
  });
  CHECK((contents(made) == before));
  write_file(folder / "file", "");
  CHECK_THROWS_WITH(
      checkpoint::save_model(slices({}), test::tiny_config(), folder / "file", torch::kFloat, folder.path(), {}),
      ContainsSubstring("is a file, expected a folder"));
}
