// Must not compile, and the error must name the concept: a loss that takes something else than a loss takes.
#include <ilme/data/batched.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/token_documents.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/train/trainer.hpp>

struct NotALoss {
  int operator()(int) const { return 0; }
};

using Source = ilme::data::Batched<ilme::data::PackedRows<ilme::data::TokenDocuments>>;
using Wrong = ilme::train::Trainer<ilme::nn::Llama<ilme::ops::Fused>, NotALoss, ilme::optim::AdamW, Source>;

int main() { return sizeof(Wrong); }
