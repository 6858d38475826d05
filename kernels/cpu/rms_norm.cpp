// Shares the rows of RMSNorm among the threads of libtorch.
#include "rms_norm.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "level.hpp"
#include "rms_norm_rows.hpp"

namespace ilme::kernels::cpu {
namespace {

constexpr std::int64_t kGrain = 32768;  // elements, as ATen's own loops

/// Rows a thread takes at least: fewer elements than this are not worth waking one.
std::int64_t grain(std::int64_t size) { return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, size)); }

/// Parts of the rows whose weight gradients are summed apart. Their number depends on the rows alone, not on the
/// threads, so the sum has the same bits on every machine with the same instruction set.
std::int64_t part_count(std::int64_t rows) { return std::clamp<std::int64_t>(rows / 8, 1, 32); }

}  // namespace

const RmsNormRows& rms_norm_rows() { return ILME_FASTEST_BODY(kRmsNorm); }

const char* rms_norm_forward(const RmsNormForward& a) {
  const RmsNormRows& rows = rms_norm_rows();
  at::parallel_for(0, a.rows, grain(a.size),
                   [&](std::int64_t begin, std::int64_t end) { rows.forward(a, begin, end); });
  return nullptr;
}

std::int64_t rms_norm_backward_workspace(std::int64_t rows, std::int64_t size) { return part_count(rows) * size; }

const char* rms_norm_backward(const RmsNormBackward& a) {
  const RmsNormRows& rows = rms_norm_rows();
  const std::int64_t parts = part_count(a.rows);
  const std::int64_t rows_per_part = (a.rows + parts - 1) / parts;
  at::parallel_for(0, parts, std::max<std::int64_t>(1, grain(a.size) / std::max<std::int64_t>(1, rows_per_part)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t part = begin; part < end; ++part) {
                       float* sums = a.dweight == nullptr ? nullptr : a.workspace + part * a.size;
                       if (sums != nullptr) std::fill_n(sums, a.size, 0.0f);
                       rows.backward(a, sums, std::min(a.rows, part * rows_per_part),
                                     std::min(a.rows, (part + 1) * rows_per_part));
                     }
                   });
  if (a.dweight == nullptr) return nullptr;
  at::parallel_for(0, a.size, kGrain / parts, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = 0; part < parts; ++part) {
      const float* const sums = a.workspace + part * a.size;
      for (std::int64_t i = begin; i < end; ++i) a.dweight[i] += sums[i];
    }
  });
  return nullptr;
}

}  // namespace ilme::kernels::cpu
