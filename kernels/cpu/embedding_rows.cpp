// Adds the rows of a gradient to the rows of a float32 sum that ids name, over a range of columns.
//
// Traffic: a token's gradient is read, its row of the sum is read and written.
#include "embedding_rows.hpp"

#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

template <class T>
void add_columns(const EmbeddingBackward& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t token = 0; token < a.tokens; ++token) {
    const T* const from = static_cast<const T*>(a.gradient) + token * a.size + begin;
    float* const to = a.sum + a.ids[token] * a.size + begin;
    for_each_vector(end - begin,
                    [&](auto load, auto store, std::int64_t at) { store(load(to + at) + load(from + at), to + at); });
  }
}

void add(const EmbeddingBackward& a, std::int64_t begin, std::int64_t end) {
  with_element(a.dtype, [&](auto element) { add_columns<decltype(element)>(a, begin, end); });
}

}  // namespace

const EmbeddingRows ILME_ROWS(kEmbedding) = {add};

}  // namespace ilme::kernels::cpu
