#include "support/tiny_llama.hpp"

#include "support/pattern_source.hpp"
#include "support/temporary.hpp"

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/train/callbacks.hpp>
#include <ilme/train/resume.hpp>
#include <ilme/train/spike_guard.hpp>
#include <ilme/train/trainer.hpp>

using namespace ilme;

namespace {

/// The pattern, with labels that nothing can foresee in the batches from `first` to `last`.
class Poisoned {
 public:
  Poisoned(std::int64_t first, std::int64_t last) : first_(first), last_(last) {}
  std::optional<data::PackedBatch> next() {
    const auto position = state().at("position").get<std::int64_t>();
    auto batch = inner_.next();
    for (std::size_t i = 0; position >= first_ && position <= last_ && i < batch->labels.size(); ++i) {
      if (batch->labels[i] >= 0) batch->labels[i] = static_cast<std::int64_t>(random_bits(1, position, i) % 23);
    }
    batch->documents = {{0, position}};
    return batch;
  }
  Json state() const { return inner_.state(); }
  void restore(const Json& state) { inner_.restore(state); }
  std::int64_t batches_per_epoch() const { return inner_.batches_per_epoch(); }
  std::vector<data::DocumentSource> document_sources() const { return {{"pattern", "batch"}}; }

 private:
  std::int64_t first_, last_;
  test::PatternSource inner_{4};
};

struct Run {
  Run(std::int64_t first_poisoned, std::int64_t last_poisoned)
      : source(first_poisoned, last_poisoned),
        model(test::tiny_config()),
        optimizer((model.initialize(1), optim::trainable_parameters(model))),
        trainer(model, loss::LinearCrossEntropy{}, optimizer, source,
                {.total_steps = 60, .learning_rate = [](std::int64_t) { return 1e-2; }}) {}

  Poisoned source;
  nn::Llama<ops::Fused> model;
  optim::AdamW optimizer;
  train::Trainer<nn::Llama<ops::Fused>, loss::LinearCrossEntropy, optim::AdamW, Poisoned> trainer;
};

/// Trains `run` with a guard and checkpoints every 10 steps; what was said, and the losses as they came.
struct Guarded {
  Guarded(Run& run, const std::filesystem::path& folder, train::SpikeOptions options) : store(folder) {
    log.add([this](std::int64_t step, const train::Metrics& metrics) {
      for (const auto& [name, value] : metrics) records.emplace_back(step, name, value);
    });
    log.add_notes([this](std::int64_t, const std::string& name, const std::string& text) {
      if (name == "spike") said.push_back(text);
    });
    guard.emplace(options, log);
    guard->load_with([this](std::int64_t step) { return store.load_before(step, nullptr); });
    if (const auto loaded = store.load_latest(nullptr)) {
      train::restore(run.trainer, *loaded);
      guard->restore(loaded->state.at(train::SpikeGuard::kName));
    }
  }

  template <class Trainer>
  void step(Trainer& trainer) {
    const auto report = trainer.train_step();
    losses.emplace_back(report.step, report.loss);
    guard->on_step(trainer, report);
    if (trainer.step() % 10 != 0) return;
    Json more = Json::object();
    more[train::SpikeGuard::kName] = guard->state();
    store.save(trainer.step(), train::snapshot(trainer, more));
  }

  checkpoint::CheckpointStore store;
  train::MetricLog log;
  std::optional<train::SpikeGuard> guard;
  std::vector<std::string> said;
  std::vector<std::tuple<std::int64_t, std::string, double>> records;
  std::vector<std::pair<std::int64_t, double>> losses;
};

}  // namespace

