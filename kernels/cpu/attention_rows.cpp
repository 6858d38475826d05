// Causal attention within one document: all heads of queries that share a head of keys and values. Everything is
// float32 inside; rows of queries are taken a few at a time, so that what lies between the two products stays in the
// cache, and columns beyond a row's own position are not computed except to fill a vector or a block.
#include "attention_rows.hpp"

#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

constexpr std::int64_t kBlock = 32;  // rows of queries at a time
#if defined(__AVX512F__)
constexpr int kTileRows = 4, kTileVectors = 4;  // of sums in registers
#else
constexpr int kTileRows = 4, kTileVectors = 1;
#endif

std::int64_t whole_vectors(std::int64_t size) { return (size + kLanes - 1) / kLanes * kLanes; }

/// A matrix whose element (m, k) is at data[m * row + k * column].
struct Left {
  const float* data;
  std::int64_t row, column;
};

template <int Rows, int Vectors, bool Add>
void multiply_tile(Left a, const float* b, std::int64_t b_row, float* c, std::int64_t c_row, std::int64_t depth) {
  Floats sums[Rows][Vectors];
  for (int m = 0; m < Rows; ++m) {
    for (int n = 0; n < Vectors; ++n) sums[m][n] = Add ? widen(c + m * c_row + n * kLanes) : Floats{};
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Floats right[Vectors];
    for (int n = 0; n < Vectors; ++n) right[n] = widen(b + k * b_row + n * kLanes);
    for (int m = 0; m < Rows; ++m) {
      const float left = a.data[m * a.row + k * a.column];
      for (int n = 0; n < Vectors; ++n) sums[m][n] += right[n] * left;
    }
  }
  for (int m = 0; m < Rows; ++m) {
    for (int n = 0; n < Vectors; ++n) narrow(sums[m][n], c + m * c_row + n * kLanes);
  }
}

template <int Rows, bool Add>
void multiply_rows(Left a, const float* b, std::int64_t b_row, float* c, std::int64_t c_row, std::int64_t columns,
                   std::int64_t depth) {
  std::int64_t n = 0;
  for (; n + kTileVectors * kLanes <= columns; n += kTileVectors * kLanes) {
    multiply_tile<Rows, kTileVectors, Add>(a, b + n, b_row, c + n, c_row, depth);
  }
  for (; n < columns; n += kLanes) multiply_tile<Rows, 1, Add>(a, b + n, b_row, c + n, c_row, depth);
}

/// c [rows, columns] = a [rows, depth] @ b [depth, columns], or is added to; columns in whole vectors.
template <bool Add>
void multiply(Left a, const float* b, std::int64_t b_row, float* c, std::int64_t c_row, std::int64_t rows,
              std::int64_t columns, std::int64_t depth) {
  std::int64_t m = 0;
  for (; m + kTileRows <= rows; m += kTileRows) {
    multiply_rows<kTileRows, Add>({a.data + m * a.row, a.row, a.column}, b, b_row, c + m * c_row, c_row, columns,
                                  depth);
  }
  for (; m < rows; ++m) {
    multiply_rows<1, Add>({a.data + m * a.row, a.row, a.column}, b, b_row, c + m * c_row, c_row, columns, depth);
  }
}

/// `rows` rows of elements, `from_row` apart, as float32 rows of `width` (whole vectors; the rest is zero), times
/// `scale`.
template <class T>
void load_rows(const T* from, std::int64_t from_row, std::int64_t rows, std::int64_t size, std::int64_t width,
               float scale, float* to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for_each_vector(size, [&](auto load, auto, std::int64_t at) {
      narrow(load(from + i * from_row + at) * scale, to + i * width + at);
    });
  }
}

/// The same, transposed: to [width, columns], columns >= rows, zero where there is no element.
template <class T>
void load_columns(const T* from, std::int64_t from_row, std::int64_t rows, std::int64_t size, std::int64_t width,
                  std::int64_t columns, float* to) {
  for (std::int64_t i = 0; i < width * columns; ++i) to[i] = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    for_each_vector(size, [&](auto load, auto, std::int64_t at) {
      const Floats values = load(from + i * from_row + at);
      for (std::int64_t lane = 0; lane < kLanes; ++lane) to[(at + lane) * columns + i] = values[lane];
    });
  }
}

