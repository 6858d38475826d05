#include "support/tiny_llama.hpp"

#include "support/gradients.hpp"
#include "support/temporary.hpp"

#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include <ilme/checkpoint/model_export.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/batched.hpp>
#include <ilme/data/collate.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/token_documents.hpp>
#include <ilme/dist/connect.hpp>
#include <ilme/dist/fully_sharded.hpp>
#include <ilme/dist/load_model.hpp>
#include <ilme/dist/thread_ranks.hpp>
#include <ilme/evaluate/likelihood.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/lora/adapters.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/ops/linear_cross_entropy.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/schedule.hpp>
#include <ilme/train/trainer.hpp>

using namespace ilme;

namespace {

using Model = dist::FullySharded<nn::Llama<ops::Fused, nn::Linear, dist::FullySharded>>;
using LoraModel = dist::FullySharded<nn::Llama<ops::Fused, lora::Lora<nn::Linear>, dist::FullySharded>>;

std::vector<std::int64_t> counting(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) ids[static_cast<std::size_t>(i)] = (first + 3 * i) % 23;
  return ids;
}

/// What parts of a user's own can look like: two layers that share their weight, and one that a rank may skip.
struct Layer : torch::nn::Module {
  explicit Layer(at::Tensor shared)
      : weight(register_parameter("weight", std::move(shared))),
        scale(register_parameter("scale", at::full({5}, 1.5, at::kDouble))) {}
  at::Tensor forward(const at::Tensor& x) { return at::tanh(at::matmul(x, weight)) * scale; }
  at::Tensor weight, scale;
};
struct Twins : torch::nn::Module {
  Twins() {
    const at::Tensor weight = test::random({5, 5}).set_requires_grad(true);
    a = register_module("a", std::make_shared<dist::FullySharded<Layer>>(weight));
    b = register_module("b", std::make_shared<dist::FullySharded<Layer>>(weight));
    unused =
        register_module("unused", std::make_shared<dist::FullySharded<Layer>>(test::random({5, 5}, at::kDouble, 2)));
  }
  at::Tensor forward(const at::Tensor& x) { return b->forward(a->forward(x)); }
  std::shared_ptr<dist::FullySharded<Layer>> a, b, unused;
};

/// The rows [begin, begin + count) of a case's ids and Transformers' labels, as a batch.
data::Batch rows_of(const at::Tensor& ids, const at::Tensor& labels, std::int64_t begin, std::int64_t count) {
  data::PackedBatch packed;
  packed.rows = count;
  packed.sequence_length = ids.size(1);
  packed.sequence_offsets.push_back(0);
  for (std::int64_t row = begin; row < begin + count; ++row) {
    for (std::int64_t t = 0; t < ids.size(1); ++t) {
      packed.input_ids.push_back(ids[row][t].item<std::int64_t>());
      packed.position_ids.push_back(t);
      packed.labels.push_back(t + 1 < ids.size(1) ? labels[row][t + 1].item<std::int64_t>() : data::kIgnoredLabel);
      packed.token_count += packed.labels.back() != data::kIgnoredLabel;
    }
    packed.sequence_offsets.push_back(packed.sequence_offsets.back() + ids.size(1));
  }
  return data::collate(packed);
}

}  // namespace

