/// Keys and values of the tokens that a generation has seen.
#pragma once

#include <cstdint>
#include <vector>

#include <ilme/ops/cached_attention.hpp>

namespace ilme::nn {

/// The caches of all layers for one sequence, of which `length()` tokens have been seen. Fill it through Llama::hidden.
class KvCache {
 public:
  explicit KvCache(std::int64_t layers) : layers_(static_cast<std::size_t>(layers)) {}
  ops::LayerCache& layer(std::size_t index) { return layers_.at(index); }
  std::int64_t length() const noexcept { return length_; }
  void advance(std::int64_t tokens) noexcept { length_ += tokens; }

 private:
  std::vector<ops::LayerCache> layers_;
  std::int64_t length_ = 0;
};

}  // namespace ilme::nn
