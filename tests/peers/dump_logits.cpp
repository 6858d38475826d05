// Writes a model folder's logits for given ids, for the comparisons with Transformers beside this file.
//   dump_logits MODEL ADAPTER|- OUTPUT.safetensors DTYPE ID...
// DTYPE is fp32 or bf16; "fp32+gradients" adds the gradient of the mean loss of the next token by every parameter.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include <ilme/io/safetensors.hpp>
#include <ilme/lora/adapters.hpp>

int main(int argc, char** argv) try {
  if (argc < 6) throw ilme::InputError("usage: dump_logits MODEL ADAPTER|- OUTPUT.safetensors DTYPE ID...");
  std::string dtype = argv[4];
  const bool gradients = dtype.ends_with("+gradients");
  dtype = dtype.substr(0, dtype.find('+'));
  const at::AutoGradMode mode(gradients);
  auto model = ilme::lora::load_with_adapter<ilme::ops::Fused>(argv[1], std::string(argv[2]) == "-" ? "" : argv[2],
                                                               ilme::hf::parse_dtype(dtype));
  model->eval();
  ilme::data::PackedBatch batch;
  for (int i = 5; i < argc; ++i) {
    batch.input_ids.push_back(std::atoll(argv[i]));
    batch.position_ids.push_back(i - 5);
  }
  batch.rows = 1;
  batch.sequence_length = argc - 5;
  batch.labels.assign(batch.input_ids.size(), ilme::data::kIgnoredLabel);
  batch.sequence_offsets = {0, batch.sequence_length};
  const at::Tensor hidden = model->hidden(ilme::data::collate(batch))[0];
  const at::Tensor logits = at::matmul(hidden, model->lm_head_weight().t());
  ilme::io::NamedTensors tensors{{"logits", logits.detach()}};
  if (gradients) {
    const at::Tensor labels = at::tensor(batch.input_ids, at::kLong).narrow(0, 1, batch.sequence_length - 1);
    at::cross_entropy_loss(logits.narrow(0, 0, batch.sequence_length - 1), labels).backward();
    for (const auto& item : model->named_parameters()) {
      if (item.value().grad().defined()) tensors.emplace_back("gradient." + item.key(), item.value().grad());
    }
  }
  ilme::io::save_safetensors(argv[3], tensors);
} catch (const std::exception& error) {
  std::fprintf(stderr, "dump_logits: error: %s\n", error.what());
  return 1;
}
