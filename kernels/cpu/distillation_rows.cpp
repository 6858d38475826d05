// Distillation over a range of rows. The build compiles this file for the baseline, AVX2 and AVX-512; it includes
// nothing with inline functions of external linkage (see vectors.hpp).
//
// Traffic: student and teacher are read once from memory and twice more from the cache; the gradient is written.
#include "distillation_rows.hpp"

#include "softmax.hpp"
#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

/// weight * term, 0 where the weight is: the limit of p log p.
inline Floats weighted(Floats weight, Floats term) { return weight == 0.0f ? Floats{} : weight * term; }

template <class T, class Cap>
void row_of(const Distillation& a, Cap cap, std::int64_t row) {
  const T* const student = static_cast<const T*>(a.student) + row * a.vocabulary;
  const T* const teacher = static_cast<const T*>(a.teacher) + row * a.vocabulary;
  const float cooling = 1.0f / a.temperature;
  OnlineSoftmax plain, of_student, of_teacher;
  for (std::int64_t begin = 0; begin < a.vocabulary; begin += OnlineSoftmax::kBlock) {
    const std::int64_t left = a.vocabulary - begin;
    const std::int64_t size = left < OnlineSoftmax::kBlock ? left : OnlineSoftmax::kBlock;
    const auto add = [&](OnlineSoftmax& softmax, const T* logits, float factor) {
      softmax.add(size, [&](auto load, std::int64_t at) { return cap.value(load(logits + begin + at)) * factor; });
    };
    add(plain, student, 1.0f);
    add(of_student, student, cooling);
    add(of_teacher, teacher, cooling);
  }
  const float normalizer = plain.log_normalizer();
  const float student_normalizer = of_student.log_normalizer(), teacher_normalizer = of_teacher.log_normalizer();
  const std::int64_t label = a.labels[row];
  const Floats chosen = cap.value(widen_part(student + label, 1));
  a.cross_entropy[row] = normalizer - chosen[0];

  Floats sums = {};
  for_each_vector(a.vocabulary, [&](auto load, auto, std::int64_t at) {
    const Floats log_p = cap.value(load(student + at)) * cooling - student_normalizer;
    const Floats log_q = cap.value(load(teacher + at)) * cooling - teacher_normalizer;
    Floats term =
        a.reverse ? weighted(exp_of_negative(log_p), log_p - log_q) : weighted(exp_of_negative(log_q), log_q - log_p);
    const std::int64_t left = a.vocabulary - at;
    for (std::int64_t lane = left; lane < kLanes; ++lane) term[lane] = 0.0f;
    sums += term;
  });
  const float divergence = sum_lanes(sums);
  a.divergence[row] = a.temperature * a.temperature * divergence;
  if (a.gradient == nullptr) return;

  T* const gradient = static_cast<T*>(a.gradient) + row * a.vocabulary;
  const float share = a.cross_entropy_weight, rest = (1.0f - share) * a.temperature;
  const auto part = [&](Floats s, Floats t) {
    const Floats log_p = s * cooling - student_normalizer, log_q = t * cooling - teacher_normalizer;
    const Floats p = exp_of_negative(log_p);
    const Floats pull = a.reverse ? weighted(p, log_p - log_q - divergence) : p - exp_of_negative(log_q);
    return share * exp_of_negative(s - normalizer) + rest * pull;
  };
  const Floats at_label =  // before it is written over
      (part(chosen, cap.value(widen_part(teacher + label, 1))) - share) * cap.slope(chosen);
  for_each_vector(a.vocabulary, [&](auto load, auto store, std::int64_t at) {
    const Floats s = cap.value(load(student + at));
    store(part(s, cap.value(load(teacher + at))) * cap.slope(s), gradient + at);
  });
  narrow_part(at_label, gradient + label, 1);
}

template <class T>
void rows_of(const Distillation& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    if (a.soft_cap > 0.0f) {
      row_of<T>(a, SoftCapped(a.soft_cap), row);
    } else {
      row_of<T>(a, Plain{}, row);
    }
  }
}

void rows(const Distillation& a, std::int64_t begin, std::int64_t end) {
  switch (a.dtype) {
    case DType::float32:
      return rows_of<float>(a, begin, end);
    case DType::bfloat16:
      return rows_of<BFloat16>(a, begin, end);
    case DType::float16:
      return rows_of<Half>(a, begin, end);
  }
}

}  // namespace

const DistillationRows ILME_ROWS(kDistillation) = {rows};

}  // namespace ilme::kernels::cpu
