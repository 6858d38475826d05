// ilme-pretrain: continued pre-training of a Llama model on token shards.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ilme/core/allocator.hpp>
#include <ilme/core/error.hpp>
#include <ilme/data/batched.hpp>
#include <ilme/data/prefetched.hpp>
#include <ilme/data/token_shards.hpp>
#include <ilme/dist/fully_sharded.hpp>
#include <ilme/evaluate/shards.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/ops/memory.hpp>
#include <ilme/optim/parameter_group.hpp>
#include <ilme/optim/schedule.hpp>
#include <ilme/text/tokenizer.hpp>
#include <ilme/train/phases.hpp>

#include "support/program.hpp"
#include "support/ranks.hpp"
#include "support/training.hpp"
#include "support/weighted_folders.hpp"

namespace {

struct Options : ilme::TrainingOptions {
  std::string eval_data, train = "all";
  std::int64_t embedding_steps = 0;
};

/// What trains when: everything, the embeddings only, or one after the other.
std::vector<ilme::train::Phase> phases(const Options& options, std::int64_t total_steps,
                                       const ilme::optim::NamedParameters& parameters) {
  using namespace ilme;
  if (options.train == "embeddings") {
    if (options.embedding_steps > 0) {
      throw InputError("--embedding-steps is for --train all: --train embeddings trains nothing else in any step");
    }
    return {{"embeddings and head", total_steps, embedding_patterns(parameters), options.schedule_over(total_steps)}};
  }
  const std::int64_t first = options.embedding_steps;
  if (first == 0) return {{"everything", total_steps, {}, options.schedule_over(total_steps)}};
  if (first < 0 || first >= total_steps) {
    throw InputError("--embedding-steps is ", first, ", expected 0 or more and less than the run's ", total_steps,
                     " steps; --train embeddings trains the embeddings and the head only");
  }
  optim::Schedule constant = options.schedule_over(first);
  constant.decay = optim::Decay::constant;
  return {{"embeddings and head", first, embedding_patterns(parameters), constant},
          {"everything", total_steps, {}, options.schedule_over(total_steps - first)}};
}

template <class Ops>
void pretrain(const Options& options) {
  using namespace ilme;
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.model);
  const auto rows =
      open_shards(options.data, tokenizer.fingerprint(),
                  {.sequence_length = options.sequence_length, .seed = options.seed}, dist::read_environment());
  dist::World world = connect(options);
  using Model = dist::FullySharded<nn::Llama<Ops, nn::LinearOf<Ops>, dist::FullySharded>>;
  auto model = load_for_training<Model>(options, world, [](Model&) {});
  auto source = rows | data::batched(options.batch_size, options.batches(world)) | data::prefetched(2);
  const auto parameters = optim::trainable_parameters(*model);
  TrainingRun run{.label = "pretraining", .total_steps = options.total_steps(source.batches_per_epoch())};
  run.phases = phases(options, run.total_steps, parameters);
  run.settings = options.settings(run.total_steps);
  run.settings.update({{"train", options.train}, {"embedding_steps", options.embedding_steps}});
  if (!options.eval_data.empty()) {
    const data::TokenShards held_out(options.eval_data);
    held_out.require_tokenizer(tokenizer.fingerprint());
    run.evaluate = [&model, &options, held_out]() -> train::Metrics {
      model->eval();
      const auto score = evaluate::score_shards(
          *model, held_out, {.window = options.sequence_length, .stride = options.sequence_length / 2});
      model->train();
      return {{"eval_bits_per_byte", score.bits_per_byte()}, {"eval_perplexity", score.perplexity()}};
    };
  }
  if (run_training(options, run, *model, parameters, source) == RunEnd::finished) {
    save_model(options, *model);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  ilme::ops::count_tensor_memory();
  return ilme::run_program(
      argc, argv, "ilme-pretrain",
      "Continues the pre-training of a model folder on token shards made by ilme-prepare. Documents are packed into "
      "rows "
      "and attend only within themselves. Kill it at any time: the same command goes on from the newest checkpoint.",
      [](CLI::App& app) -> std::function<void()> {
        auto options = std::make_shared<Options>();
        app.add_option("--data", options->data,
                       "Folders of token shards to train on. With a weight for each, rows come from them in these "
                       "proportions, however large they are; without, every row once an epoch")
            ->type_name("DIR[:WEIGHT]")
            ->required();
        app.add_option("--eval-data", options->eval_data, "Folder of token shards to evaluate on (bits per byte)")
            ->type_name("DIR");
        app.add_option("--train", options->train, "all parameters, or embeddings: the embedding and the head only")
            ->check(CLI::IsMember({"all", "embeddings"}));
        app.add_option("--embedding-steps", options->embedding_steps,
                       "Train only the embedding and the head in the first so many of --steps, everything else frozen: "
                       "a phase with a warm-up of its own, then at the constant --embedding-learning-rate; --schedule "
                       "begins after it");
        options->add_to(app);
        return [options] {
          options->ops == "fused" ? pretrain<ilme::ops::Fused>(*options) : pretrain<ilme::ops::Reference>(*options);
        };
      });
}
