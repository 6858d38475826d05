/// Attention of new tokens to the keys and values that a generation has cached.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/kernel.hpp>

namespace ilme::ops {

/// One sequence's keys and values in one layer, [kv_heads, capacity, head_dim] each, of which the first `length`
/// positions are filled. Storage doubles when it is full. Not copied: a copy would share the storage.
class LayerCache {
 public:
  LayerCache() = default;
  LayerCache(LayerCache&&) = default;
  LayerCache& operator=(LayerCache&&) = default;

  /// Makes room for `count` more tokens of the kind of k [count, kv_heads, head_dim], without filling it.
  void reserve(const at::Tensor& k, std::int64_t count) {
    if (keys_.defined() && keys_.size(1) >= length_ + count) return;
    const std::int64_t capacity =
        std::max<std::int64_t>({length_ + count, 256, keys_.defined() ? keys_.size(1) * 2 : 0});
    const auto enlarge = [&](at::Tensor& stored) {
      at::Tensor larger = at::empty({k.size(-2), capacity, k.size(-1)}, k.options());
      if (length_ > 0) larger.narrow(1, 0, length_).copy_(stored.narrow(1, 0, length_));
      stored = std::move(larger);
    };
    enlarge(keys_);
    enlarge(values_);
  }

  /// Appends k and v [new, kv_heads, head_dim].
  void append(const at::Tensor& k, const at::Tensor& v) {
    reserve(k, k.size(0));
    keys_.narrow(1, length_, k.size(0)).copy_(k.transpose(0, 1));
    values_.narrow(1, length_, v.size(0)).copy_(v.transpose(0, 1));
    length_ += k.size(0);
  }

  /// Counts a token that was written to the storage directly.
  void count_token() noexcept { ++length_; }

  std::int64_t length() const noexcept { return length_; }
  const at::Tensor& key_storage() const noexcept { return keys_; }
  const at::Tensor& value_storage() const noexcept { return values_; }
  at::Tensor keys() const { return keys_.narrow(1, 0, length_); }      ///< [kv_heads, length, head_dim]
  at::Tensor values() const { return values_.narrow(1, 0, length_); }  ///< as the keys

 private:
  at::Tensor keys_, values_;
  std::int64_t length_ = 0;
};

/// Appends the new tokens of every sequence to its cache and lets them attend to all that is cached and to what
/// precedes them among themselves. q [sequences, new, heads, head_dim]; k, v [sequences, new, kv_heads, head_dim]; one
/// cache a sequence, of any lengths. Returns [sequences, new, heads, head_dim]. Without gradients.
inline at::Tensor cached_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             std::span<LayerCache* const> caches) {
  TORCH_CHECK_VALUE(q.size(0) == static_cast<std::int64_t>(caches.size()), "ilme::ops::cached_attention: ", q.size(0),
                    " sequences, ", caches.size(), " caches");
  const c10::NoGradGuard no_gradient;
  const std::int64_t fresh = q.size(1);
  std::vector<at::Tensor> outputs;
  for (std::int64_t i = 0; i < q.size(0); ++i) {
    LayerCache& cache = *caches[static_cast<std::size_t>(i)];
    cache.append(k[i], v[i]);
    std::optional<at::Tensor> mask;
    if (fresh > 1 && cache.length() > fresh) {
      mask = at::ones({fresh, cache.length()}, q.options().dtype(at::kBool)).tril(cache.length() - fresh);
    }
    outputs.push_back(at::scaled_dot_product_attention(q[i].transpose(0, 1).unsqueeze(0), cache.keys().unsqueeze(0),
                                                       cache.values().unsqueeze(0), mask, /*dropout_p=*/0.0,
                                                       /*is_causal=*/fresh > 1 && cache.length() == fresh,
                                                       /*scale=*/std::nullopt,
                                                       /*enable_gqa=*/q.size(2) != k.size(2))
                          .transpose(1, 2));
  }
  return at::cat(outputs).contiguous();
}

/// As cached_attention_reference; a single new token a sequence goes through the kernel of ilme::kernels where the
/// target is linked (CPU: float32, bf16, fp16), and then a sequence's result does not depend on the others.
inline at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   std::span<LayerCache* const> caches) {
  const auto type = detail::kernel_dtype(q.scalar_type());
  const bool kernel = kernels::table().cpu.cached_attention_forward != nullptr && q.device().is_cpu() && type &&
                      q.size(1) == 1 && q.size(0) == static_cast<std::int64_t>(caches.size()) &&
                      !c10::GradMode::is_enabled() && k.scalar_type() == q.scalar_type() &&
                      v.scalar_type() == q.scalar_type();
  if (!kernel) return cached_attention_reference(q, k, v, caches);
  const at::Tensor queries = q.contiguous(), fresh_keys = k.contiguous(), fresh_values = v.contiguous();
  at::Tensor y = at::empty(q.sizes(), q.options());
  std::vector<void*> keys, values;
  std::vector<std::int64_t> capacities, lengths;
  for (LayerCache* cache : caches) {
    cache->reserve(k[0], 1);
    keys.push_back(cache->key_storage().mutable_data_ptr());
    values.push_back(cache->value_storage().mutable_data_ptr());
    capacities.push_back(cache->key_storage().size(1));
    lengths.push_back(cache->length());
  }
  detail::check_kernel(kernels::table().cpu.cached_attention_forward(
      {queries.const_data_ptr(), fresh_keys.const_data_ptr(), fresh_values.const_data_ptr(), keys.data(), values.data(),
       capacities.data(), lengths.data(), y.mutable_data_ptr(), q.size(0), q.size(2), k.size(2), q.size(3),
       static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.size(3)))), *type}));
  for (LayerCache* cache : caches) cache->count_token();
  return y;
}

}  // namespace ilme::ops
