#include "support/tiny_llama.hpp"

#include "support/pattern_source.hpp"
#include "support/temporary.hpp"

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/train/callbacks.hpp>
#include <ilme/train/checkpoints.hpp>
#include <ilme/train/metric_log.hpp>
#include <ilme/train/resume.hpp>
#include <ilme/train/trainer.hpp>

using namespace ilme;
using Catch::Matchers::ContainsSubstring;
using test::PatternSource;

namespace {

struct Run {
  Run(at::ScalarType dtype, optim::AdamWState state, int seed = 1)
      : model(test::tiny_config(), dtype), source(4), optimizer(optim::trainable_parameters(model), {.state = state}) {
    model.initialize(seed);
  }
  auto trainer() {
    return train::Trainer(model, loss::LinearCrossEntropy{}, optimizer, source,
                          {.total_steps = 30, .learning_rate = [](std::int64_t) { return 1e-2; }});
  }

  nn::Llama<ops::Fused> model;
  PatternSource source;
  optim::AdamW optimizer;
};

at::Tensor state_of(const Run& run, const std::string& name) {
  for (const auto& [other, tensor] : run.optimizer.state()) {
    if (other == name) return tensor;
  }
  return {};
}

}  // namespace

TEST_CASE("a run goes on in another dtype with all that the checkpoint has") {
  using State = optim::AdamWState;
  struct Kind {
    at::ScalarType dtype;
    State state;
  };
  const Kind full{at::kFloat, State::masters}, masters{at::kBFloat16, State::masters}, bf16{at::kBFloat16, State::bf16};
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  test::TemporaryFolder folder;
  for (const Kind& from : {full, masters, bf16}) {
    Run run(from.dtype, from.state);
    auto trainer = run.trainer();
    for (int step = 0; step < 10; ++step) trainer.train_step();
    checkpoint::CheckpointStore store(folder.path());
    store.save(10, train::snapshot(trainer));
    const at::Tensor parameter = run.model.named_parameters()[name].detach();
    const at::Tensor master = state_of(run, name + ".master"), average = state_of(run, name + ".exp_avg");
    const at::Tensor precise = master.defined() ? master : parameter.to(at::kFloat);
    std::vector<double> expected;
    for (int step = 0; step < 10; ++step) expected.push_back(trainer.train_step().loss);
    const auto loaded = checkpoint::CheckpointStore(folder.path()).load_latest({});
    for (const Kind& to : {full, masters, bf16}) {
      CAPTURE(from.dtype, to.dtype, from.state == State::bf16, to.state == State::bf16);
      Run resumed(to.dtype, to.state, 99);
      auto other = resumed.trainer();
      const auto notes = train::restore(other, *loaded);
      const bool same = from.dtype == to.dtype && from.state == to.state;
      const bool narrower = to.state == State::bf16 && from.state != State::bf16;
      CHECK(notes.size() == (narrower ? 2 : 0));
      if (narrower) CHECK_THAT(notes[1], ContainsSubstring("parameters of the checkpoint are float32, rounded to bf"));
      const at::Tensor now = resumed.model.named_parameters()[name].detach();
      CHECK(at::equal(now, loaded->file(master.defined() ? "optimizer" : "model")
                               .tensor(master.defined() ? name + ".master" : name)
                               .to(to.dtype)));
      if (const at::Tensor own = state_of(resumed, name + ".master"); own.defined()) {
        CHECK(own.scalar_type() == at::kFloat);
        CHECK(at::equal(own, loaded->file(master.defined() ? "optimizer" : "model")
                                 .tensor(master.defined() ? name + ".master" : name)
                                 .to(at::kFloat)));
      }
      for (const double loss : expected) {
        const double found = other.train_step().loss;
        CHECK(found == Catch::Approx(loss).epsilon(same ? 0 : 0.02).margin(0));
      }
    }
    std::filesystem::remove_all(folder / "step-00000010");
  }
}