TEST_CASE("a model on the meta device is loaded slice by slice, and no rank holds it whole") {
  const test::TemporaryFolder folder;
  nn::LlamaConfig config = test::tiny_config(/*tied=*/false);
  config.num_hidden_layers = 6;
  Model whole(config);
  test::fill_by_formula(whole);
  hf::save_model(whole, folder / "model", at::kFloat, "");
  const data::Batch batch = test::batch_of({counting(1, 7), counting(5, 9)});
  const at::Tensor expected = whole.hidden(batch).detach();
  std::int64_t whole_bytes = 0;
  for (const auto& parameter : whole.parameters()) whole_bytes += static_cast<std::int64_t>(parameter.nbytes());
  for (const int ranks : {2, 3, 4}) {
    dist::run_ranks(ranks, [&](dist::World& world) {
      auto model = dist::load_model<Model>(folder / "model", at::kFloat, dist::make_mesh(world, dist::ShardKind::full),
                                           {}, [](Model&) {});
      const auto no_memory = [&] {
        for (const auto& parameter : model->parameters()) {
          if (parameter.storage().nbytes() != 0 || parameter.is_meta()) return false;
        }
        return true;
      };
      const bool sharded_at_first = no_memory();
      const at::Tensor hidden = model->hidden(batch);
      hidden.sum().backward();
      model->sharding()->gradients();
      const bool sharded_after = no_memory();
      const dist::ShardingMemory memory = model->sharding()->memory();
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      CHECK(sharded_at_first);
      CHECK(sharded_after);
      CHECK(at::equal(hidden, expected));
      const std::int64_t padding = 8 * 10 * 32 * 4;  // of a part's parameters and shards
      CHECK(memory.shards <= whole_bytes / ranks + padding);
      CHECK(memory.shards >= whole_bytes / ranks);
    });
  }
}

TEST_CASE("a sharded trainer of one's own, as the README shows it") {
  const test::TemporaryFolder temporary;
  const auto folder = temporary / "model";
  Model whole(test::tiny_config());
  test::fill_by_formula(whole);
  hf::save_model(whole, folder, at::kBFloat16, "");
  std::vector<std::vector<std::uint32_t>> rows(20, {0, 5, 8, 11, 14, 17, 20, 1});
  const data::TokenDocuments documents(rows);
  using namespace ilme;
  // README begins
  const dist::World world = dist::connect();  // the ranks that a launcher started, or this process alone
  using Model = dist::FullySharded<nn::Llama<ops::Fused, nn::Linear, dist::FullySharded>>;
  const auto mesh = dist::make_mesh(world, dist::ShardKind::full);
  auto model = dist::load_model<Model>(folder, at::kBFloat16, mesh, {.reshard_after_forward = true}, [](Model&) {});
  auto source = data::packed_rows(documents, {.sequence_length = 16}) |
                data::batched(4, {.rank = world.rank, .world = world.size});
  optim::AdamW optimizer(model->sharding()->trainable_slices());
  train::Trainer trainer(*model, loss::LinearCrossEntropy{}, optimizer, source,
                         {.total_steps = 20, .learning_rate = optim::Schedule{.peak = 1e-2, .total_steps = 20}});
  while (trainer.step() < 20) trainer.train_step();
  checkpoint::save_model(model->sharding()->slices(), model->config(), folder, at::kBFloat16, folder, world.all);
  // README ends
  CHECK(hf::load_model<Model>(folder, at::kBFloat16)->parameters().size() == whole.parameters().size());
  CHECK(trainer.train_step().loss < 2.0);  // 3.1 at first
}

TEST_CASE("ranks take turns with the batches of an evaluation") {
  const auto score = [](Model& model) {
    evaluate::LikelihoodScorer<Model> scorer(model, /*tokens_at_once=*/12);
    for (std::size_t i = 0; i < 7; ++i) scorer.add(counting(static_cast<std::int64_t>(i), 9), 1, i / 2);
    scorer.flush();
    return scorer.sums();
  };
  Model whole(test::tiny_config());
  test::fill_by_formula(whole);
  const std::vector<double> expected = score(whole);
  CHECK(expected.size() == 4);
  for (const int ranks : {2, 3, 4}) {
    dist::run_ranks(ranks, [&](dist::World& world) {
      Model model(test::tiny_config());
      test::fill_by_formula(model);
      dist::fully_shard(model, dist::make_mesh(world, dist::ShardKind::full));
      const std::vector<double> sums = score(model);
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      REQUIRE(sums.size() == expected.size());
      for (std::size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == Catch::Approx(expected[i]).epsilon(1e-6));
    });
  }
}

