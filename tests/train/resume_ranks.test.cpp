#include "support/catch_torch.hpp"

#include <array>
#include <cmath>
#include <stdexcept>

#include <ilme/checkpoint/background_saver.hpp>
#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/dist/load_model.hpp>
#include <ilme/dist/thread_ranks.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/ops/policy.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/train/resume.hpp>
#include <ilme/train/trainer.hpp>

#include "support/temporary.hpp"

using namespace ilme;

namespace {

using Model = dist::FullySharded<nn::Llama<ops::Fused, nn::Linear, dist::FullySharded>>;
constexpr std::int64_t kSteps = 10;

/// This rank's rows of the case's batches, [step, row, position].
class CaseRows {
 public:
  CaseRows(const std::filesystem::path& file, const dist::World& world) : rank_(world.rank), size_(world.size) {
    const io::SafetensorsFile in(file);
    input_ids_ = in.tensor("input_ids").clone();
    labels_ = in.tensor("labels").clone();  // Hugging Face's: of the same position
  }
  std::optional<data::PackedBatch> next() {
    data::PackedBatch batch;
    const std::int64_t rows = input_ids_.size(1) / size_, length = input_ids_.size(2);
    batch.rows = rows;
    batch.sequence_length = length;
    batch.sequence_offsets.push_back(0);
    for (std::int64_t row = rank_ * rows; row < (rank_ + 1) * rows; ++row) {
      for (std::int64_t t = 0; t < length; ++t) {
        batch.input_ids.push_back(input_ids_[position_][row][t].item<std::int64_t>());
        batch.position_ids.push_back(t);
        const std::int64_t label = t + 1 < length ? labels_[position_][row][t + 1].item<std::int64_t>() : -100;
        batch.labels.push_back(label < 0 ? data::kIgnoredLabel : label);
        batch.token_count += label >= 0;
      }
      batch.sequence_offsets.push_back(static_cast<std::int64_t>(batch.input_ids.size()));
    }
    ++position_;
    return batch;
  }
  Json state() const { return {{"position", position_}}; }
  void restore(const Json& state) { position_ = state.at("position").get<std::int64_t>(); }
  std::int64_t batches_per_epoch() const { return kSteps; }

 private:
  at::Tensor input_ids_, labels_;
  std::int64_t rank_, size_, position_ = 0;
};

struct How {
  int ranks = 1;
  dist::ShardKind kind = dist::ShardKind::full;
  int ranks_per_host = 0;  // 0: all on one
};

/// Losses by step (0 where nothing was computed) and the last parameters.
struct Curve {
  std::array<double, kSteps> losses{};
  std::map<std::string, at::Tensor> parameters;
};

class Case {
 public:
  explicit Case(std::filesystem::path folder)
      : folder_(std::move(folder)), expected_(read_json(folder_ / "expected.json")) {}

  const Json& expected() const { return expected_; }

  /// Trains from the checkpoint of step `from` in `root` (none: from the start), saves into `save_to` before each of
  /// the steps if it is given, and returns what all ranks found alike.
  Curve run(const How& how, const std::filesystem::path& root, std::int64_t from,
            const std::filesystem::path& save_to = {}) const {
    std::vector<Curve> curves(static_cast<std::size_t>(how.ranks));
    dist::run_ranks(how.ranks, [&](dist::World& world) {
      if (how.ranks_per_host > 0) world.local_size = how.ranks_per_host;
      curves[static_cast<std::size_t>(world.rank)] = train(world, how, root, from, save_to);
    });
    for (const Curve& curve : curves) REQUIRE(curve.losses == curves[0].losses);
    return curves[0];
  }

