/// How compiled kernels (the optional target ilme::kernels) plug in: plain structs of pointers and sizes, and a table
/// of functions. Nothing of torch or CUDA is named here, so a kernel compiles in a second and can be tested alone.
#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace ilme::kernels {

/// Element type of the tensors; sums are held in float32.
enum class DType : std::int32_t { float32, bfloat16, float16 };

/// y = weight * round(x * inv_rms), inv_rms = 1 / sqrt(mean(x^2) + eps) for every row (Zhang & Sennrich 2019). Tensors
/// are contiguous; `round` is to the element type, as Transformers' LlamaRMSNorm does. With a branch, x is replaced by
/// sum = round(x + branch).
struct RmsNormForward {
  const void* x;       // [rows, size]
  const void* weight;  // [size]
  void* y;             // [rows, size]
  float* inv_rms;      // [rows], written for the backward; may be null
  std::int64_t rows, size;
  float eps;
  DType dtype;
  CUstream_st* stream;           // CUDA only; null is the default stream
  const void* branch = nullptr;  // [rows, size], or null
  void* sum = nullptr;           // [rows, size], written where there is a branch; may be x or branch
};

/// dx = inv_rms * (g - x_hat * mean(g * x_hat)) with g = dy * weight and x_hat = x * inv_rms; dweight += sum over the
/// rows of dy * x_hat. The order of every sum depends on the sizes alone: two runs give the same bits. x is what was
/// normalised: with a branch, the sum.
struct RmsNormBackward {
  const void* dy;        // [rows, size]
  const void* x;         // [rows, size]
  const void* weight;    // [size]
  const float* inv_rms;  // [rows]
  void* dx;              // [rows, size]; may be dy or dsum
  float* dweight;        // [size], added to; null when not wanted
  float* workspace;      // as many floats as rms_norm_backward_workspace says, on the same device
  std::int64_t rows, size;
  DType dtype;
  CUstream_st* stream;
  const void* dsum = nullptr;  // [rows, size], added to dx before it is rounded; or null
};

/// out = silu(gate) * up with silu(x) = x / (1 + e^-x) (Shazeer 2020, "GLU variants improve Transformer"), element by
/// element; float32 inside, rounded once.
struct SwigluForward {
  const void *gate, *up;  // [size]
  void* out;              // [size]
  std::int64_t size;
  DType dtype;
  CUstream_st* stream;
};

/// With s = 1 / (1 + e^-gate): dgate = dout * up * s * (1 + gate * (1 - s)), dup = dout * gate * s.
struct SwigluBackward {
  const void *dout, *gate, *up;  // [size]
  void *dgate, *dup;             // [size]; one of them may be dout
  std::int64_t size;
  DType dtype;
  CUstream_st* stream;
};

/// Rotary position embedding (Su et al. 2021, "RoFormer") of queries and keys in the half-split layout: elements i and
/// i + head_dim / 2 of a head, (a, b), become (a cos - b sin, b cos + a sin) with the token's cosine and sine i;
/// float32 inside, rounded once.
struct Rope {
  const void *q, *k;       // [tokens, heads, head_dim], [tokens, kv_heads, head_dim]
  void *q_out, *k_out;     // as q and k, and may be they
  const float *cos, *sin;  // [tokens, head_dim], of which the first half is read
  std::int64_t tokens, heads, kv_heads, head_dim;
  bool backward;  // rotate by the opposite angle: q, k are the gradients of rotated ones
  DType dtype;
  CUstream_st* stream;
};

/// sum[ids[i]] += gradient[i] for i in ascending order, in float32: repeated ids give the same bits on every machine.
struct EmbeddingBackward {
  const void* gradient;     // [tokens, size]
  const std::int64_t* ids;  // [tokens], rows of the sum
  float* sum;               // [vocabulary, size]
  std::int64_t tokens, size;
  DType dtype;  // of the gradient
  CUstream_st* stream;
};

/// y = x @ weight^T + bias for a few rows, as in generation: the weight is read once. Tensors are contiguous; sums are
/// held in float32 and rounded once. A row of y has the same bits whatever the other rows and the threads are.
struct LinearForward {
  const void* x;       // [rows, in]
  const void* weight;  // [out, in]
  const void* bias;    // [out], or null
  void* y;             // [rows, out]
  std::int64_t rows, in, out;
  DType dtype;    // of x, weight and bias
  DType y_dtype;  // the same, or float32
};

