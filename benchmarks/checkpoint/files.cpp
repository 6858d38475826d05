// Writing and reading weights and checkpoints. Writing ends when the data is on the disk (fsync). Reading finds the
// file in the system's page cache: it measures our work and not the disk. Files go to the folder for temporary files
// (TMPDIR). Beside them a plain copy of the same bytes in memory.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include <stdlib.h>

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <ilme/checkpoint/background_saver.hpp>
#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/core/error.hpp>
#include <ilme/io/safetensors.hpp>
#include <ilme/optim/parameter_slice.hpp>

namespace {

using namespace ilme;

/// A fresh folder, removed with all it holds.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ilme-benchmark-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw RunError("cannot create a temporary folder ", name);
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Matrices [1024, 1024] of the type, `mebibytes` in all.
io::NamedTensors matrices(std::int64_t mebibytes, at::ScalarType type) {
  io::NamedTensors tensors;
  const auto each = static_cast<std::int64_t>(c10::elementSize(type));
  for (std::int64_t i = 0; i * each < mebibytes; ++i) {
    tensors.emplace_back("layers." + std::to_string(i) + ".weight", at::randn({1024, 1024}).to(type));
  }
  return tensors;
}

/// Model and optimizer of a training in bf16 with float32 masters: 2 + 4 + 4 + 4 bytes a parameter.
checkpoint::Contents training_state(std::int64_t mebibytes) {
  checkpoint::Contents contents;
  contents.files["model"] = optim::whole_slices(matrices(mebibytes / 7, at::kBFloat16));
  contents.files["optimizer"] = optim::whole_slices(matrices(mebibytes * 6 / 7, at::kFloat));
  contents.state = {{"step", 1}};
  return contents;
}

std::int64_t bytes_of(const io::NamedTensors& tensors) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

std::int64_t bytes_of(const checkpoint::Contents& contents) {
  std::int64_t bytes = 0;
  for (const auto& [group, slices] : contents.files) {
    for (const auto& slice : slices) bytes += static_cast<std::int64_t>(slice.tensor.nbytes());
  }
  return bytes;
}

void copy(benchmark::State& state) {
  const io::NamedTensors tensors = matrices(state.range(0), at::kBFloat16),
                         copies = matrices(state.range(0), at::kBFloat16);
  for (auto _ : state) {
    for (std::size_t i = 0; i < tensors.size(); ++i) copies[i].second.copy_(tensors[i].second);
  }
  state.SetBytesProcessed(state.iterations() * bytes_of(tensors));
}

/// Argument 1: dtype of the tensors, written as bf16 (0: they are bf16, 1: float32, which is rounded on the way).
void write_safetensors(benchmark::State& state) {
  const Folder folder;
  const io::NamedTensors tensors = matrices(state.range(0), state.range(1) == 0 ? at::kBFloat16 : at::kFloat);
  for (auto _ : state) io::save_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}}, at::kBFloat16);
  state.SetBytesProcessed(state.iterations() * bytes_of(tensors));
}

/// Argument 1: dtype of what the file's bf16 is copied to (0: bf16, 1: float32).
void read_safetensors(benchmark::State& state) {
  const Folder folder;
  const io::NamedTensors tensors = matrices(state.range(0), at::kBFloat16);
  io::save_safetensors(folder / "model.safetensors", tensors);
  io::NamedTensors targets;
  for (const auto& [name, tensor] : tensors) {
    targets.emplace_back(name, at::empty_like(tensor, state.range(1) == 0 ? at::kBFloat16 : at::kFloat));
  }
  for (auto _ : state) {
    const io::SafetensorsFile file(folder / "model.safetensors");
    for (const auto& [name, target] : targets) file.copy_to(name, target);
  }
  state.SetBytesProcessed(state.iterations() * bytes_of(tensors));
}

void save_checkpoint(benchmark::State& state) {
  const Folder folder;
  const checkpoint::Contents contents = training_state(state.range(0));
  checkpoint::CheckpointStore store(folder / "checkpoints", /*keep_last=*/1);
  std::int64_t step = 0;
  for (auto _ : state) store.save(++step, contents);
  state.SetBytesProcessed(state.iterations() * bytes_of(contents));
}

/// How long a step is held up by a save. Argument 1: whether it goes on in the background, from copies.
void hold_up(benchmark::State& state) {
  const Folder folder;
  const checkpoint::Contents contents = training_state(state.range(0));
  checkpoint::CheckpointStore store(folder / "checkpoints", /*keep_last=*/1);
  checkpoint::BackgroundSaver saver(
      store, state.range(1) == 0 ? checkpoint::Background::never : checkpoint::Background::always);
  std::int64_t step = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    saver.save(++step, contents);
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    saver.wait();
  }
  state.SetBytesProcessed(state.iterations() * bytes_of(contents));
}

/// With the checksums verified.
void load_checkpoint(benchmark::State& state) {
  const Folder folder;
  const checkpoint::Contents contents = training_state(state.range(0));
  checkpoint::CheckpointStore store(folder / "checkpoints");
  store.save(1, contents);
  for (auto _ : state) {
    const auto loaded = store.load_latest(nullptr);
    for (const auto& [group, slices] : contents.files) {
      for (const auto& slice : slices) loaded->file(group).copy_to(slice.name, slice.tensor);
    }
  }
  state.SetBytesProcessed(state.iterations() * bytes_of(contents));
}

void shape(benchmark::internal::Benchmark* benchmark) { benchmark->UseRealTime()->Unit(benchmark::kMillisecond); }

BENCHMARK(copy)->Apply(shape)->ArgName("MiB")->Arg(256);
BENCHMARK(write_safetensors)->Apply(shape)->ArgNames({"MiB", "float32"})->Args({256, 0})->Args({256, 1});
BENCHMARK(read_safetensors)->Apply(shape)->ArgNames({"MiB", "float32"})->Args({256, 0})->Args({256, 1});
BENCHMARK(save_checkpoint)->Apply(shape)->ArgName("MiB")->Arg(448);
BENCHMARK(hold_up)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->ArgNames({"MiB", "background"})
    ->Args({448, 0})
    ->Args({448, 1});
BENCHMARK(load_checkpoint)->Apply(shape)->ArgName("MiB")->Arg(448);

}  // namespace

BENCHMARK_MAIN();
