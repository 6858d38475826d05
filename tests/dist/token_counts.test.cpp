#include "support/catch_torch.hpp"

#include "support/gradients.hpp"
#include "support/temporary.hpp"

#include <torch/nn/module.h>

#include <ilme/data/batch.hpp>
#include <ilme/dist/fully_sharded.hpp>
#include <ilme/dist/thread_ranks.hpp>
#include <ilme/io/safetensors.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/train/trainer.hpp>

using namespace ilme;

namespace {

/// The inputs of case ce-accum-tokens, or others of their shape: 24 tokens, of which 7, 1 and 0 of each 8 count.
struct Inputs {
  at::Tensor hidden, weight, targets;

  Inputs() {
    if (const auto folder = test::shared_path("cases/ce-accum-tokens")) {
      const io::SafetensorsFile file(*folder / "in.safetensors");
      hidden = file.tensor("hidden").to(at::kFloat).clone();
      weight = file.tensor("weight").to(at::kFloat).clone();
      targets = file.tensor("targets").to(at::kLong).clone();
    } else {
      hidden = test::random({24, 6}, at::kFloat);
      weight = test::random({11, 6}, at::kFloat, 2);
      targets = at::arange(24).remainder(11);
      targets.slice(0, 7, 23).fill_(data::kIgnoredLabel);
    }
  }
};

/// A model whose hidden states are parameters: token id t has row t.
struct RowsModelImpl : torch::nn::Module {
  explicit RowsModelImpl(const Inputs& inputs)
      : rows(register_parameter("rows", inputs.hidden.clone())),
        weight(register_parameter("weight", inputs.weight.clone())) {}
  at::Tensor hidden(const data::Batch& batch) { return rows.index({batch.input_ids}); }
  const at::Tensor& lm_head_weight() const { return weight; }
  at::Tensor rows, weight;
};
using RowsModel = dist::FullySharded<RowsModelImpl>;

/// Three micro-batches of 8 tokens, `rows` of them at a time, in turn or one for each of three ranks.
struct MicroBatches {
  at::Tensor targets;
  std::int64_t rows, row;

  std::optional<data::PackedBatch> next() {
    data::PackedBatch batch;
    batch.rows = rows;
    batch.sequence_length = 8;
    batch.sequence_offsets = {0};
    for (std::int64_t i = row * 8; i < (row + rows) * 8; ++i) {
      batch.input_ids.push_back(i);
      batch.labels.push_back(targets[i].item<std::int64_t>());
      batch.position_ids.push_back(i % 8);
      batch.token_count += batch.labels.back() != data::kIgnoredLabel;
      if (i % 8 == 7) batch.sequence_offsets.push_back(static_cast<std::int64_t>(batch.input_ids.size()));
    }
    row += rows;
    return batch;
  }
  Json state() const { return {}; }
  void restore(const Json&) {}
  std::int64_t batches_per_epoch() const { return 1; }
};

/// Keeps what an optimizer would update with.
struct Recorder {
  std::vector<optim::ParameterSlice> parameters;
  std::vector<at::Tensor> gradients = {};

  optim::NamedParameters named_parameters() const {
    optim::NamedParameters named;
    for (const auto& slice : parameters) named.emplace_back(slice.name, slice.tensor);
    return named;
  }
  const std::vector<optim::ParameterSlice>& slices() const { return parameters; }
  void step(std::vector<at::Tensor>& given, double, const std::optional<at::Tensor>& divisor) {
    for (const at::Tensor& gradient : given) gradients.push_back(gradient.detach().flatten() / *divisor);
  }
  optim::NamedParameters updated_parameters() const { return {}; }
  optim::NamedParameters state() const { return {}; }
  void load_state(const optim::StateReader&) {}
};

struct Result {
  double loss = 0;
  at::Tensor rows, weight;  // gradients, whole
};

/// One step with `rows` micro-batches of 8 tokens in a batch, on as many ranks as `world` has.
Result step(dist::World& world, const Inputs& inputs, std::int64_t rows, std::int64_t accumulate, double smoothing) {
  RowsModel model(inputs);
  auto slices = optim::whole_slices(optim::trainable_parameters(model));
  if (world.size > 1) {
    dist::fully_shard(model, dist::make_mesh(world, dist::ShardKind::full));
    slices = model.sharding()->trainable_slices();
  }
  MicroBatches source{inputs.targets, rows, world.rank * rows};
  Recorder recorder{slices};
  train::Trainer trainer(
      model, loss::LinearCrossEntropy{{.label_smoothing = smoothing}}, recorder, source,
      {.accumulate = accumulate, .max_grad_norm = 0, .learning_rate = [](std::int64_t) { return 1.0; }});
  Result result{trainer.train_step().loss, at::zeros_like(inputs.hidden), at::zeros_like(inputs.weight)};
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const at::Tensor whole = (slices[i].name == "rows" ? result.rows : result.weight).flatten();
    whole.narrow(0, slices[i].begin, slices[i].tensor.numel()).copy_(recorder.gradients[i]);
  }
  for (at::Tensor* part : {&result.rows, &result.weight}) world.all.all_reduce(*part).wait();
  return result;
}

}  // namespace

TEST_CASE("micro-batches with 7, 1 and 0 counted tokens are one batch, in turn or on three ranks") {
  const double smoothing = GENERATE(0.0, 0.1);
  const Inputs inputs;
  dist::World alone;
  const Result one = step(alone, inputs, 3, 1, smoothing);
  const auto compare = [&](const Result& other) {
    CHECK(other.loss == Catch::Approx(one.loss).epsilon(1e-5));
    CHECK(test::relative_error(other.rows, one.rows) <= 1e-5);
    CHECK(test::relative_error(other.weight, one.weight) <= 1e-5);
  };
  compare(step(alone, inputs, 1, 3, smoothing));
  std::vector<Result> spread(3);
  dist::run_ranks(3, [&](dist::World& world) {
    spread[static_cast<std::size_t>(world.rank)] = step(world, inputs, 1, 1, smoothing);
  });
  for (const Result& rank : spread) compare(rank);

  const auto folder = test::shared_path("cases/ce-accum-tokens");
  if (!folder) return;
  const io::SafetensorsFile expected(
      *folder / (smoothing > 0 ? "expected_grads_ls01.safetensors" : "expected_grads.safetensors"));
  compare(
      {smoothing > 0 ? 2.9973773052297905 : 2.923487328480191, expected.tensor("dhidden"), expected.tensor("dweight")});
}
