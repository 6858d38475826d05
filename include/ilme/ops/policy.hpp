/// The operation policies that models are templates over: the plain ATen path, and the fused one.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ilme/ops/attention.hpp>
#include <ilme/ops/cached_attention.hpp>
#include <ilme/ops/embedding.hpp>
#include <ilme/ops/rms_norm.hpp>
#include <ilme/ops/rope.hpp>
#include <ilme/ops/swiglu.hpp>

namespace ilme::ops {

/// What a model needs of its operations. A policy of your own has these static functions; see ops/*.hpp for the shapes.
template <class Ops>
concept ModelOperations = requires(const at::Tensor& t, double eps, const std::vector<std::int64_t>& offsets,
                                   std::span<LayerCache* const> caches) {
  { Ops::embedding(t, t) } -> std::convertible_to<at::Tensor>;
  { Ops::rms_norm(t, t, eps) } -> std::convertible_to<at::Tensor>;
  { Ops::add_rms_norm(t, t, t, eps) } -> std::convertible_to<std::pair<at::Tensor, at::Tensor>>;
  { Ops::rope(t, t, t, t) } -> std::convertible_to<std::pair<at::Tensor, at::Tensor>>;
  { Ops::swiglu(t, t) } -> std::convertible_to<at::Tensor>;
  { Ops::attention(t, t, t, offsets) } -> std::convertible_to<at::Tensor>;
  { Ops::cached_attention(t, t, t, caches) } -> std::convertible_to<at::Tensor>;
};

/// Plain ATen operations, step for step as Transformers computes them.
struct Reference {
  static at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids) {
    return embedding_reference(weight, ids);
  }
  static at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
    return rms_norm_reference(x, weight, eps);
  }
  static std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& branch,
                                                        const at::Tensor& weight, double eps) {
    return add_rms_norm_reference(x, branch, weight, eps);
  }
  static std::pair<at::Tensor, at::Tensor> rope(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos,
                                                const at::Tensor& sin) {
    return rope_reference(q, k, cos, sin);
  }
  static at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return swiglu_reference(gate, up); }
  static at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<std::int64_t>& sequence_offsets) {
    return attention_reference(q, k, v, sequence_offsets);
  }
  static at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     std::span<LayerCache* const> caches) {
    return cached_attention_reference(q, k, v, caches);
  }
};

/// As Reference, with the operations that have a fused form replaced by it.
struct Fused : Reference {
  static at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
    return ops::rms_norm(x, weight, eps);
  }
  static std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& branch,
                                                        const at::Tensor& weight, double eps) {
    return ops::add_rms_norm(x, branch, weight, eps);
  }
  static std::pair<at::Tensor, at::Tensor> rope(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos,
                                                const at::Tensor& sin) {
    return ops::rope(q, k, cos, sin);
  }
  static at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return ops::swiglu(gate, up); }
  static at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids) { return ops::embedding(weight, ids); }
  static at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     std::span<LayerCache* const> caches) {
    return ops::cached_attention(q, k, v, caches);
  }
  static at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<std::int64_t>& sequence_offsets) {
    return ops::attention(q, k, v, sequence_offsets);
  }
};

}  // namespace ilme::ops
