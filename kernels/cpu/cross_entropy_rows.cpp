// Losses and gradients of a range of rows of logits. The build compiles this file for the baseline, AVX2 and AVX-512;
// it includes nothing with inline functions of external linkage (see vectors.hpp).
//
// Traffic: the losses read the logits once; the gradient reads them (right after the losses: from the cache, a row of
// 128,256 bf16 logits takes 256 kB) and writes.
#include "cross_entropy_rows.hpp"

#include "softmax.hpp"
#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

/// A vector of the softmax part of the gradient, and what c(x) multiplies it by.
struct Part {
  Floats gradient, slope;
};

template <class T>
void fill_zero(T* to, std::int64_t count) {
  __builtin_memset(to, 0, static_cast<std::size_t>(count) * sizeof(T));
}

template <class T, class Cap>
void forward_row(const CrossEntropy& a, Cap cap, std::int64_t row) {
  const T* const x = static_cast<const T*>(a.logits) + row * a.stride;
  OnlineSoftmax softmax;
  Floats sums = {};
  const bool smooth = a.label_smoothing != 0.0f;
  for (std::int64_t begin = 0; begin < a.vocabulary; begin += OnlineSoftmax::kBlock) {
    const std::int64_t left = a.vocabulary - begin;
    softmax.add(left < OnlineSoftmax::kBlock ? left : OnlineSoftmax::kBlock, [&](auto load, std::int64_t at) {
      const Floats value = cap.value(load(x + begin + at));
      if (smooth) sums += value;  // past the end of a row `load` gives 0, and so does the cap
      return value;
    });
  }
  const float log_normalizer = softmax.log_normalizer();
  const float chosen = cap.value(widen_part(x + a.labels[row], 1))[0];
  float loss = log_normalizer - chosen;
  if (smooth) loss += a.label_smoothing * (chosen - sum_lanes(sums) / static_cast<float>(a.vocabulary));
  if (a.z_loss != 0.0f) loss += a.z_loss * log_normalizer * log_normalizer;
  a.log_normalizer[row] = log_normalizer;
  if (a.loss != nullptr) a.loss[row] = loss;
  if (a.log_probability != nullptr) a.log_probability[row] = chosen - log_normalizer;
}

template <class T, class Cap>
void gradient_row(const CrossEntropy& a, Cap cap, std::int64_t row) {
  const T* const x = static_cast<const T*>(a.logits) + row * a.stride;
  T* const gradient = static_cast<T*>(a.gradient) + row * a.stride;
  const float scale = a.scales == nullptr ? 1.0f : a.scales[row], log_normalizer = a.log_normalizer[row];
  const float weight = scale * (1.0f + 2.0f * a.z_loss * log_normalizer);
  const float offset = scale * a.label_smoothing / static_cast<float>(a.vocabulary);
  const auto without_label = [&](Floats logits) {
    const Floats value = cap.value(logits);
    return Part{exp_of_negative(value - log_normalizer) * weight - offset, cap.slope(value)};
  };
  const std::int64_t label = a.labels[row];
  const Part at_label = without_label(widen_part(x + label, 1));  // before it is written over
  for_each_vector(a.vocabulary, [&](auto load, auto store, std::int64_t at) {
    const Part part = without_label(load(x + at));
    store(part.gradient * part.slope, gradient + at);
  });
  narrow_part((at_label.gradient - scale * (1.0f - a.label_smoothing)) * at_label.slope, gradient + label, 1);
  fill_zero(gradient + a.vocabulary, a.stride - a.vocabulary);
}

template <class T, class Cap>
void rows_of(const CrossEntropy& a, Cap cap, bool forward, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    if (a.labels[row] == a.ignore_index) {
      if (forward) {
        a.log_normalizer[row] = 0.0f;
        if (a.loss != nullptr) a.loss[row] = 0.0f;
        if (a.log_probability != nullptr) a.log_probability[row] = 0.0f;
      }
      if (a.gradient != nullptr) fill_zero(static_cast<T*>(a.gradient) + row * a.stride, a.stride);
      continue;
    }
    if (forward) forward_row<T>(a, cap, row);
    if (a.gradient != nullptr) gradient_row<T>(a, cap, row);
  }
}

template <class T>
void rows_of(const CrossEntropy& a, bool forward, std::int64_t begin, std::int64_t end) {
  if (a.soft_cap > 0.0f) {
    rows_of<T>(a, SoftCapped(a.soft_cap), forward, begin, end);
  } else {
    rows_of<T>(a, Plain{}, forward, begin, end);
  }
}

void rows_of(const CrossEntropy& a, bool forward, std::int64_t begin, std::int64_t end) {
  switch (a.dtype) {
    case DType::float32:
      return rows_of<float>(a, forward, begin, end);
    case DType::bfloat16:
      return rows_of<BFloat16>(a, forward, begin, end);
    case DType::float16:
      return rows_of<Half>(a, forward, begin, end);
  }
}

void forward(const CrossEntropy& a, std::int64_t begin, std::int64_t end) { rows_of(a, true, begin, end); }
void backward(const CrossEntropy& a, std::int64_t begin, std::int64_t end) { rows_of(a, false, begin, end); }

}  // namespace

const CrossEntropyRows ILME_ROWS(kCrossEntropy) = {forward, backward};

}  // namespace ilme::kernels::cpu
