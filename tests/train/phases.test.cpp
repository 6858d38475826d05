#include "support/tiny_llama.hpp"

#include "support/gradients.hpp"
#include "support/pattern_source.hpp"
#include "support/temporary.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/schedule.hpp>
#include <ilme/train/callbacks.hpp>
#include <ilme/train/phases.hpp>
#include <ilme/train/resume.hpp>
#include <ilme/train/trainer.hpp>

using namespace ilme;

namespace {

constexpr std::int64_t kSwitch = 6, kSteps = 14;

optim::Schedule schedule(optim::Decay decay, std::int64_t steps) { return {decay, 1e-2, 0, 2, steps}; }

/// A small tied or untied model that trains its embeddings first, then everything.
struct Run {
  explicit Run(at::ScalarType dtype = at::kFloat, bool tied = true)
      : model(test::tiny_config(tied), dtype),
        source(4),
        parameters((model.initialize(1), optim::trainable_parameters(model))),
        optimizer(parameters, {.groups = {{.pattern = "*embed*", .learning_rate_scale = 2}}}),
        phases(parameters, list(tied)),
        trainer(model, loss::LinearCrossEntropy{}, optimizer, source,
                {.total_steps = kSteps, .learning_rate = [this](std::int64_t s) { return phases.learning_rate(s); }}) {}

  static std::vector<train::Phase> list(bool tied) {
    std::vector<std::string> embeddings{"model.embed_tokens.*"};
    if (!tied) embeddings.push_back("lm_head.*");
    return {{"embeddings", kSwitch, embeddings, schedule(optim::Decay::constant, kSwitch)},
            {"everything", kSteps, {}, schedule(optim::Decay::cosine, kSteps - kSwitch)}};
  }
  std::vector<std::string> updated() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : optimizer.updated_parameters()) names.push_back(name);
    return names;
  }
  double step() {
    phases.before_step(trainer);
    return trainer.train_step().loss;
  }

  nn::Llama<ops::Fused> model;
  test::PatternSource source;
  optim::NamedParameters parameters;
  optim::AdamW optimizer;
  train::Phases phases;
  train::Trainer<nn::Llama<ops::Fused>, loss::LinearCrossEntropy, optim::AdamW, test::PatternSource> trainer;
};

}  // namespace

TEST_CASE("what is frozen gets no gradient, no update and no state until its phase") {
  const bool tied = GENERATE(true, false);
  Run run(at::kBFloat16, tied);
  std::vector<at::Tensor> before;
  for (const auto& [name, parameter] : run.parameters) before.push_back(parameter.detach().clone());
  std::size_t arrived = 0;
  run.trainer.gradients().redirect([&](std::size_t, at::Tensor) { ++arrived; });
  run.phases.before_step(run.trainer);
  data::PackedBatch packed = *test::PatternSource(2).next();
  const data::Batch batch = data::collate(packed);
  loss::LinearCrossEntropy{}(run.model.hidden(batch), run.model.lm_head_weight(), batch.labels).sum.backward();
  CHECK(arrived == (tied ? 1 : 2));  // the embedding and the head
  run.trainer.gradients().redirect(nullptr);

  for (std::int64_t i = 0; i < kSwitch; ++i) run.step();
  const std::vector<std::string> expected =
      tied ? std::vector<std::string>{"model.embed_tokens.weight"}
           : std::vector<std::string>{"model.embed_tokens.weight", "lm_head.weight"};
  CHECK(run.updated() == expected);
  CHECK(run.optimizer.state().size() == 4 * expected.size());
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    const auto& [name, parameter] = run.parameters[i];
    const bool trains = std::find(expected.begin(), expected.end(), name) != expected.end();
    CHECK(parameter.requires_grad() == trains);
    CHECK(at::equal(parameter, before[i]) != trains);
  }
  run.step();
  CHECK(run.optimizer.updated_parameters().size() == run.parameters.size());
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    if (run.parameters[i].second.dim() == 2) CHECK_FALSE(at::equal(run.parameters[i].second, before[i]));
  }
}

TEST_CASE("each phase has its own warm-up and schedule, and is told of once") {
  Run run;
  std::vector<std::pair<std::string, std::int64_t>> told;
  run.phases.on_begin([&](const train::Phase& phase, std::size_t index, std::int64_t step) {
    CHECK(phase.name == run.phases.phases()[index].name);
    told.emplace_back(phase.name, step);
  });
  std::vector<double> rates;
  for (std::int64_t s = 1; s <= kSteps; ++s) rates.push_back(run.phases.learning_rate(s));
  CHECK(rates[0] == Catch::Approx(5e-3));
  for (std::size_t s = 1; s < kSwitch; ++s) CHECK(rates[s] == Catch::Approx(1e-2));
  CHECK(rates[kSwitch] == Catch::Approx(5e-3));
  CHECK(rates[kSwitch + 1] == Catch::Approx(1e-2));
  CHECK(rates.back() == Catch::Approx(0.0).margin(1e-9));
  run.trainer.run(run.phases);
  CHECK(run.trainer.step() == kSteps);
  CHECK(told == std::vector<std::pair<std::string, std::int64_t>>{{"embeddings", 1}, {"everything", kSwitch + 1}});
}

