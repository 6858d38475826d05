#include "support/tiny_llama.hpp"

#include "support/gradients.hpp"
#include "support/pattern_source.hpp"
#include "support/temporary.hpp"

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/data/batched.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/token_documents.hpp>
#include <ilme/lora/lora.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/schedule.hpp>
#include <ilme/train/callbacks.hpp>
#include <ilme/train/resume.hpp>
#include <ilme/train/trainer.hpp>

using namespace ilme;
using test::PatternSource;

namespace {

/// The same batches, cut into micro-batches of one row.
class RowByRow {
 public:
  explicit RowByRow(std::int64_t rows) : rows_(rows), inner_(rows) {}
  std::optional<data::PackedBatch> next() {
    if (row_ == 0) whole_ = *inner_.next();
    data::PackedBatch one;
    one.rows = 1;
    one.sequence_length = 12;
    one.sequence_offsets = {0, 12};
    const auto slice = [&](const std::vector<std::int64_t>& values) {
      return std::vector<std::int64_t>(values.begin() + row_ * 12, values.begin() + (row_ + 1) * 12);
    };
    one.input_ids = slice(whole_.input_ids);
    one.labels = slice(whole_.labels);
    one.position_ids = slice(whole_.position_ids);
    for (const std::int64_t label : one.labels) one.token_count += label != data::kIgnoredLabel;
    row_ = (row_ + 1) % rows_;
    return one;
  }
  Json state() const { return inner_.state(); }
  void restore(const Json& state) { inner_.restore(state); }
  std::int64_t batches_per_epoch() const { return inner_.batches_per_epoch() * rows_; }

 private:
  std::int64_t rows_, row_ = 0;
  PatternSource inner_;
  data::PackedBatch whole_;
};

/// Notes the steps that it sees and asks to stop at the third.
struct Watch {
  std::vector<std::int64_t>& seen;
  bool& ended;

  template <class Trainer>
  void on_step(Trainer& trainer, const train::StepReport& report) {
    seen.push_back(report.step);
    if (report.step == 3) trainer.request_stop();
  }
  template <class Trainer>
  void on_end(Trainer&) {
    ended = true;
  }
};

using Model = nn::Llama<ops::Fused>;

struct Run {
  explicit Run(at::ScalarType dtype = at::kFloat, std::int64_t steps = 30)
      : model(test::tiny_config(), dtype), source(4), total_steps(steps) {
    model.initialize(1);
    optimizer.emplace(optim::trainable_parameters(model));
  }
  auto trainer() {
    return train::Trainer(
        model, loss::LinearCrossEntropy{}, *optimizer, source,
        {.total_steps = total_steps, .learning_rate = optim::Schedule{optim::Decay::cosine, 1e-2, 0, 3, total_steps}});
  }
  Model model;
  std::optional<optim::AdamW> optimizer;
  PatternSource source;
  std::int64_t total_steps;
};

}  // namespace

TEST_CASE("training learns, in fp32 and in bf16 with fp32 masters") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  Run run(dtype, 120);
  auto trainer = run.trainer();
  const double first = trainer.train_step().loss;
  double last = first;
  while (trainer.step() < 120) last = trainer.train_step().loss;
  CHECK(first == Catch::Approx(std::log(23.0)).margin(0.1));
  CHECK(last < 0.5 * first);
}

TEST_CASE("the optimizer in backward learns what the ordinary step learns, and is refused where it cannot") {
  const auto options = [](bool in_backward, double max_grad_norm = 0, std::int64_t accumulate = 1) {
    return train::TrainerOptions{.total_steps = 30,
                                 .accumulate = accumulate,
                                 .max_grad_norm = max_grad_norm,
                                 .learning_rate = optim::Schedule{optim::Decay::cosine, 1e-2, 0, 3, 30},
                                 .optimizer_in_backward = in_backward};
  };
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  Run ordinary(dtype), early(dtype);
  train::Trainer a(ordinary.model, loss::LinearCrossEntropy{}, *ordinary.optimizer, ordinary.source, options(false));
  train::Trainer b(early.model, loss::LinearCrossEntropy{}, *early.optimizer, early.source, options(true));
  for (int step = 0; step < 8; ++step) {
    const auto x = a.train_step(), y = b.train_step();
    CHECK(x.loss == y.loss);
    CHECK(x.grad_norm == Catch::Approx(y.grad_norm).epsilon(1e-5));
  }
  for (std::size_t i = 0; i < ordinary.model.parameters().size(); ++i) {
    CHECK(at::equal(ordinary.model.parameters()[i], early.model.parameters()[i]));
  }
  Run refused(dtype);
  for (const auto& bad : {options(true, 1.0), options(true, 0.0, 2)}) {
    CHECK_THROWS_AS(train::Trainer(refused.model, loss::LinearCrossEntropy{}, *refused.optimizer, refused.source, bad),
                    InputError);
  }
}