TEST_CASE("norms and clipping over frozen, LoRA and empty shards: fsdp-clip-frozen") {
  const auto folder = test::shared_path("cases/fsdp-clip-frozen");
  if (!folder) SKIP("shared/cases/fsdp-clip-frozen is absent");
  const Json expected = read_json(*folder / "expected.json");
  const io::SafetensorsFile input(*folder / "in.safetensors"), after(*folder / "expected_after.safetensors");
  const at::Tensor ids = input.tensor("input_ids"), labels = input.tensor("labels");
  const io::SafetensorsFile base(*folder / "../_tiny-llama/model.safetensors");
  for (const int ranks : {1, 2, 3, 4, 12}) {
    CAPTURE(ranks);
    dist::run_ranks(ranks, [&](dist::World& world) {
      const lora::AdapterConfig config = lora::read_adapter_config(*folder / "adapter");
      const auto mesh = dist::make_mesh(world, dist::ShardKind::full);
      auto llama = dist::load_model<LoraModel>(*folder / "../_tiny-llama", at::kFloat, mesh, {}, [&](LoraModel& fresh) {
        lora::attach_adapters(fresh, config);
        lora::load_adapter_tensors(*folder / "adapter", lora::adapter_parameters(fresh, config));
      });
      dist::Sharding& sharding = *llama->sharding();
      const double none = sharding.norm().item<double>();  // nothing has a gradient yet
      const std::int64_t rows = 12 / ranks;
      const data::Batch batch = rows_of(ids, labels, world.rank * rows, rows);
      const at::Tensor hidden = llama->hidden(batch);
      const ops::LossSum loss = ops::linear_cross_entropy(hidden, llama->lm_head_weight(), batch.labels);
      loss.sum.backward();
      at::Tensor sums = at::stack({loss.sum.detach().to(at::kDouble), (batch.labels >= 0).sum().to(at::kDouble)});
      world.all.all_reduce(sums).wait();
      const at::Tensor tokens = sums[1];
      const at::Tensor l2 = sharding.norm() / tokens;
      const at::Tensor largest = sharding.norm(std::numeric_limits<double>::infinity()) / tokens;
      const double max_norm = expected.at("max_norm").get<double>();
      const at::Tensor factor = (max_norm / (l2 + 1e-6)).clamp_max(1.0) / tokens;  // as torch's clip_grad_norm_
      const auto slices = sharding.trainable_slices();
      const at::NoGradGuard no_gradient;
      for (std::size_t i = 0; i < slices.size(); ++i) {
        at::Tensor slice = slices[i].tensor;
        slice.sub_(sharding.gradients()[i] * factor.to(at::kFloat) * 0.5);
      }
      sharding.clear();
      double difference = 0, frozen = 0;
      std::size_t trained = 0;
      sharding.for_each_parameter([&](const std::string& name, const at::Tensor& tensor) {
        if (name.find(".lora_") != std::string::npos) {
          difference = std::max(difference, test::max_difference(tensor, after.tensor("base_model.model." + name)));
          trained += static_cast<std::size_t>(tensor.numel());
        } else {
          frozen = std::max(frozen, test::max_difference(tensor, base.tensor(name)));
        }
      });
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      CHECK(none == 0);
      CHECK(sums[0].item<double>() / tokens.item<double>() ==
            Catch::Approx(expected.at("loss").get<double>()).epsilon(1e-5));
      CHECK(tokens.item<std::int64_t>() == expected.at("valid_labels").get<std::int64_t>());
      CHECK(l2.item<double>() == Catch::Approx(expected.at("grad_l2").get<double>()).epsilon(1e-5));
      CHECK(largest.item<double>() == Catch::Approx(expected.at("grad_inf").get<double>()).epsilon(1e-5));
      CHECK(difference < 1e-5);
      CHECK(frozen == 0);
      CHECK(trained == expected.at("n_trainable").get<std::size_t>());
    });
  }
}

