/// Bits per byte of token shards.
#pragma once

#include <cstdint>
#include <vector>

#include <ilme/data/token_shards.hpp>
#include <ilme/evaluate/bits_per_byte.hpp>

namespace ilme::evaluate {

/// Scores every document of `shards` (BOS first; a final EOS is not scored) under `model`.
template <nn::CausalModel Model>
TextScore score_shards(Model& model, const data::TokenShards& shards, const ScoreOptions& options = {}) {
  TextScorer<Model> scorer(model, options);
  const auto eos = shards.vocabulary().eos_id;
  for (std::uint64_t i = 0; i < shards.document_count(); ++i) {
    std::vector<std::uint32_t> ids = shards.document(i).to_vector();
    if (eos && !ids.empty() && ids.back() == *eos) ids.pop_back();
    scorer.add(ids, static_cast<std::int64_t>(shards.document_bytes(i)));
  }
  return scorer.finish();
}

}  // namespace ilme::evaluate
