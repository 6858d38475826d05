// Rotary position embedding of queries and keys over a range of tokens.
//
// Traffic: every element is read and written once; a token's angles stay in the first cache for all of its heads.
#include "rope_rows.hpp"

#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

/// `direction` is 1, or -1 for the opposite angle.
template <class T>
void rotate_heads(const T* from, T* to, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin,
                  float direction) {
  const std::int64_t half = head_dim / 2;
  for (const T* const end = from + heads * head_dim; from != end; from += head_dim, to += head_dim) {
    for_each_vector(half, [&](auto load, auto store, std::int64_t at) {
      const Floats a = load(from + at), b = load(from + half + at), c = load(cos + at), s = load(sin + at) * direction;
      store(a * c - b * s, to + at);
      store(b * c + a * s, to + half + at);
    });
  }
}

template <class T>
void rotate_tokens(const Rope& a, std::int64_t begin, std::int64_t end) {
  const float direction = a.backward ? -1.0f : 1.0f;
  const std::int64_t q_row = a.heads * a.head_dim, k_row = a.kv_heads * a.head_dim;
  for (std::int64_t token = begin; token < end; ++token) {
    const float *const cos = a.cos + token * a.head_dim, *const sin = a.sin + token * a.head_dim;
    rotate_heads(static_cast<const T*>(a.q) + token * q_row, static_cast<T*>(a.q_out) + token * q_row, a.heads,
                 a.head_dim, cos, sin, direction);
    rotate_heads(static_cast<const T*>(a.k) + token * k_row, static_cast<T*>(a.k_out) + token * k_row, a.kv_heads,
                 a.head_dim, cos, sin, direction);
  }
}

void rotate(const Rope& a, std::int64_t begin, std::int64_t end) {
  with_element(a.dtype, [&](auto element) { rotate_tokens<decltype(element)>(a, begin, end); });
}

}  // namespace

const RopeRows ILME_ROWS(kRope) = {rotate};

}  // namespace ilme::kernels::cpu