/// c = a @ b, or c += a @ b, with sums in float32 that are rounded once. An operand may be given transposed, as it lies
/// in memory; rows are contiguous and `stride` elements apart. An element of c has the same bits for any number of
/// threads and whatever the other rows and columns are.
struct MatrixProduct {
  const void* a;  // [m, k], or [k, m] when a_transposed
  const void* b;  // [k, n], or [n, k] when b_transposed
  void* c;        // [m, n]
  std::int64_t m, n, k, a_stride, b_stride, c_stride;
  bool a_transposed, b_transposed;
  bool add;              // to c, which is float32 then
  DType dtype, c_dtype;  // of a and b; of c: the same or float32
};

/// One new token of each of several sequences attends to all that its sequence has cached and to itself (grouped-query
/// attention). Its key and value are written into the cache first; sums and probabilities are float32. A sequence's
/// result has the same bits whatever the other sequences are.
struct CachedAttentionForward {
  const void* q;  // [sequences, heads, head_dim]
  const void* k;  // [sequences, kv_heads, head_dim], as v
  const void* v;
  void* const* keys;  // for each sequence [kv_heads, capacity, head_dim], as values
  void* const* values;
  const std::int64_t* capacities;  // [sequences]
  const std::int64_t* lengths;     // [sequences], tokens cached before this one; less than the capacity
  void* y;                         // [sequences, heads, head_dim]
  std::int64_t sequences, heads, kv_heads, head_dim;
  float scale;  // of the products of queries and keys
  DType dtype;
};

/// Documents that lie one after another; a token attends to its own document up to itself, with heads / kv_heads heads
/// of queries to a head of keys and values. Tensors are contiguous: q and the like [tokens, heads, head_dim], k and v
/// [tokens, kv_heads, head_dim].
struct PackedDocuments {
  const std::int64_t* offsets;  // [documents + 1] on the host, ascending from 0 to the number of tokens
  std::int64_t documents, heads, kv_heads, head_dim;
  float scale;  // of the products of queries and keys
  DType dtype;
};

/// out = softmax(scale * q k^T) v (Vaswani et al. 2017), sums and exponentials in float32.
struct AttentionForward {
  PackedDocuments packed;
  const void *q, *k, *v;
  void* out;
  float* log_sum;  // [tokens, heads]: the logarithm of every softmax's denominator, for the backward
  CUstream_st* stream;
};

/// Recomputes the weights from log_sum (Dao et al. 2022, "FlashAttention", algorithm 4) instead of keeping them.
struct AttentionBackward {
  PackedDocuments packed;
  const void *dout, *q, *k, *v;
  const float* log_sum;
  void *dq, *dk, *dv;
  CUstream_st* stream;
};

/// Cross-entropy of rows of logits x against labels y, with statistics in float32. With c(x) = soft_cap * tanh(x /
/// soft_cap) (x itself for soft_cap 0), e = label_smoothing, V = vocabulary and log Z = log sum exp(c(x)):
///   loss = (1 - e) (log Z - c(x_y)) + e (log Z - mean c(x)) + z_loss (log Z)^2
///   gradient_j = scale c'(x_j) (exp(c(x_j) - log Z) (1 + 2 z_loss log Z) - (1 - e) [j = y] - e / V)
/// A row whose label is ignore_index has loss 0 and gradient 0. Other labels lie in [0, vocabulary).
struct CrossEntropy {
  const void* logits;          // [rows, stride]; the first `vocabulary` of a row take part
  const std::int64_t* labels;  // [rows]
  float* loss;                 // [rows]; written by the forward, may be null
  float* log_normalizer;       // [rows], log Z; written by the forward, read by the backward
  float* log_probability;      // [rows], c(x_y) - log Z; written by the forward, may be null
  void* gradient;              // [rows, stride], 0 from `vocabulary` on; may be the logits; the forward's may be null
  const float* scales;         // [rows]; null: 1
  std::int64_t rows, vocabulary, stride, ignore_index;
  float label_smoothing, z_loss, soft_cap;
  DType dtype;  // of the logits and the gradient
  CUstream_st* stream;
};