TEST_CASE("accumulated micro-batches with unequal token counts equal one batch") {
  Run whole;
  Model model(test::tiny_config());
  model.initialize(1);
  optim::AdamW optimizer(optim::trainable_parameters(model));
  RowByRow rows(4);
  auto one = whole.trainer();
  train::Trainer four(
      model, loss::LinearCrossEntropy{}, optimizer, rows,
      {.total_steps = 30, .accumulate = 4, .learning_rate = optim::Schedule{optim::Decay::cosine, 1e-2, 0, 3, 30}});
  for (int step = 0; step < 10; ++step) {
    const auto a = one.train_step(), b = four.train_step();
    CHECK(a.loss == Catch::Approx(b.loss).epsilon(1e-5));
    CHECK(a.grad_norm == Catch::Approx(b.grad_norm).epsilon(1e-4));
    CHECK(a.loss_tokens == b.loss_tokens);
  }
}

TEST_CASE("a run resumed from any step goes on with exactly the same losses") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  std::vector<double> expected;
  {
    Run run(dtype);
    auto trainer = run.trainer();
    while (trainer.step() < 30) expected.push_back(trainer.train_step().loss);
  }
  test::TemporaryFolder folder;
  for (const std::int64_t stop : {1, 2, 15, 29}) {
    checkpoint::CheckpointStore store(folder / std::to_string(stop));
    {
      Run run(dtype);
      auto trainer = run.trainer();
      while (trainer.step() < stop) trainer.train_step();
      store.save(trainer.step(), train::snapshot(trainer));
    }
    Run run(dtype);
    run.model.initialize(99);  // whatever the new process starts from
    auto trainer = run.trainer();
    const auto loaded = store.load_latest(nullptr);
    REQUIRE(loaded);
    train::restore(trainer, *loaded);
    CHECK(trainer.step() == stop);
    while (trainer.step() < 30) {
      const auto report = trainer.train_step();
      REQUIRE(report.loss == expected[static_cast<std::size_t>(report.step - 1)]);
    }
  }
}

TEST_CASE("dropout goes on exactly too, and only the adapter is saved") {
  using LoraModel = nn::Llama<ops::Fused, lora::Lora<nn::Linear>>;
  const auto build = [] {
    auto model = std::make_unique<LoraModel>(test::tiny_config());
    model->initialize(1);
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    for (auto& layer : model->layers)
      layer->self_attn->q_proj->attach({.rank = 2, .scaling = 2.0, .dropout = 0.3}, generator);
    return model;
  };
  const train::TrainerOptions options{.total_steps = 20, .learning_rate = [](std::int64_t) { return 1e-2; }};
  test::TemporaryFolder folder;
  checkpoint::CheckpointStore store(folder / "run");
  std::vector<double> expected;
  {
    at::manual_seed(3);
    auto model = build();
    PatternSource source(4);
    optim::AdamW optimizer(optim::trainable_parameters(*model));
    train::Trainer trainer(*model, loss::LinearCrossEntropy{}, optimizer, source, options);
    while (trainer.step() < 20) {
      expected.push_back(trainer.train_step().loss);
      if (trainer.step() == 9) store.save(9, train::snapshot(trainer));
    }
  }
  at::manual_seed(1234);
  auto model = build();
  PatternSource source(4);
  optim::AdamW optimizer(optim::trainable_parameters(*model));
  train::Trainer trainer(*model, loss::LinearCrossEntropy{}, optimizer, source, options);
  const auto loaded = store.load_latest(nullptr);
  REQUIRE(loaded);
  CHECK(loaded->file("model").names().size() == 4);
  train::restore(trainer, *loaded);
  while (trainer.step() < 20) {
    const auto report = trainer.train_step();
    REQUIRE(report.loss == expected[static_cast<std::size_t>(report.step - 1)]);
  }
}

TEST_CASE("a step without a counted token is skipped visibly, and too many end the run") {
  struct Nothing : PatternSource {
    Nothing() : PatternSource(1) {}
    std::optional<data::PackedBatch> next() {
      auto batch = PatternSource::next();
      std::fill(batch->labels.begin(), batch->labels.end(), data::kIgnoredLabel);
      batch->token_count = 0;
      return batch;
    }
  } source;
  Model model(test::tiny_config());
  model.initialize(1);
  const at::Tensor before = model.embed_tokens->weight.detach().clone();
  optim::AdamW optimizer(optim::trainable_parameters(model));
  train::Trainer trainer(model, loss::LinearCrossEntropy{}, optimizer, source,
                         {.total_steps = 9, .learning_rate = [](std::int64_t) { return 1.0; }, .max_bad_steps = 3});
  const auto report = trainer.train_step();
  CHECK(report.skipped);
  CHECK(report.loss_tokens == 0);
  CHECK(at::equal(model.embed_tokens->weight, before));
  trainer.train_step();
  CHECK(trainer.skipped_steps() == 2);
  CHECK_THROWS_AS(trainer.train_step(), RunError);
}

