// Forward and backward of SwiGLU over a range of elements. The backward computes the activation again from the gate:
// reading a saved one would cost more than the exponential.
//
// Traffic: forward reads two tensors and writes one; backward reads three and writes two.
#include "swiglu_rows.hpp"

#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

template <class T>
void forward_elements(const SwigluForward& a, std::int64_t begin, std::int64_t end) {
  const T *const gate = static_cast<const T*>(a.gate) + begin, *const up = static_cast<const T*>(a.up) + begin;
  T* const out = static_cast<T*>(a.out) + begin;
  for_each_vector(end - begin, [&](auto load, auto store, std::int64_t at) {
    const Floats x = load(gate + at);
    store(x * sigmoid(x) * load(up + at), out + at);
  });
}

template <class T>
void backward_elements(const SwigluBackward& a, std::int64_t begin, std::int64_t end) {
  const T *const gate = static_cast<const T*>(a.gate) + begin, *const up = static_cast<const T*>(a.up) + begin,
                 *const dout = static_cast<const T*>(a.dout) + begin;
  T *const dgate = static_cast<T*>(a.dgate) + begin, *const dup = static_cast<T*>(a.dup) + begin;
  for_each_vector(end - begin, [&](auto load, auto store, std::int64_t at) {
    const Floats x = load(gate + at), gradient = load(dout + at), y = load(up + at);
    const Floats s = sigmoid(x), scaled = gradient * s;
    store(scaled * x, dup + at);
    store(scaled * y * (1.0f + x * (1.0f - s)), dgate + at);
  });
}

void forward(const SwigluForward& a, std::int64_t begin, std::int64_t end) {
  with_element(a.dtype, [&](auto element) { forward_elements<decltype(element)>(a, begin, end); });
}

void backward(const SwigluBackward& a, std::int64_t begin, std::int64_t end) {
  with_element(a.dtype, [&](auto element) { backward_elements<decltype(element)>(a, begin, end); });
}

}  // namespace

const SwigluRows ILME_ROWS(kSwiglu) = {forward, backward};

}  // namespace ilme::kernels::cpu