TEST_CASE("a spike takes the run back to the checkpoint before it, and past the batches since") {
  test::TemporaryFolder folder;
  Run run(45, 45);  // the batch of step 46
  Guarded guarded(run, folder / "guarded", {.factor = 1.5});
  while (run.trainer.step() < 60) guarded.step(run.trainer);
  REQUIRE(guarded.guard->rewinds() == 1);
  REQUIRE(guarded.losses.size() == 66);
  CHECK(guarded.losses[45].first == 46);
  CHECK(guarded.losses[46].first == 41);  // and the batch of step 47
  REQUIRE(guarded.said.size() == 1);
  CHECK_THAT(
      guarded.said[0],
      Catch::Matchers::StartsWith("step 46: the loss is ") &&
          Catch::Matchers::EndsWith(
              "the last 32 (pattern: batch 45); back to step 40, on with the next batches (rewind 1 of at most 8)"));
  CHECK((guarded.records == decltype(guarded.records){{46, "rewinds", 1.0}}));

  // The same as a run that starts from that checkpoint with the batch after the poisoned one.
  Run again(45, 45);
  auto loaded = checkpoint::CheckpointStore(folder / "guarded").load(folder / "guarded/step-00000040");
  loaded.state["trainer"]["source"]["position"] = 46;
  train::restore(again.trainer, loaded);
  CHECK(again.trainer.step() == 40);
  for (std::size_t i = 46; i < 66; ++i) REQUIRE(again.trainer.train_step().loss == guarded.losses[i].second);

  // Stopped after the rewind, it goes on as if it had not been.
  Run first(45, 45);
  Guarded before(first, folder / "stopped", {.factor = 1.5});
  while (first.trainer.step() < 50) before.step(first.trainer);
  Run second(45, 45);
  Guarded after(second, folder / "stopped", {.factor = 1.5});
  CHECK(after.guard->rewinds() == 1);
  while (second.trainer.step() < 60) after.step(second.trainer);
  CHECK((after.losses == decltype(after.losses)(guarded.losses.end() - 10, guarded.losses.end())));
}

TEST_CASE("losses that are not finite take it back to before the first of them") {
  test::TemporaryFolder folder;
  Run run(1000, 1000);
  Guarded guarded(run, folder / "run", {.factor = 1.5, .bad_steps = 3});
  while (run.trainer.step() < 28) guarded.step(run.trainer);
  const at::Tensor whole = run.model.norm->weight.detach().clone();
  run.model.norm->weight.detach().fill_(std::numeric_limits<double>::infinity());
  guarded.step(run.trainer);
  guarded.step(run.trainer);  // saves the broken weights as step 30
  CHECK(guarded.said.empty());
  guarded.step(run.trainer);
  REQUIRE(guarded.said.size() == 1);
  CHECK_THAT(guarded.said[0],
             Catch::Matchers::ContainsSubstring("step 31: 3 losses or gradient norms in a row are not finite") &&
                 Catch::Matchers::ContainsSubstring("back to step 20"));
  CHECK(run.trainer.step() == 20);
  CHECK(run.trainer.skipped_steps() == 3);
  guarded.step(run.trainer);
  CHECK(std::isfinite(guarded.losses.back().second));
  CHECK(run.source.state().at("position") == 32);
}

TEST_CASE("spikes that come again lead further back, and at last are only said") {
  test::TemporaryFolder folder;
  Run run(35, 1000);
  Guarded guarded(run, folder / "run", {.factor = 1.5, .max_rewinds = 2});
  while (run.trainer.step() < 45) guarded.step(run.trainer);
  REQUIRE(guarded.said.size() >= 3);
  CHECK_THAT(guarded.said[0], Catch::Matchers::ContainsSubstring("back to step 30"));
  CHECK_THAT(guarded.said[1], Catch::Matchers::ContainsSubstring("back to step 20"));
  CHECK_THAT(guarded.said[2], Catch::Matchers::EndsWith("; going on after 2 rewinds"));
  CHECK(guarded.guard->rewinds() == 2);

  Run fresh(20, 20);
  Guarded without(fresh, folder / "empty", {.factor = 1.5});
  for (int step = 0; step < 21; ++step) {
    const auto report = fresh.trainer.train_step();
    without.guard->on_step(fresh.trainer, report);
  }
  REQUIRE(without.said.size() == 1);
  CHECK_THAT(without.said[0], Catch::Matchers::EndsWith("there is no checkpoint to go back to"));
  CHECK(fresh.trainer.step() == 21);
}

TEST_CASE("a guard that is off does nothing, and a factor of 1 or less is refused") {
  test::TemporaryFolder folder;
  Run run(20, 20);
  Guarded guarded(run, folder / "run", {});
  while (run.trainer.step() < 30) guarded.step(run.trainer);
  CHECK(guarded.said.empty());
  CHECK_THROWS_AS(train::SpikeGuard({.factor = 1.0}, guarded.log), InputError);
  CHECK_THROWS_AS(train::SpikeGuard({.factor = -2.0}, guarded.log), InputError);
}
