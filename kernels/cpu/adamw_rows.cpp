// One pass of AdamW over a range of a tensor's elements. The build compiles this file for the baseline, AVX2 and
// AVX-512; it includes nothing with inline functions of external linkage (see vectors.hpp).
//
// Traffic an element: reads the gradient; reads and writes both moments and the master (or the parameter); writes the
// rounded parameter beside a master.
#include "adamw_rows.hpp"

#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

/// MurmurHash3's last step: every bit of the word decides about every bit of the result.
inline Words mixed(Words word) {
  word = (word ^ (word >> 16)) * 0x85EBCA6BU;
  word = (word ^ (word >> 13)) * 0xC2B2AE35U;
  return word ^ (word >> 16);
}

/// Random words of the elements [at, at + 16).
inline Words random_words(std::uint64_t key, std::int64_t at) {
  constexpr Words kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const std::uint64_t first = static_cast<std::uint64_t>(at);
  const Words low = kLane + static_cast<std::uint32_t>(first);
  const Words carry = reinterpret_cast<Words>(low < kLane) & 1;
  const Words word = mixed(low + static_cast<std::uint32_t>(key));
  return mixed(word + carry + static_cast<std::uint32_t>((key >> 32) + (first >> 32)));
}

/// A bf16 that was rounded already: the upper half of a float32.
struct Upper {
  std::uint16_t bits;
};
inline void narrow(Floats value, Upper* to) {
  const Shorts bits = __builtin_convertvector(reinterpret_cast<Words>(value) >> 16, Shorts);
  __builtin_memcpy(to, &bits, sizeof bits);
}

/// With the upper half that of the bf16 below or above, by 16 random bits: in the mean the value itself. Infinity
/// stays, and NaN, which a carry could make a number.
inline Floats round_stochastically(Floats value, Words random) {
  const Words word = reinterpret_cast<Words>(value);
  return reinterpret_cast<Floats>(value == value ? word + random : word);
}

template <class A, class B>
constexpr bool kSame = false;
template <class A>
constexpr bool kSame<A, A> = true;

/// `Precise` is the type of what is updated, the master or the parameter, and of the first moment.
template <class Precise, class Parameter, class Gradient>
void update(const AdamWStep& a, const AdamWTensor& t, std::int64_t begin, std::int64_t end) {
  constexpr bool kMaster = !kSame<Precise, Parameter>, kStochastic = kSame<Precise, BFloat16>;
  Parameter* const parameter = static_cast<Parameter*>(t.parameter);
  Precise* const precise = static_cast<Precise*>(kMaster ? t.master : t.parameter);
  Precise* const exp_avg = static_cast<Precise*>(t.exp_avg);
  const Gradient* const gradient = static_cast<const Gradient*>(t.gradient);
  const float factor = a.divisor == nullptr ? 1.0f : 1.0f / *a.divisor;
  const float rest1 = static_cast<float>(1 - a.beta1), rest2 = static_cast<float>(1 - a.beta2);
  const float beta2 = static_cast<float>(a.beta2), epsilon = static_cast<float>(a.epsilon);
  for_each_vector(end - begin, [&](auto load, auto store, std::int64_t offset) {
    const std::int64_t at = begin + offset;
    const Floats g = load(gradient + at) * factor;
    Floats m = load(exp_avg + at), v = load(t.exp_avg_sq + at);
    m += (g - m) * rest1;
    v = v * beta2 + g * g * rest2;
    const Floats value = load(precise + at) * t.shrink - t.step_size * m / (square_root(v) * t.root_scale + epsilon);
    store(v, t.exp_avg_sq + at);
    if constexpr (kStochastic) {
      const Words random = random_words(t.key, t.first_element + at);
      store(round_stochastically(value, random & 0xFFFF), reinterpret_cast<Upper*>(precise) + at);
      store(round_stochastically(m, random >> 16), reinterpret_cast<Upper*>(exp_avg) + at);
    } else {
      store(value, precise + at);
      store(m, exp_avg + at);
      if constexpr (kMaster) store(value, parameter + at);
    }
  });
}

template <class Precise, class Parameter>
void update_from(const AdamWStep& a, const AdamWTensor& t, std::int64_t begin, std::int64_t end) {
  switch (t.gradient_dtype) {
    case DType::float32:
      return update<Precise, Parameter, float>(a, t, begin, end);
    case DType::bfloat16:
      return update<Precise, Parameter, BFloat16>(a, t, begin, end);
    case DType::float16:
      return update<Precise, Parameter, Half>(a, t, begin, end);
  }
}

void step(const AdamWStep& a, const AdamWTensor& t, std::int64_t begin, std::int64_t end) {
  switch (t.dtype) {
    case DType::float32:
      return update_from<float, float>(a, t, begin, end);
    case DType::bfloat16:
      return t.master == nullptr ? update_from<BFloat16, BFloat16>(a, t, begin, end)
                                 : update_from<float, BFloat16>(a, t, begin, end);
    case DType::float16:
      return update_from<float, Half>(a, t, begin, end);
  }
}

}  // namespace

const AdamWRows ILME_ROWS(kAdamW) = {step};

}  // namespace ilme::kernels::cpu