TEST_CASE("parts that share a parameter, odd sizes, an unused part, and gradients that are not sent at once") {
  const at::Tensor inputs = test::random({8, 5}, at::kDouble, 4);
  Twins plain;
  plain.forward(inputs).pow(2).sum().backward();
  for (const int ranks : {1, 2, 4}) {
    for (const bool sync : {true, false}) {
      CAPTURE(ranks, sync);
      dist::run_ranks(ranks, [&](dist::World& world) {
        dist::FullySharded<Twins> model;
        dist::fully_shard(model, dist::make_mesh(world, dist::ShardKind::full));
        dist::Sharding& sharding = *model.sharding();
        const std::int64_t rows = 8 / ranks;
        for (std::int64_t half = 0; half < 2; ++half) {  // two micro-batches
          sharding.set_requires_gradient_sync(sync || half == 1);
          sharding.set_is_last_backward(half == 1);
          model.forward(inputs.narrow(0, world.rank * rows + half * (rows / 2), rows / 2)).pow(2).sum().backward();
        }
        const auto gradients = sharding.gradients();
        const auto slices = sharding.trainable_slices();
        double difference = 0;
        bool unused = true;
        for (std::size_t i = 0; i < slices.size(); ++i) {
          const at::Tensor whole = plain.named_parameters()[slices[i].name].grad();
          if (!whole.defined()) {
            unused = unused && !gradients[i].defined();
            continue;
          }
          const at::Tensor part = whole.flatten().narrow(0, slices[i].begin, slices[i].tensor.numel());
          difference = std::max(difference, test::max_difference(gradients[i], part));
        }
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        CHECK(slices.size() == 5);  // the shared weight once
        CHECK(difference < 1e-12);
        CHECK(unused);
        CHECK_THROWS_AS(dist::fully_shard(model, dist::make_mesh(world, dist::ShardKind::full)), InputError);
      });
    }
  }
}

TEST_CASE("gradients that come after copies were summed are refused, with the remedy") {
  const at::Tensor inputs = test::random({4, 5}, at::kDouble, 4);
  dist::run_ranks(2, [&](dist::World& world) {
    dist::FullySharded<Twins> model;
    dist::fully_shard(model, dist::make_mesh(world, dist::ShardKind::none));
    const auto backward = [&] { model.forward(inputs).sum().backward(); };
    model.sharding()->set_is_last_backward(false);
    backward();
    model.sharding()->set_is_last_backward(true);
    backward();
    model.sharding()->gradients();
    std::string message;
    try {
      backward();
      model.sharding()->gradients();
    } catch (const std::exception& error) {
      message = error.what();
    }
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    CHECK(message.find("set_is_last_backward(false)") != std::string::npos);
  });
}

TEST_CASE("mixed precision: float32 shards, bf16 computing and communicating, the output as asked") {
  const data::Batch batch = test::batch_of({counting(1, 7), counting(5, 9)});
  Model low(test::tiny_config(), at::kBFloat16), precise(test::tiny_config());
  test::fill_by_formula(precise);
  for (std::size_t i = 0; i < low.parameters().size(); ++i) {
    const at::NoGradGuard no_gradient;
    low.parameters()[i].copy_(precise.parameters()[i]);
  }
  const at::Tensor expected = low.hidden(batch);
  precise.hidden(batch).to(at::kFloat).sum().backward();
  dist::run_ranks(2, [&](dist::World& world) {
    Model model(test::tiny_config());
    test::fill_by_formula(model);
    dist::fully_shard(
        model, dist::make_mesh(world, dist::ShardKind::full),
        {.mixed_precision = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kBFloat16, .output_dtype = at::kFloat}});
    const at::Tensor hidden = model.hidden(batch);
    (hidden.sum() / 2).backward();  // both ranks have the same batch
    const auto gradients = model.sharding()->gradients();
    const auto slices = model.sharding()->trainable_slices();
    double worst = 0;
    bool float32 = true;
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const at::Tensor whole = precise.named_parameters()[slices[i].name].grad();
      const at::Tensor part = whole.flatten().narrow(0, slices[i].begin, slices[i].tensor.numel());
      worst = std::max(worst, test::max_difference(gradients[i], part) / whole.abs().max().item<double>());
      float32 = float32 && slices[i].tensor.scalar_type() == at::kFloat && gradients[i].scalar_type() == at::kFloat;
    }
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    CHECK(hidden.scalar_type() == at::kFloat);
    CHECK(test::max_difference(hidden, expected) < 0.02);  // a bf16 unit at 2 is 0.0156
    CHECK(float32);
    CHECK(worst < 0.05);
  });
}