TEST_CASE("the error after too many steps that teach nothing names the documents of the last") {
  const data::TokenDocuments documents(std::vector<std::vector<std::uint32_t>>(40, {7}));  // nothing follows
  auto source = data::packed_rows(documents, {.sequence_length = 4, .shuffle = false}) | data::batched(2);
  Run run;
  const auto options = [](std::int64_t max_bad_steps) {
    return train::TrainerOptions{
        .total_steps = 9, .learning_rate = [](std::int64_t) { return 1.0; }, .max_bad_steps = max_bad_steps};
  };
  train::Trainer trainer(run.model, loss::LinearCrossEntropy{}, *run.optimizer, source, options(2));
  CHECK(trainer.train_step().documents == "documents: documents 0-7");
  CHECK_THROWS_WITH(trainer.train_step(),
                    Catch::Matchers::ContainsSubstring("2 steps in a row taught nothing") &&
                        Catch::Matchers::ContainsSubstring("the last one read documents: documents 8-15"));
  train::Trainer patient(run.model, loss::LinearCrossEntropy{}, *run.optimizer, source, options(0));
  while (patient.step() < 9) patient.train_step();
  CHECK(patient.skipped_steps() == 9);
  CHECK(patient.state().at("skipped_steps") == 9);
  CHECK_THROWS_AS(train::Trainer(run.model, loss::LinearCrossEntropy{}, *run.optimizer, source, options(-1)),
                  InputError);
}

TEST_CASE("a loss that is not finite changes nothing and is counted") {
  Run run;
  run.model.norm->weight.detach().fill_(std::numeric_limits<double>::infinity());
  const at::Tensor before = run.model.embed_tokens->weight.detach().clone();
  auto trainer = run.trainer();
  CHECK(trainer.train_step().skipped);
  CHECK(at::equal(run.model.embed_tokens->weight, before));
}

TEST_CASE("run calls callbacks in order and stops when asked") {
  Run run;
  auto trainer = run.trainer();
  std::vector<std::int64_t> seen;
  bool ended = false;
  trainer.run(Watch{seen, ended});
  CHECK(seen == std::vector<std::int64_t>{1, 2, 3});
  CHECK(ended);
}

TEST_CASE("data that ends before the last step is an error that says so") {
  struct Once : PatternSource {
    Once() : PatternSource(1) {}
    std::optional<data::PackedBatch> next() {
      return std::exchange(given, true) ? std::nullopt : PatternSource::next();
    }
    bool given = false;
  } source;
  Model model(test::tiny_config());
  model.initialize(1);
  optim::AdamW optimizer(optim::trainable_parameters(model));
  train::Trainer trainer(model, loss::LinearCrossEntropy{}, optimizer, source,
                         {.total_steps = 9, .learning_rate = [](std::int64_t) { return 1e-3; }});
  CHECK_FALSE(trainer.train_step().skipped);
  CHECK_THROWS_AS(trainer.train_step(), RunError);
  CHECK(trainer.step() == 1);
}

TEST_CASE("another accumulation is refused on resume") {
  Run run;
  auto trainer = run.trainer();
  trainer.train_step();
  Json state = trainer.state();
  state["accumulate"] = 7;
  CHECK_THROWS_AS(trainer.restore(state), InputError);
}

TEST_CASE("another accumulation of the same global batch goes on where the loader counts steps") {
  const data::TokenDocuments documents(
      std::vector<std::vector<std::uint32_t>>(40, {1, 4, 7, 10, 13, 16, 19, 22, 2, 5, 8, 11, 14}));
  const auto losses = [&](std::int64_t rows, std::int64_t accumulate, std::int64_t steps, Json* state) {
    Run run;
    auto source =
        data::packed_rows(documents, {.sequence_length = 12}) | data::batched(rows, {.accumulate = accumulate});
    train::Trainer trainer(
        run.model, loss::LinearCrossEntropy{}, *run.optimizer, source,
        {.total_steps = 30, .accumulate = accumulate, .learning_rate = [](std::int64_t) { return 0.0; }});
    if (!state->is_null()) trainer.restore(*state);
    std::vector<double> all;
    while (trainer.step() < steps) all.push_back(trainer.train_step().loss);
    *state = trainer.state();
    return all;
  };
  Json whole, split;
  const auto expected = losses(4, 1, 14, &whole);  // into the second epoch
  losses(2, 2, 7, &split);
  const auto rest = losses(1, 4, 14, &split);
  for (std::size_t i = 0; i < rest.size(); ++i) CHECK(rest[i] == Catch::Approx(expected[i + 7]).epsilon(1e-6));
  whole["seconds"] = split["seconds"];
  CHECK(split == whole);
  CHECK_THROWS_AS(losses(2, 4, 14, &split), InputError);  // another global batch

  Run run;
  auto source = data::packed_rows(documents, {.sequence_length = 12}) | data::batched(2, {.accumulate = 2});
  CHECK_THROWS_AS(train::Trainer(run.model, loss::LinearCrossEntropy{}, *run.optimizer, source,
                                 {.accumulate = 4, .learning_rate = [](std::int64_t) { return 0.0; }}),
                  InputError);
}
