// Forward and backward of RMSNorm over a range of rows. The build compiles this file for the baseline, AVX2 and
// AVX-512; it includes nothing with inline functions of external linkage (see vectors.hpp).
//
// Traffic: forward reads x twice (the second time from cache) and writes y; backward reads dy and x twice, writes dx.
// With a branch forward reads that too and writes the sum, and backward reads the gradient of the sum.
#include "rms_norm_rows.hpp"

#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

template <class T>
void forward_rows(const RmsNormForward& a, std::int64_t begin, std::int64_t end) {
  const T* const weight = static_cast<const T*>(a.weight);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * a.size;
    T* const y = static_cast<T*>(a.y) + row * a.size;
    Floats squares = {};
    if (a.branch == nullptr) {
      for_each_vector(a.size, [&](auto load, auto, std::int64_t at) {
        const Floats v = load(x + at);
        squares += v * v;
      });
    } else {
      const T* const branch = static_cast<const T*>(a.branch) + row * a.size;
      T* const sum = static_cast<T*>(a.sum) + row * a.size;
      for_each_vector(a.size, [&](auto load, auto store, std::int64_t at) {
        const Floats v = round_to<T>(load(x + at) + load(branch + at));
        squares += v * v;
        store(v, sum + at);
      });
      x = sum;
    }
    const float inv_rms = 1.0f / __builtin_sqrtf(sum_lanes(squares) / static_cast<float>(a.size) + a.eps);
    if (a.inv_rms != nullptr) a.inv_rms[row] = inv_rms;
    for_each_vector(a.size, [&](auto load, auto store, std::int64_t at) {
      store(round_to<T>(load(x + at) * inv_rms) * load(weight + at), y + at);
    });
  }
}

template <class T>
void backward_rows(const RmsNormBackward& a, float* dweight, std::int64_t begin, std::int64_t end) {
  const T* const weight = static_cast<const T*>(a.weight);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const x = static_cast<const T*>(a.x) + row * a.size;
    const T* const dy = static_cast<const T*>(a.dy) + row * a.size;
    const T* const dsum = a.dsum == nullptr ? nullptr : static_cast<const T*>(a.dsum) + row * a.size;
    T* const dx = static_cast<T*>(a.dx) + row * a.size;
    const float inv_rms = a.inv_rms[row];
    Floats products = {};
    for_each_vector(a.size, [&](auto load, auto, std::int64_t at) {
      products += load(dy + at) * load(weight + at) * load(x + at);
    });
    const float mean = sum_lanes(products) * inv_rms / static_cast<float>(a.size);
    for_each_vector(a.size, [&](auto load, auto store, std::int64_t at) {
      const Floats normal = load(x + at) * inv_rms, gradient = load(dy + at);
      Floats result = inv_rms * (gradient * load(weight + at) - normal * mean);
      if (dsum != nullptr) result += load(dsum + at);
      store(result, dx + at);
      if (dweight != nullptr) store(load(dweight + at) + gradient * normal, dweight + at);
    });
  }
}

void forward(const RmsNormForward& a, std::int64_t begin, std::int64_t end) {
  with_element(a.dtype, [&](auto element) { forward_rows<decltype(element)>(a, begin, end); });
}

void backward(const RmsNormBackward& a, float* dweight, std::int64_t begin, std::int64_t end) {
  with_element(a.dtype, [&](auto element) { backward_rows<decltype(element)>(a, dweight, begin, end); });
}

}  // namespace

const RmsNormRows ILME_ROWS(kRmsNorm) = {forward, backward};

}  // namespace ilme::kernels::cpu
