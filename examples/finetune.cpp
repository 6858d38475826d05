// ilme-finetune: supervised fine-tuning on chat examples, LoRA or full.
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ilme/core/allocator.hpp>
#include <ilme/core/random.hpp>
#include <ilme/data/batched.hpp>
#include <ilme/data/chat_rows.hpp>
#include <ilme/data/prefetched.hpp>
#include <ilme/dist/fully_sharded.hpp>
#include <ilme/lora/adapters.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/ops/memory.hpp>
#include <ilme/optim/parameter_group.hpp>
#include <ilme/text/chat_template.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/program.hpp"
#include "support/ranks.hpp"
#include "support/training.hpp"

namespace {

struct Options : ilme::TrainingOptions {
  std::int64_t lora_rank = 64;
  double lora_alpha = 0, lora_dropout = 0.05;
  std::vector<std::string> lora_targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  bool lora_train_embeddings = false, full = false;
};

template <class Ops>
void finetune(const Options& options) {
  using namespace ilme;
  dist::World world = connect(options);
  at::manual_seed(world.size > 1 ? random_bits(options.seed, static_cast<std::uint64_t>(world.rank)) : options.seed);
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.model);
  const auto examples = data::load_chat_examples(
      std::vector<std::filesystem::path>(options.data.begin(), options.data.end()), tokenizer,
      {.sequence_length = options.sequence_length,
       .default_system = text::default_system_message(text::read_chat_template(options.model))});
  const data::ChatReport& report = examples.report();
  if (world.rank == 0)
    std::fprintf(stderr, "%lld conversations: %lld kept (%lld cut), %lld dropped, %lld of %lld tokens trained on\n",
                 static_cast<long long>(report.read), static_cast<long long>(report.kept),
                 static_cast<long long>(report.truncated), static_cast<long long>(report.dropped),
                 static_cast<long long>(report.trained_tokens), static_cast<long long>(report.tokens));
  lora::AdapterConfig adapter;
  adapter.base_model_name_or_path = options.model;
  adapter.rank = options.lora_rank;
  adapter.alpha = options.lora_alpha > 0 ? options.lora_alpha : static_cast<double>(options.lora_rank);
  adapter.dropout = options.lora_dropout;
  adapter.target_modules = options.lora_targets;
  using Model = dist::FullySharded<nn::Llama<Ops, lora::Lora<nn::Linear>, dist::FullySharded>>;
  auto model = load_for_training<Model>(options, world, [&](Model& fresh) {
    if (options.full) return;
    if (options.lora_train_embeddings) {
      adapter.ensure_weight_tying = fresh.config().tie_word_embeddings;
      adapter.modules_to_save = {"embed_tokens"};
      if (!adapter.ensure_weight_tying) adapter.modules_to_save.emplace_back("lm_head");
    }
    lora::attach_adapters(fresh, adapter, options.seed);
  });
  auto source = data::chat_rows(examples, {.seed = options.seed}) |
                data::batched(options.batch_size, options.batches(world)) | data::prefetched(2);
  TrainingRun run{.label = "fine-tuning", .total_steps = options.total_steps(source.batches_per_epoch())};
  run.phases = {
      {options.full ? "everything" : "adapters", run.total_steps, {}, options.schedule_over(run.total_steps)}};
  run.settings = options.settings(run.total_steps);
  if (run_training(options, run, *model, optim::trainable_parameters(*model), source) == RunEnd::stopped) return;
  if (options.full) return save_model(options, *model);
  const io::NamedTensors tensors =
      whole_parameters(*model, [&](const std::string& name) { return lora::is_adapter_parameter(adapter, name); });
  if (world.rank > 0) return;
  lora::save_adapter(options.output, adapter, tensors);
  std::fprintf(stderr, "adapter written to %s\n", options.output.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  ilme::ops::count_tensor_memory();
  return ilme::run_program(
      argc, argv, "ilme-finetune",
      "Fine-tunes a model folder on conversations: a LoRA adapter in PEFT's layout, or with --full the whole model. "
      "Only "
      "the assistant's words and its end-of-turn token are trained on.",
      [](CLI::App& app) -> std::function<void()> {
        auto options = std::make_shared<Options>();
        options->learning_rate = 1e-4;
        options->weight_decay = 0.0;
        app.add_option("--data", options->data,
                       "Conversations: one or more .jsonl files with {\"messages\": [{\"role\", \"content\"}]}")
            ->type_name("FILE")
            ->required();
        app.add_option("--lora-rank", options->lora_rank, "Rank of the adapters")->check(CLI::PositiveNumber);
        app.add_option("--lora-alpha", options->lora_alpha, "Adapters count alpha / rank; 0: alpha = rank");
        app.add_option("--lora-dropout", options->lora_dropout, "Dropout on the adapters' input");
        app.add_option("--lora-targets", options->lora_targets, "Linear maps that get an adapter")->delimiter(',');
        app.add_flag("--lora-train-embeddings", options->lora_train_embeddings,
                     "Train embeddings and head whole beside the adapters (PEFT's modules_to_save), as after a change "
                     "of the vocabulary; --embedding-learning-rate gives them a rate of their own");
        app.add_flag("--full", options->full, "Train all parameters instead of an adapter");
        options->add_to(app);
        return [options] {
          options->ops == "fused" ? finetune<ilme::ops::Fused>(*options) : finetune<ilme::ops::Reference>(*options);
        };
      });
}
