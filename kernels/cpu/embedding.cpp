// Shares the columns of an embedding's gradient among the threads of libtorch: each thread adds all tokens in order to
// columns of its own, so that frequent ids neither collide nor unbalance, and the bits do not depend on the threads.
#include "embedding.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "embedding_rows.hpp"
#include "level.hpp"

namespace ilme::kernels::cpu {

const EmbeddingRows& embedding_rows() { return ILME_FASTEST_BODY(kEmbedding); }

const char* embedding_backward(const EmbeddingBackward& a) {
  constexpr std::int64_t kGrain = 32768;  // elements that are worth waking a thread
  constexpr std::int64_t kLine = 16;      // columns at a time: no two threads write to one cache line
  const EmbeddingRows& rows = embedding_rows();
  const std::int64_t elements = kLine * std::max<std::int64_t>(1, a.tokens);
  at::parallel_for(
      0, (a.size + kLine - 1) / kLine, std::max<std::int64_t>(1, kGrain / elements),
      [&](std::int64_t begin, std::int64_t end) { rows.add(a, begin * kLine, std::min(a.size, end * kLine)); });
  return nullptr;
}

}  // namespace ilme::kernels::cpu
