// One query attends to a sequence's cached keys and values: scores of all tokens, softmax, weighted sum of the values.
// The keys and the values are read once from memory; the heads that share them find them in the cache.
#include "cached_attention_rows.hpp"

#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

/// Calls step(load, offset) for each vector of a row of `size` elements; `load` pads the last with zeros.
template <class Step>
inline void for_each_part(std::int64_t size, Step step) {
  for_each_vector(size, [&](auto load, auto, std::int64_t at) { step(load, at); });
}

/// scores[t] = q . keys[t] for `tokens` keys, eight at a time; the last vector is filled with -inf.
template <class T>
void score(const float* q, const T* keys, std::int64_t tokens, std::int64_t size, float* scores) {
  for (std::int64_t t = 0; t < tokens; t += 8) {
    const std::int64_t count = tokens - t < 8 ? tokens - t : 8;
    const T* const rows = keys + t * size;
    Floats sums[8] = {};
    for_each_part(size, [&](auto load, std::int64_t at) {
      const Floats query = widen(q + at);
      if (count == 8) {
        for (int i = 0; i < 8; ++i) sums[i] += query * load(rows + i * size + at);
      } else {
        for (int i = 0; i < count; ++i) sums[i] += query * load(rows + i * size + at);
      }
    });
    narrow_part(sum_lanes_of_8(sums), scores + t, 8);
  }
  for (std::int64_t t = tokens; t < (tokens + kLanes - 1) / kLanes * kLanes; ++t) scores[t] = -__builtin_inff();
}

/// y = sum over t of weights[t] * values[t] * scale.
template <class T>
void mix(const float* weights, const T* values, std::int64_t tokens, std::int64_t size, float scale, T* y) {
  constexpr int kParts = 4;
  std::int64_t at = 0;
  for (; at + kParts * kLanes <= size; at += kParts * kLanes) {
    Floats sums[kParts] = {};
    for (std::int64_t t = 0; t < tokens; ++t) {
      const T* const row = values + t * size + at;
      for (int i = 0; i < kParts; ++i) sums[i] += weights[t] * widen(row + i * kLanes);
    }
    for (int i = 0; i < kParts; ++i) narrow(sums[i] * scale, y + at + i * kLanes);
  }
  for_each_vector(size - at, [&](auto load, auto store, std::int64_t part) {
    Floats sum = {};
    for (std::int64_t t = 0; t < tokens; ++t) sum += weights[t] * load(values + t * size + at + part);
    store(sum * scale, y + at + part);
  });
}

template <class T>
void attend_item(const CachedAttentionForward& a, std::int64_t item, float* scratch) {
  const std::int64_t sequence = item / a.kv_heads, kv_head = item % a.kv_heads, group = a.heads / a.kv_heads;
  const std::int64_t size = a.head_dim, tokens = a.lengths[sequence] + 1;
  const std::int64_t head_stride = a.capacities[sequence] * size;
  T* const keys = static_cast<T*>(a.keys[sequence]) + kv_head * head_stride;
  T* const values = static_cast<T*>(a.values[sequence]) + kv_head * head_stride;
  const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
  __builtin_memcpy(keys + (tokens - 1) * size, static_cast<const T*>(a.k) + item * size, bytes);
  __builtin_memcpy(values + (tokens - 1) * size, static_cast<const T*>(a.v) + item * size, bytes);
  float* const q = scratch;
  float* const scores = scratch + (size + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const std::int64_t offset = (sequence * a.heads + head) * size;
    for_each_part(size, [&](auto load, std::int64_t at) {
      narrow(load(static_cast<const T*>(a.q) + offset + at) * a.scale, q + at);
    });
    score(q, keys, tokens, size, scores);
    float largest;
    const float sum = exponentials(scores, (tokens + kLanes - 1) / kLanes * kLanes, largest);
    mix(scores, values, tokens, size, 1.0f / sum, static_cast<T*>(a.y) + offset);
  }
}

void attend(const CachedAttentionForward& a, std::int64_t item, float* scratch) {
  switch (a.dtype) {
    case DType::float32:
      return attend_item<float>(a, item, scratch);
    case DType::bfloat16:
      return attend_item<BFloat16>(a, item, scratch);
    case DType::float16:
      return attend_item<Half>(a, item, scratch);
  }
}

}  // namespace

const CachedAttentionRows ILME_ROWS(kCachedAttention) = {attend};

}  // namespace ilme::kernels::cpu
