// A trainer of your own: a tokenizer, a small Llama with your loss, and your loop, in one page.
//   custom_trainer TEXT_FILE [STEPS]
#include <cstdio>
#include <cstdlib>

#include <ilme/core/file.hpp>
#include <ilme/data/batched.hpp>
#include <ilme/data/documents.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/token_documents.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/schedule.hpp>
#include <ilme/text/bpe_trainer.hpp>
#include <ilme/text/tokenizer.hpp>
#include <ilme/train/trainer.hpp>

// Your loss: cross-entropy that never holds the logits, plus a penalty that keeps the final states small (activation
// regularisation, Merity et al. 2017). Any callable with this signature is a loss; losses wrap losses.
struct RegularizedLoss {
  ilme::loss::LinearCrossEntropy inner;
  double strength = 1e-3;

  ilme::ops::LossSum operator()(const at::Tensor& hidden, const at::Tensor& head_weight,
                                const at::Tensor& labels) const {
    auto loss = inner(hidden, head_weight, labels);
    loss.sum = loss.sum + strength * static_cast<double>(loss.tokens) * hidden.pow(2).mean();
    return loss;
  }
};

int main(int argc, char** argv) try {
  if (argc < 2) throw ilme::InputError("usage: custom_trainer TEXT_FILE [STEPS]");
  const std::int64_t steps = argc > 2 ? std::atoll(argv[2]) : 100;

  const ilme::text::BpeTrainer bpe(ilme::text::PreTokenizer::named("llama3"), {.vocabulary_size = 1000});
  ilme::text::WordCounter words;
  ilme::text::count_words(bpe.pre_tokenizer(), ilme::read_file(argv[1]), words);
  const ilme::text::Tokenizer tokenizer(bpe.train(words));
  std::vector<std::vector<std::uint32_t>> documents;
  ilme::data::DocumentReader reader({argv[1]});
  while (const auto document = reader.next()) documents.push_back(tokenizer.encode(*document));
  auto source = ilme::data::packed_rows(ilme::data::TokenDocuments(documents), {.sequence_length = 128, .seed = 1}) |
                ilme::data::batched(8);

  ilme::nn::LlamaConfig config{.vocab_size = static_cast<std::int64_t>(tokenizer.vocabulary_size()),
                               .hidden_size = 128,
                               .intermediate_size = 352,
                               .num_hidden_layers = 2,
                               .num_attention_heads = 4,
                               .num_key_value_heads = 2,
                               .head_dim = 32,
                               .tie_word_embeddings = true};
  ilme::nn::Llama<ilme::ops::Fused> model(config);
  model.initialize(/*seed=*/1);
  ilme::optim::AdamW optimizer(ilme::optim::trainable_parameters(model));
  ilme::train::Trainer trainer(
      model, RegularizedLoss{}, optimizer, source,
      {.total_steps = steps, .learning_rate = ilme::optim::Schedule{.peak = 3e-3, .total_steps = steps}});
  while (trainer.step() < steps) {
    const auto report = trainer.train_step();
    if (report.step % 10 == 0) {
      std::printf("step %lld  loss %.3f  %.0f tokens/s\n", static_cast<long long>(report.step), report.loss,
                  static_cast<double>(report.positions) / report.seconds);
    }
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "custom_trainer: error: %s\n", error.what());
  return 1;
}