 private:
  Curve train(dist::World& world, const How& how, const std::filesystem::path& root, std::int64_t from,
              const std::filesystem::path& save_to) const {
    const auto mesh = dist::make_mesh(world, how.kind);
    const auto model = dist::load_model<Model>(folder_ / "../_tiny-llama", at::kFloat, mesh, {}, [](Model&) {});
    optim::AdamW optimizer(model->sharding()->trainable_slices(), {.groups = {{.pattern = "*", .weight_decay = 0.1}}});
    CaseRows source(folder_ / "in.safetensors", world);
    train::Trainer trainer(*model, loss::LinearCrossEntropy{}, optimizer, source,
                           {.total_steps = kSteps, .learning_rate = [&](std::int64_t step) {
                              return expected_["lr"][static_cast<std::size_t>(step - 1)].get<double>();
                            }});
    if (!root.empty()) {
      checkpoint::CheckpointStore store(root, 0, world.all);
      train::restore(trainer, store.load(root / checkpoint::step_name(from)));
      if (trainer.step() != from) throw std::logic_error("the step is another");
    }
    checkpoint::CheckpointStore store(save_to, 0, world.all);
    checkpoint::BackgroundSaver saver(store, checkpoint::Background::always);
    Curve curve;
    while (trainer.step() < kSteps) {
      if (!save_to.empty()) saver.save(trainer.step(), train::snapshot(trainer));
      const auto report = trainer.train_step();
      curve.losses.at(static_cast<std::size_t>(report.step - 1)) = report.loss;
    }
    saver.wait();
    model->sharding()->for_each_parameter([&](const std::string& name, const at::Tensor& whole) {
      curve.parameters.emplace(name, whole.detach().clone());
    });
    return curve;
  }

  std::filesystem::path folder_;
  Json expected_;
};

bool same_bits(const Curve& a, const Curve& b, std::int64_t from) {
  for (const auto& [name, tensor] : a.parameters) {
    if (!at::equal(tensor, b.parameters.at(name))) return false;
  }
  return std::equal(a.losses.begin() + from, a.losses.end(), b.losses.begin() + from);
}

double largest_difference(const Curve& a, const Curve& b, std::int64_t from) {
  double largest = 0;
  for (auto i = static_cast<std::size_t>(from); i < a.losses.size(); ++i) {
    largest = std::max(largest, std::abs(a.losses[i] - b.losses[i]));
  }
  return largest;
}

}  // namespace

TEST_CASE("ckpt-resume-exact: any number of ranks and any sharding goes on from any other's checkpoint") {
  const auto folder = test::shared_path("cases/ckpt-resume-exact");
  if (!folder) SKIP("shared/cases/ckpt-resume-exact is absent");
  const Case the_case(*folder);
  const test::TemporaryFolder root;
  const Curve one = the_case.run({1}, {}, 0), two = the_case.run({2}, {}, 0);
  for (std::size_t step = 0; step < kSteps; ++step) {
    CHECK(std::abs(one.losses[step] - the_case.expected()["loss"][step].get<double>()) < 1e-3);
  }
  const io::SafetensorsFile final_values(*folder / "expected_final.safetensors");
  for (const auto& [name, tensor] : one.parameters) {
    CHECK(at::allclose(tensor, final_values.tensor(name), 0, 5e-3));
  }
  for (const int ranks : {1, 2, 3, 4}) {
    const Curve saving = the_case.run({ranks}, {}, 0, root / std::to_string(ranks));
    CHECK(largest_difference(saving, one, 0) < 1e-5);
    if (ranks == 2) CHECK(same_bits(saving, two, 0));  // saving changes nothing
  }
  for (const std::int64_t stop : {0, 3, 4, 9}) {
    for (const int ranks : {1, 2, 3, 4}) {
      CAPTURE(stop, ranks);
      const Curve resumed = the_case.run({ranks}, root / "2", stop);
      CHECK(largest_difference(resumed, one, stop) < 1e-5);
      if (ranks == 2) CHECK(same_bits(resumed, two, stop));
    }
  }
  for (const int ranks : {1, 3, 4}) {
    CHECK(largest_difference(the_case.run({2}, root / std::to_string(ranks), 4), one, 4) < 1e-5);
  }
  for (const How& how : {How{2, dist::ShardKind::none}, How{4, dist::ShardKind::hybrid, 2}}) {
    const auto again = root / concat("kind", how.ranks);
    CHECK(largest_difference(the_case.run(how, root / "2", 4, again), one, 4) < 1e-5);
    CHECK(largest_difference(the_case.run({3}, again, 7), one, 7) < 1e-5);
  }
}