template <class T>
void store_rows(const float* from, std::int64_t width, std::int64_t rows, std::int64_t size, T* to,
                std::int64_t to_row) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for_each_vector(size, [&](auto load, auto store, std::int64_t at) {
      store(load(from + i * width + at), to + i * to_row + at);
    });
  }
}

/// Hides the columns after `last` of a row of scores.
void hide_after(float* scores, std::int64_t last, std::int64_t columns) {
  for (std::int64_t j = last + 1; j < columns; ++j) scores[j] = -__builtin_inff();
}

/// Where everything of one document and head lies.
struct Place {
  Place(const PackedDocuments& p, std::int64_t document, std::int64_t kv_head)
      : begin(p.offsets[document]),
        length(p.offsets[document + 1] - begin),
        columns(whole_vectors(length)),
        width(whole_vectors(p.head_dim)),
        group(p.heads / p.kv_heads),
        q_row(p.heads * p.head_dim),
        kv_row(p.kv_heads * p.head_dim),
        kv_start(begin * kv_row + kv_head * p.head_dim) {}
  std::int64_t q_start(const PackedDocuments& p, std::int64_t row, std::int64_t head) const {
    return (begin + row) * q_row + head * p.head_dim;
  }
  std::int64_t begin, length, columns, width, group, q_row, kv_row, kv_start;
};

template <class T>
void forward_head(const AttentionForward& a, std::int64_t document, std::int64_t kv_head, float* workspace) {
  const PackedDocuments& p = a.packed;
  const Place place(p, document, kv_head);
  const std::int64_t columns = place.columns, width = place.width;
  float* const keys_t = workspace;                   // [width, columns]
  float* const values = keys_t + width * columns;    // [length, width]
  float* const scores = values + columns * width;    // [kBlock, columns]
  float* const queries = scores + kBlock * columns;  // [kBlock, width]; then the output
  load_columns(static_cast<const T*>(a.k) + place.kv_start, place.kv_row, place.length, p.head_dim, width, columns,
               keys_t);
  load_rows(static_cast<const T*>(a.v) + place.kv_start, place.kv_row, place.length, p.head_dim, width, 1.0f, values);
  for (std::int64_t head = kv_head * place.group; head < (kv_head + 1) * place.group; ++head) {
    for (std::int64_t first = 0; first < place.length; first += kBlock) {
      const std::int64_t rows = place.length - first < kBlock ? place.length - first : kBlock;
      const std::int64_t seen = first + rows, seen_columns = whole_vectors(seen);
      load_rows(static_cast<const T*>(a.q) + place.q_start(p, first, head), place.q_row, rows, p.head_dim, width,
                p.scale, queries);
      multiply<false>({queries, width, 1}, keys_t, columns, scores, columns, rows, seen_columns, p.head_dim);
      for (std::int64_t i = 0; i < rows; ++i) {
        float* const row = scores + i * columns;
        hide_after(row, first + i, seen_columns);
        float highest;
        const float sum = exponentials(row, seen_columns, highest), inverse = 1.0f / sum;
        for (std::int64_t j = 0; j < seen_columns; j += kLanes) narrow(widen(row + j) * inverse, row + j);
        a.log_sum[(place.begin + first + i) * p.heads + head] = highest + __builtin_logf(sum);
      }
      multiply<false>({scores, columns, 1}, values, width, queries, width, rows, width, seen);
      store_rows(queries, width, rows, p.head_dim, static_cast<T*>(a.out) + place.q_start(p, first, head), place.q_row);
    }
  }
}

