// Shares documents and heads of packed attention among the threads of libtorch.
#include "attention.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention_rows.hpp"
#include "level.hpp"

namespace ilme::kernels::cpu {
namespace {

/// work(document, kv_head, workspace) for all of both, in parts of about equal work. The parts of a result are
/// independent of each other, so it has the same bits for any number of threads.
template <class Work>
void for_each_head(const PackedDocuments& a, std::int64_t workspace_size, const Work& work) {
  constexpr std::int64_t kPartsPerThread = 4, kSmall = 1 << 20;  // multiplications that are not worth a second thread
  std::vector<std::int64_t> work_before(static_cast<std::size_t>(a.documents) + 1, 0);
  for (std::int64_t d = 0; d < a.documents; ++d) {
    const std::int64_t length = a.offsets[d + 1] - a.offsets[d];
    work_before[d + 1] = work_before[d] + length * (length + 32);
  }
  const std::int64_t total = work_before.back() * a.kv_heads;
  const std::int64_t parts = total * a.head_dim < kSmall ? 1 : at::get_num_threads() * kPartsPerThread;
  // Task t is document t / kv_heads and head t % kv_heads; a part ends where its share of the work is reached.
  const auto first_task = [&](std::int64_t part) {
    if (part == parts) return a.documents * a.kv_heads;
    const std::int64_t share =
        static_cast<std::int64_t>(static_cast<double>(total) * static_cast<double>(part) / static_cast<double>(parts));
    const auto next = std::upper_bound(work_before.begin(), work_before.end(), share / a.kv_heads);
    const std::int64_t document = next - work_before.begin() - 1;
    const std::int64_t rest = share - work_before[document] * a.kv_heads;
    return document * a.kv_heads + rest / std::max<std::int64_t>(1, work_before[document + 1] - work_before[document]);
  };
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    const std::unique_ptr<float[]> workspace(new float[static_cast<std::size_t>(workspace_size)]);
    const std::int64_t last = first_task(end);
    for (std::int64_t task = first_task(begin); task < last; ++task) {
      work(task / a.kv_heads, task % a.kv_heads, workspace.get());
    }
  });
}

std::int64_t longest(const PackedDocuments& a) {
  std::int64_t length = 0;
  for (std::int64_t d = 0; d < a.documents; ++d) length = std::max(length, a.offsets[d + 1] - a.offsets[d]);
  return length;
}

}  // namespace

const AttentionRows& attention_rows() { return ILME_FASTEST_BODY(kAttention); }

const char* attention_forward(const AttentionForward& a) {
  const AttentionRows& rows = attention_rows();
  for_each_head(a.packed, rows.workspace(longest(a.packed), a.packed.head_dim, false),
                [&](std::int64_t document, std::int64_t kv_head, float* workspace) {
                  rows.forward(a, document, kv_head, workspace);
                });
  return nullptr;
}

const char* attention_backward(const AttentionBackward& a) {
  const AttentionRows& rows = attention_rows();
  for_each_head(a.packed, rows.workspace(longest(a.packed), a.packed.head_dim, true),
                [&](std::int64_t document, std::int64_t kv_head, float* workspace) {
                  rows.backward(a, document, kv_head, workspace);
                });
  return nullptr;
}

}  // namespace ilme::kernels::cpu