TEST_CASE("a new best is saved at once and stays; a resumed run knows it") {
  test::TemporaryFolder folder;
  const std::vector<double> values{5, 3, 4, 2, 6, 7, 2.5, 9, 1, 8};  // after steps 1, 2, ...
  const auto train_to = [&](std::int64_t last) {
    Run run(at::kFloat, optim::AdamWState::masters);
    train::Trainer trainer(run.model, loss::LinearCrossEntropy{}, run.optimizer, run.source,
                           {.total_steps = last, .learning_rate = [](std::int64_t) { return 1e-2; }});
    checkpoint::CheckpointStore store(folder.path(), {.keep_last = 1, .keep_best = "eval"});
    train::Checkpoints checkpoints(
        store, 5, [] { return Json::object(); }, checkpoint::Background::always);
    if (const auto loaded = store.load_latest({})) {
      train::restore(trainer, *loaded);
      checkpoints.restore(*loaded);
    }
    train::MetricLog log;
    log.add([&](std::int64_t step, const train::Metrics& metrics) { checkpoints.note(step, metrics); });
    train::Evaluate evaluate(log, 1, [&]() -> train::Metrics {
      return {{"eval", values.at(static_cast<std::size_t>(trainer.step() - 1))}};
    });
    trainer.run(evaluate, checkpoints);
    std::vector<std::int64_t> steps;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      steps.push_back(*checkpoint::step_of_name(entry.path().filename().string()));
    }
    std::sort(steps.begin(), steps.end());
    return steps;
  };
  using Steps = std::vector<std::int64_t>;
  CHECK(train_to(3) == Steps{2, 3});
  CHECK(train_to(5) == Steps{4, 5});
  CHECK(train_to(8) == Steps{4, 8});
  CHECK(train_to(8) == Steps{4, 8});  // nothing to do
  const Json state = checkpoint::CheckpointStore(folder.path()).load_latest({})->state;
  CHECK(state.at("best") == Json{{"metric", "eval"}, {"value", 2.0}, {"step", 4}});
  CHECK(train_to(10) == Steps{9, 10});
}

TEST_CASE("a checkpoint of another model is refused") {
  test::TemporaryFolder folder;
  checkpoint::CheckpointStore store(folder.path());
  Run run(at::kFloat, optim::AdamWState::masters);
  auto trainer = run.trainer();
  trainer.train_step();
  const checkpoint::Contents good = train::snapshot(trainer);
  std::int64_t step = 0;
  const auto refused = [&](const checkpoint::Contents& contents) {
    store.save(++step, contents);
    return [&] { train::restore(trainer, *store.load_latest({})); };
  };
  CHECK_NOTHROW(refused(good)());
  checkpoint::Contents bad = good;
  bad.files["model"][0].tensor = torch::zeros({2, 2});
  bad.files["model"][0].shape = {2, 2};
  CHECK_THROWS_WITH(refused(bad)(), ContainsSubstring("has shape [2, 2], this model has"));
  bad = good;
  bad.files["model"][0].name = "other";
  CHECK_THROWS_WITH(refused(bad)(), ContainsSubstring("of which this run trains"));
  bad = good;
  bad.files["optimizer"].erase(bad.files["optimizer"].begin() + 1);
  CHECK_THROWS_WITH(refused(bad)(), ContainsSubstring("is missing"));
  bad = good;
  bad.files["optimizer"].push_back({"other.step", torch::zeros({}), {}, 0});
  CHECK_THROWS_WITH(refused(bad)(), ContainsSubstring("of no parameter of this run"));
}

TEST_CASE("generators: each rank has its own, and another number of ranks draws new ones") {
  const auto draw = [](at::Generator generator) { return at::rand({3}, generator); };
  test::TemporaryFolder folder;
  auto first = at::make_generator<at::CPUGeneratorImpl>(7), second = at::make_generator<at::CPUGeneratorImpl>(8);
  const auto save = [&](const char* name, const at::Tensor& states) {
    checkpoint::save_slices(folder / name, {{"cpu_generator", states, states.sizes().vec(), 0}});
    return checkpoint::SlicedTensors({io::SafetensorsFile(folder / name)});
  };
  const auto one = save("one", first.get_state());
  const auto two = save("two", at::stack({first.get_state(), second.get_state()}));
  const at::Tensor expected = draw(first);
  auto restored = at::make_generator<at::CPUGeneratorImpl>(1);
  train::detail::restore_generator("cpu_generator", restored, {}, one);
  CHECK(at::equal(draw(restored), expected));
  train::detail::restore_generator("cpu_generator", restored, {}, two);
  const at::Tensor fresh = draw(restored);
  CHECK_FALSE(at::equal(fresh, expected));
  train::detail::restore_generator("cpu_generator", restored, {}, two);
  CHECK(at::equal(draw(restored), fresh));
}