template <class T>
void backward_head(const AttentionBackward& a, std::int64_t document, std::int64_t kv_head, float* workspace) {
  const PackedDocuments& p = a.packed;
  const Place place(p, document, kv_head);
  const std::int64_t columns = place.columns, width = place.width, matrix = columns * width;
  float* const keys_t = workspace;          // [width, columns]
  float* const values_t = keys_t + matrix;  // [width, columns]
  float* const keys = values_t + matrix;    // [length, width]
  float* const dk = keys + matrix;          // [length, width]
  float* const dv = dk + matrix;            // [length, width]
  float* const weights = dv + matrix;       // [kBlock, columns]
  float* const d_scores = weights + kBlock * columns;
  float* const queries = d_scores + kBlock * columns;  // [kBlock, width]
  float* const d_out = queries + kBlock * width;
  float* const dq = d_out + kBlock * width;
  const T* const k = static_cast<const T*>(a.k) + place.kv_start;
  load_columns(k, place.kv_row, place.length, p.head_dim, width, columns, keys_t);
  load_columns(static_cast<const T*>(a.v) + place.kv_start, place.kv_row, place.length, p.head_dim, width, columns,
               values_t);
  load_rows(k, place.kv_row, place.length, p.head_dim, width, 1.0f, keys);
  for (std::int64_t i = 0; i < place.length * width; ++i) dk[i] = dv[i] = 0;
  for (std::int64_t head = kv_head * place.group; head < (kv_head + 1) * place.group; ++head) {
    for (std::int64_t first = 0; first < place.length; first += kBlock) {
      const std::int64_t rows = place.length - first < kBlock ? place.length - first : kBlock;
      const std::int64_t seen = first + rows, seen_columns = whole_vectors(seen);
      load_rows(static_cast<const T*>(a.q) + place.q_start(p, first, head), place.q_row, rows, p.head_dim, width,
                p.scale, queries);
      load_rows(static_cast<const T*>(a.dout) + place.q_start(p, first, head), place.q_row, rows, p.head_dim, width,
                1.0f, d_out);
      multiply<false>({queries, width, 1}, keys_t, columns, weights, columns, rows, seen_columns, p.head_dim);
      multiply<false>({d_out, width, 1}, values_t, columns, d_scores, columns, rows, seen_columns, p.head_dim);
      for (std::int64_t i = 0; i < rows; ++i) {
        float *const weight = weights + i * columns, *const d_score = d_scores + i * columns;
        const float log_sum = a.log_sum[(place.begin + first + i) * p.heads + head];
        hide_after(weight, first + i, seen_columns);
        Floats products = {};
        for (std::int64_t j = 0; j < seen_columns; j += kLanes) {
          const Floats w = exp_of_negative(widen(weight + j) - log_sum);
          narrow(w, weight + j);
          products += w * widen(d_score + j);
        }
        const float mean = sum_lanes(products);
        for (std::int64_t j = 0; j < seen_columns; j += kLanes) {
          narrow(widen(weight + j) * (widen(d_score + j) - mean), d_score + j);
        }
      }
      multiply<false>({d_scores, columns, 1}, keys, width, dq, width, rows, width, seen);
      for (std::int64_t i = 0; i < rows * width; i += kLanes) narrow(widen(dq + i) * p.scale, dq + i);
      store_rows(dq, width, rows, p.head_dim, static_cast<T*>(a.dq) + place.q_start(p, first, head), place.q_row);
      multiply<true>({d_scores, 1, columns}, queries, width, dk, width, seen, width, rows);  // queries hold the scale
      multiply<true>({weights, 1, columns}, d_out, width, dv, width, seen, width, rows);
    }
  }
  store_rows(dk, width, place.length, p.head_dim, static_cast<T*>(a.dk) + place.kv_start, place.kv_row);
  store_rows(dv, width, place.length, p.head_dim, static_cast<T*>(a.dv) + place.kv_start, place.kv_row);
}

void forward(const AttentionForward& a, std::int64_t document, std::int64_t kv_head, float* workspace) {
  switch (a.packed.dtype) {
    case DType::float32:
      return forward_head<float>(a, document, kv_head, workspace);
    case DType::bfloat16:
      return forward_head<BFloat16>(a, document, kv_head, workspace);
    case DType::float16:
      return forward_head<Half>(a, document, kv_head, workspace);
  }
}

void backward(const AttentionBackward& a, std::int64_t document, std::int64_t kv_head, float* workspace) {
  switch (a.packed.dtype) {
    case DType::float32:
      return backward_head<float>(a, document, kv_head, workspace);
    case DType::bfloat16:
      return backward_head<BFloat16>(a, document, kv_head, workspace);
    case DType::float16:
      return backward_head<Half>(a, document, kv_head, workspace);
  }
}

std::int64_t workspace(std::int64_t length, std::int64_t head_dim, bool backward) {
  const std::int64_t columns = whole_vectors(length), width = whole_vectors(head_dim);
  return (backward ? 5 : 2) * columns * width + (backward ? 2 : 1) * kBlock * columns + 3 * kBlock * width;
}

}  // namespace

const AttentionRows ILME_ROWS(kAttention) = {forward, backward, workspace};

}  // namespace ilme::kernels::cpu
