#include "support/tiny_llama.hpp"

#include "dist/rank_rows.hpp"
#include "support/gradients.hpp"

#include <mutex>

#include <ilme/dist/fully_sharded.hpp>
#include <ilme/dist/thread_ranks.hpp>
#include <ilme/lora/adapters.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/train/trainer.hpp>

using namespace ilme;

namespace {

constexpr std::int64_t kRows = 12, kSteps = 50;

template <class Ops = ops::Fused, class LinearType = nn::Linear>
using Model = dist::FullySharded<nn::Llama<Ops, LinearType, dist::FullySharded>>;
using LoraModel = Model<ops::Fused, lora::Lora<nn::Linear>>;

struct Setting {
  int ranks = 1;
  dist::ShardKind kind = dist::ShardKind::full;
  std::int64_t accumulate = 1;
  nn::ActivationCheckpointing checkpointing = nn::ActivationCheckpointing::none;
  bool tied = true, lora = false;
  dist::ShardingOptions options = {};
  at::ScalarType dtype = at::kFloat;
};

struct Curve {
  std::vector<double> losses, norms;
  io::NamedTensors parameters;  // at the end
  dist::ShardingMemory memory = {};
};

template <class M>
void make_adapters(M& model) {
  lora::AdapterConfig config;
  config.rank = 4;
  config.alpha = 8;
  config.target_modules = {"q_proj", "v_proj", "down_proj"};
  lora::attach_adapters(model, config, /*seed=*/3);
  for (const auto& item : model.named_parameters()) {
    const at::NoGradGuard no_gradient;
    if (item.key().find("lora_B") != std::string::npos) {
      item.value().copy_(0.1 * test::random(item.value().sizes(), at::kFloat, item.value().numel()));
    }
  }
}

/// Trains a model of type M over the ranks of `world`.
template <class M>
Curve train(dist::World& world, const Setting& setting) {
  M model(test::tiny_config(setting.tied), setting.dtype);
  test::fill_by_formula(model);
  if constexpr (std::is_same_v<M, LoraModel>) make_adapters(model);
  model.set_activation_checkpointing(setting.checkpointing);
  std::vector<optim::ParameterSlice> slices = optim::whole_slices(optim::trainable_parameters(model));
  Curve curve;
  if (world.size > 1 || setting.kind == dist::ShardKind::none) {
    if (setting.kind == dist::ShardKind::hybrid) world.local_size = 2;  // two hosts
    dist::fully_shard(model, dist::make_mesh(world, setting.kind), setting.options);
    slices = model.sharding()->trainable_slices();
    curve.memory = model.sharding()->memory();
  }
  optim::AdamW optimizer(slices);
  test::RankRows source(kRows, world.rank, world.size, setting.accumulate);
  train::Trainer trainer(model, loss::LinearCrossEntropy{}, optimizer, source,
                         {.total_steps = kSteps,
                          .accumulate = setting.accumulate,
                          .max_grad_norm = 0.5,
                          .learning_rate = [](std::int64_t) { return 1e-3; }});
  while (trainer.step() < kSteps) {
    const auto report = trainer.train_step();
    curve.losses.push_back(report.loss);
    curve.norms.push_back(report.grad_norm);
  }
  if (model.sharding() == nullptr) {
    for (const auto& item : model.named_parameters()) curve.parameters.emplace_back(item.key(), item.value().detach());
  } else {
    model.sharding()->for_each_parameter([&](const std::string& name, const at::Tensor& whole) {
      curve.parameters.emplace_back(name, whole.detach().clone());
    });
  }
  return curve;
}

Curve train(dist::World& world, const Setting& setting) {
  return setting.lora ? train<LoraModel>(world, setting) : train<Model<>>(world, setting);
}

/// Every rank's curve must be the same; returns the first's.
Curve train(const Setting& setting) {
  std::vector<Curve> curves(static_cast<std::size_t>(setting.ranks));
  dist::run_ranks(setting.ranks,
                  [&](dist::World& world) { curves[static_cast<std::size_t>(world.rank)] = train(world, setting); });
  for (const Curve& curve : curves) {
    CHECK(curve.losses == curves[0].losses);
    CHECK(curve.norms == curves[0].norms);
  }
  return curves[0];
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

void compare(const Setting& setting) {
  CAPTURE(setting.ranks, static_cast<int>(setting.kind), setting.accumulate, static_cast<int>(setting.checkpointing),
          setting.tied, setting.lora, setting.options.reshard_after_forward, setting.options.prefetch);
  Setting alone = setting;
  alone.ranks = 1;
  alone.kind = dist::ShardKind::full;
  const Curve one = train(alone), many = train(setting);
  CHECK(one.losses.back() < one.losses.front());
  CHECK(largest_difference(one.losses, many.losses) < 1e-5);
  CHECK(largest_difference(one.norms, many.norms) < 1e-4);
  CHECK(one.parameters.size() == many.parameters.size());
  for (const auto& [name, whole] : many.parameters) {
    CAPTURE(name);
    const auto found = std::find_if(one.parameters.begin(), one.parameters.end(),
                                    [&, n = name](const auto& p) { return p.first == n; });
    REQUIRE(found != one.parameters.end());
    CHECK(test::max_difference(found->second, whole) < 1e-4);
  }
}

}  // namespace

static_assert(nn::CausalModel<Model<>>);
static_assert(nn::ShardableModel<Model<>>);

TEST_CASE("1 to 4 ranks have the loss curve of one process") {
  for (const int ranks : {1, 2, 3, 4}) compare({.ranks = ranks});
  compare({.ranks = 3, .tied = false});
}

TEST_CASE("sharded training with adapters on a frozen base has the curve of one process") {
  for (const int ranks : {2, 3, 4}) compare({.ranks = ranks, .lora = true});
}

TEST_CASE("accumulation, checkpointing and both have the curve of one process, full and LoRA") {
  using nn::ActivationCheckpointing;
  const bool lora = GENERATE(false, true);
  compare({.ranks = 2, .accumulate = 3, .lora = lora});
  compare({.ranks = 3, .checkpointing = ActivationCheckpointing::block, .lora = lora});
  compare({.ranks = 2, .accumulate = 2, .checkpointing = ActivationCheckpointing::selective, .lora = lora});
}

TEST_CASE("copies of the model, whole or sharded, have the curve of one process") {
  using dist::ShardKind;
  for (const int ranks : {1, 2, 3}) compare({.ranks = ranks, .kind = ShardKind::none});
  compare({.ranks = 2, .kind = ShardKind::none, .accumulate = 2, .lora = true});
  compare({.ranks = 4, .kind = ShardKind::hybrid});
  compare({.ranks = 4, .kind = ShardKind::hybrid, .accumulate = 3, .lora = true});
}

TEST_CASE("parts that stay unsharded until the backward, and no prefetch, change nothing") {
  compare({.ranks = 2, .accumulate = 2, .options = {.reshard_after_forward = false}});
  compare({.ranks = 2, .options = {.prefetch = false}});
}
