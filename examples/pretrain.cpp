// ilme-pretrain: continued pre-training of a Llama model on token shards.
#include <functional>
#include <memory>
#include <string>

#include <ilme/core/allocator.hpp>
#include <ilme/data/batched.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/prefetched.hpp>
#include <ilme/data/token_shards.hpp>
#include <ilme/evaluate/shards.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/program.hpp"
#include "support/training.hpp"

namespace {

struct Options : ilme::TrainingOptions {
  std::string eval_data, train = "all";
};

template <class Ops>
void pretrain(const Options& options) {
  using namespace ilme;
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.model);
  const data::TokenShards shards(options.data);
  shards.require_tokenizer(tokenizer.fingerprint());
  const auto dtype = hf::parse_dtype(options.dtype);
  auto model = hf::load_model<nn::Llama<Ops>>(options.model, dtype);
  if (options.train == "embeddings") {
    for (auto& parameter : model->named_parameters()) {
      const bool embedding = parameter.key() == "model.embed_tokens.weight" || parameter.key() == "lm_head.weight";
      parameter.value().set_requires_grad(embedding);
    }
  }
  auto source = data::packed_rows(shards, {.sequence_length = options.sequence_length, .seed = options.seed}) |
                data::batched(options.batch_size) | data::prefetched(2);
  std::function<train::Metrics()> evaluation;
  if (!options.eval_data.empty()) {
    const data::TokenShards held_out(options.eval_data);
    held_out.require_tokenizer(tokenizer.fingerprint());
    evaluation = [&model, &options, held_out]() -> train::Metrics {
      model->eval();
      const auto score = evaluate::score_shards(
          *model, held_out, {.window = options.sequence_length, .stride = options.sequence_length / 2});
      model->train();
      return {{"eval_bits_per_byte", score.bits_per_byte()}, {"eval_perplexity", score.perplexity()}};
    };
  }
  if (run_training(options, "pretraining", *model, source, evaluation)) {
    hf::save_model(*model, options.output, dtype, options.model);
    std::fprintf(stderr, "model written to %s\n", options.output.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  return ilme::run_program(
      argc, argv, "ilme-pretrain",
      "Continues the pre-training of a model folder on token shards made by ilme-prepare. Documents are packed into "
      "rows "
      "and attend only within themselves. Kill it at any time: the same command goes on from the newest checkpoint.",
      [](CLI::App& app) -> std::function<void()> {
        auto options = std::make_shared<Options>();
        app.add_option("--data", options->data, "Folder of token shards to train on")->type_name("DIR")->required();
        app.add_option("--eval-data", options->eval_data, "Folder of token shards to evaluate on (bits per byte)")
            ->type_name("DIR");
        app.add_option("--train", options->train, "all parameters, or embeddings: the embedding and the head only")
            ->check(CLI::IsMember({"all", "embeddings"}));
        options->add_to(app);
        return [options] {
          options->ops == "fused" ? pretrain<ilme::ops::Fused>(*options) : pretrain<ilme::ops::Reference>(*options);
        };
      });
}
