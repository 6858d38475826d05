/// Keys and values of the tokens that a generation has seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

namespace ilme::nn {

/// One layer's keys and values, [batch, kv_heads, capacity, head_dim], of which the first `length` positions are
/// filled. Storage doubles when it is full.
class LayerCache {
 public:
  /// Appends k and v [batch, kv_heads, new, head_dim]; returns views of all keys and values so far.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& k, const at::Tensor& v) {
    const std::int64_t end = length_ + k.size(2);
    if (!keys_.defined() || keys_.size(2) < end) reserve(k, end);
    keys_.narrow(2, length_, k.size(2)).copy_(k);
    values_.narrow(2, length_, v.size(2)).copy_(v);
    length_ = end;
    return {keys_.narrow(2, 0, length_), values_.narrow(2, 0, length_)};
  }

 private:
  void reserve(const at::Tensor& like, std::int64_t needed) {
    const std::int64_t capacity = std::max<std::int64_t>({needed, 256, keys_.defined() ? keys_.size(2) * 2 : 0});
    const auto enlarge = [&](at::Tensor& stored) {
      at::Tensor larger = at::empty({like.size(0), like.size(1), capacity, like.size(3)}, like.options());
      if (length_ > 0) larger.narrow(2, 0, length_).copy_(stored.narrow(2, 0, length_));
      stored = std::move(larger);
    };
    enlarge(keys_);
    enlarge(values_);
  }

  at::Tensor keys_, values_;
  std::int64_t length_ = 0;
};

/// The caches of all layers; `length()` tokens have been seen. Fill it through Llama::hidden(ids, cache).
class KvCache {
 public:
  explicit KvCache(std::int64_t layers) : layers_(static_cast<std::size_t>(layers)) {}
  LayerCache& layer(std::size_t index) { return layers_.at(index); }
  std::int64_t length() const noexcept { return length_; }
  void advance(std::int64_t tokens) noexcept { length_ += tokens; }

 private:
  std::vector<LayerCache> layers_;
  std::int64_t length_ = 0;
};

}  // namespace ilme::nn