TEST_CASE("a run of two phases resumes exactly before, at and after the switch") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  std::vector<double> expected;
  {
    Run run(dtype);
    while (run.trainer.step() < kSteps) expected.push_back(run.step());
  }
  test::TemporaryFolder folder;
  for (const std::int64_t stop : {kSwitch - 1, kSwitch, kSwitch + 1}) {
    checkpoint::CheckpointStore store(folder / std::to_string(stop));
    {
      Run run(dtype);
      while (run.trainer.step() < stop) run.step();
      store.save(stop, train::snapshot(run.trainer, {{"phases", run.phases.state()}}));
    }
    Run run(dtype);
    const auto loaded = store.load_latest(nullptr);
    REQUIRE(loaded);
    CHECK(loaded->file("model").names().size() == (stop <= kSwitch ? 1 : run.parameters.size()));
    CHECK(loaded->file("optimizer").names().size() ==
          loaded->file("model").names().size() * (dtype == at::kFloat ? 3 : 4));
    train::restore(run.trainer, *loaded);
    run.phases.restore(loaded->state.at("phases"));
    while (run.trainer.step() < kSteps) {
      const double loss = run.step();
      REQUIRE(loss == expected[static_cast<std::size_t>(run.trainer.step() - 1)]);
    }
  }
}

TEST_CASE("learning rates are logged by group where they differ") {
  Run run;
  std::vector<std::map<std::string, double>> records;
  train::MetricLog log;
  log.add([&](std::int64_t, const train::Metrics& metrics) { records.emplace_back(metrics.begin(), metrics.end()); });
  run.trainer.run(run.phases, train::LogMetrics(log, 1));
  REQUIRE(records.size() == kSteps);
  CHECK(records[2].at("learning_rate") == Catch::Approx(2e-2));  // nothing but the group trains
  CHECK(records[2].at("learning_rate/*embed*") == Catch::Approx(2e-2));
  CHECK(records[kSwitch + 1].at("learning_rate") == Catch::Approx(1e-2));
  CHECK(records[kSwitch + 1].at("learning_rate/*embed*") == Catch::Approx(2e-2));
}

TEST_CASE("phases that make no sense are refused") {
  Run run;
  const auto rate = [](std::int64_t, double) { return 1e-3; };
  const auto refused = [&](std::vector<train::Phase> phases, const char* text) {
    CHECK_THROWS_WITH(train::Phases(run.parameters, std::move(phases)), Catch::Matchers::ContainsSubstring(text));
  };
  refused({}, "no phase");
  refused({{"a", 5, {}, rate}, {"b", 5, {}, rate}}, "\"b\" ends with step 5");
  refused({{"a", 5, {"lm_head.*"}, rate}}, "lm_head.*");  // tied: it is model.embed_tokens.weight
  refused({{"a", 5, {}, {}}}, "learning rate");
}

namespace {

/// A trainer's clock under the test's hand.
struct Clock {
  std::int64_t steps = 0;
  double now = 0;
  bool finished = false;
  std::int64_t step() const { return steps; }
  double seconds() const { return now; }
  void finish_here() { finished = true; }
};

}  // namespace

TEST_CASE("with a limit of time the last phase's decay ends with it, also after a resume") {
  const optim::NamedParameters parameters{{"w", test::leaf(at::ones({2}), at::kFloat)}};
  const std::vector<train::Phase> list{{"first", 10, {}, optim::Schedule{optim::Decay::constant, 1.0, 0, 0, 10}},
                                       {"second", 1000, {}, optim::Schedule{optim::Decay::linear, 1.0, 0, 0, 990}}};
  train::Phases phases(parameters, list, /*max_seconds=*/100);
  Clock clock{.steps = 9, .now = 39};
  phases.before_step(clock);
  CHECK(phases.learning_rate(10) == 1.0);
  clock = {.steps = 10, .now = 40};
  phases.before_step(clock);
  CHECK(phases.learning_rate(11) == Catch::Approx(1.0 - 1.0 / 990));
  clock = {.steps = 20, .now = 70};
  phases.before_step(clock);
  CHECK(phases.learning_rate(21) == Catch::Approx(0.5));
  train::Phases resumed(parameters, list, 100);
  resumed.restore(phases.state());
  resumed.before_step(clock);
  CHECK(resumed.learning_rate(21) == Catch::Approx(0.5));
  clock = {.steps = 50, .now = 130};
  phases.before_step(clock);
  CHECK(phases.learning_rate(51) == 0.0);

  train::TimeLimit limit(100);
  Clock young{.now = 99}, old{.now = 100};
  limit.before_step(young);
  limit.on_step(old, {});
  CHECK_FALSE(young.finished);
  CHECK(old.finished);
}

TEST_CASE("a run that ends by its time limit is finished: evaluated, logged, saved, and has nothing to go on with") {
  Run run;
  int evaluated = 0, logged = 0;
  train::MetricLog log;
  log.add([&](std::int64_t, const train::Metrics&) { ++logged; });
  run.trainer.run(train::TimeLimit(1e-9), run.phases, train::LogMetrics(log, 1000));
  CHECK(run.trainer.step() == 0);  // no time at all
  Run other;
  train::TimeLimit limit(1e-9);
  const auto after_three = [&](auto& trainer) {
    if (trainer.step() == 3) limit.before_step(trainer);
  };
  struct AfterThree {
    const decltype(after_three)& call;
    void on_step(decltype(other.trainer)& trainer, const train::StepReport&) { call(trainer); }
  };
  other.trainer.run(AfterThree{after_three}, other.phases, train::LogMetrics(log, 1000),
                    train::Evaluate(log, 0, [&]() -> train::Metrics {
                      ++evaluated;
                      return {};
                    }));
  CHECK(other.trainer.step() == 3);
  CHECK(other.trainer.total_steps() == 3);
  CHECK(evaluated == 1);
  CHECK(logged == 2);
}
