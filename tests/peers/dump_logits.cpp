// Writes a model folder's logits for given ids, for tests/peers/compare_transformers.py.
//   dump_logits MODEL ADAPTER|- OUTPUT.safetensors ID...
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include <ilme/io/safetensors.hpp>
#include <ilme/lora/adapters.hpp>

int main(int argc, char** argv) try {
  if (argc < 5) throw ilme::InputError("usage: dump_logits MODEL ADAPTER|- OUTPUT.safetensors ID...");
  const at::NoGradGuard no_gradient;
  auto model =
      ilme::lora::load_with_adapter<ilme::ops::Fused>(argv[1], std::string(argv[2]) == "-" ? "" : argv[2], at::kFloat);
  model->eval();
  ilme::data::PackedBatch batch;
  for (int i = 4; i < argc; ++i) {
    batch.input_ids.push_back(std::atoll(argv[i]));
    batch.position_ids.push_back(i - 4);
  }
  batch.rows = 1;
  batch.sequence_length = argc - 4;
  batch.labels.assign(batch.input_ids.size(), ilme::data::kIgnoredLabel);
  batch.sequence_offsets = {0, batch.sequence_length};
  const at::Tensor hidden = model->hidden(ilme::data::collate(batch));
  ilme::io::save_safetensors(argv[3], {{"logits", at::matmul(hidden, model->lm_head_weight().t())[0]}});
} catch (const std::exception& error) {
  std::fprintf(stderr, "dump_logits: error: %s\n", error.what());
  return 1;
}