/// Distillation of rows of logits s from a teacher's logits t, with statistics in float32. With c as in CrossEntropy,
/// T = temperature, p = softmax(c(s) / T) and q = softmax(c(t) / T), divergence D = T^2 sum q log(q / p), or T^2 sum p
/// log(p / q) when `reverse` (Hinton et al. 2015; the reverse: Gu et al. 2023, "MiniLLM"); the gradient is that of
/// cross_entropy_weight * (cross-entropy of the label) + (1 - cross_entropy_weight) * D.
struct Distillation {
  const void* student;  // [rows, vocabulary], as teacher
  const void* teacher;
  const std::int64_t* labels;  // [rows], in [0, vocabulary)
  float* cross_entropy;        // [rows], written
  float* divergence;           // [rows], D, written
  void* gradient;              // [rows, vocabulary]; may be the student's logits, or null
  std::int64_t rows, vocabulary;
  float cross_entropy_weight, temperature, soft_cap;
  bool reverse;
  DType dtype;
  CUstream_st* stream;
};

/// One tensor's share of an AdamW step. Without a master the parameter itself is updated: float32, or bf16 with
/// stochastic rounding of it and of exp_avg.
struct AdamWTensor {
  void* parameter;       // [size]
  const void* gradient;  // [size]
  float* master;         // [size] beside a bf16 or fp16 parameter, which is written only; else null
  void* exp_avg;         // [size] float32; bf16 for a bf16 parameter without a master
  float* exp_avg_sq;     // [size]
  std::int64_t size;
  DType dtype, gradient_dtype;
  float shrink;      // 1 - learning rate * weight decay
  float step_size;   // learning rate / (1 - beta1^step)
  float root_scale;  // 1 / sqrt(1 - beta2^step)
  /// Where the tensor begins in the one that it is a part of, in elements; for stochastic rounding only.
  std::int64_t first_element;
  /// For stochastic rounding, element e (of the whole) has the random word h(h(low(e) + low(key)) + high(e) + high(key)) of 32 bits, h
  /// being the last step of MurmurHash3 (Appleby), low and high the halves of 64 bits. Its low half rounds the
  /// parameter, the high half exp_avg.
  std::uint64_t key;
};

/// AdamW (Loshchilov & Hutter 2019), epsilon beside the corrected root as in torch.optim.AdamW, computed in float32. A
/// tensor's result does not depend on the others or on the threads.
struct AdamWStep {
  const AdamWTensor* tensors;
  std::int64_t count;
  const float* divisor;  // of every gradient; null is 1
  double beta1, beta2, epsilon;
};

/// The kernels of one device; an entry is null where there is none. They return null, or the text of an error.
struct DeviceTable {
  const char* (*rms_norm_forward)(const RmsNormForward&) = nullptr;
  const char* (*rms_norm_backward)(const RmsNormBackward&) = nullptr;
  /// Number of floats that the backward needs as workspace.
  std::int64_t (*rms_norm_backward_workspace)(std::int64_t rows, std::int64_t size) = nullptr;
  const char* (*swiglu_forward)(const SwigluForward&) = nullptr;
  const char* (*swiglu_backward)(const SwigluBackward&) = nullptr;
  const char* (*rope)(const Rope&) = nullptr;
  const char* (*embedding_backward)(const EmbeddingBackward&) = nullptr;
  const char* (*linear_forward)(const LinearForward&) = nullptr;
  /// Whether this processor has the product for operands of a type.
  bool (*has_matrix_product)(DType) = nullptr;
  const char* (*matrix_product)(const MatrixProduct&) = nullptr;
  const char* (*cached_attention_forward)(const CachedAttentionForward&) = nullptr;
  const char* (*attention_forward)(const AttentionForward&) = nullptr;
  const char* (*attention_backward)(const AttentionBackward&) = nullptr;
  /// Losses, and where `gradient` is not null the gradient while the row is in the cache.
  const char* (*cross_entropy_forward)(const CrossEntropy&) = nullptr;
  /// The gradient from the forward's log_normalizer.
  const char* (*cross_entropy_backward)(const CrossEntropy&) = nullptr;
  const char* (*distillation)(const Distillation&) = nullptr;
  const char* (*adamw_step)(const AdamWStep&) = nullptr;
};

struct Table {
  DeviceTable cpu, cuda;
};

}  // namespace ilme::kernels

/// Defined by ilme::kernels. A weak reference: null in a program that does not link it. (The target makes the linker
/// look for the definition, so that it is taken out of the archive.)
extern "C" [[gnu::weak]] void ilme_kernels_fill(ilme::kernels::Table* table);

namespace ilme::kernels {

/// The kernels that are linked in; every entry is null when none are.
inline const Table& table() {
  static const Table kTable = [] {
    Table filled;
    if (&ilme_kernels_fill != nullptr) ilme_kernels_fill(&filled);
    return filled;
  }();
  return kTable;
}

}  // namespace ilme::kernels
