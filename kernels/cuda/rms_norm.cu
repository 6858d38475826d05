// RMSNorm, forward and backward, with or without a residual addition before it.
//
// Forward: one block a row; x is read twice (the second time from cache) and y written once: 2 elements of DRAM traffic
// each. Backward: a fixed number of blocks walk over the rows, so that each keeps one partial sum of the weight
// gradient; every thread owns the same columns in every row, so the partial needs no atomics and no barrier of its own.
// A second kernel adds the partials in a fixed order: two runs give the same bits.
#include "rms_norm.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace ilme::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarp = 32;
constexpr std::int64_t kParts = 256;  // blocks of the backward, at most

__device__ float widen(float value) { return value; }
__device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ float widen(__half value) { return __half2float(value); }
template <class T>
__device__ T narrow(float value);
template <>
__device__ float narrow<float>(float value) {
  return value;
}
template <>
__device__ __nv_bfloat16 narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __half narrow<__half>(float value) {
  return __float2half_rn(value);
}

/// `Count` neighbours of a row, moved by one load or store.
template <class T, int Count>
struct alignas(sizeof(T) * Count) Pack {
  T at[Count];
};

/// The sum over the block, in every thread; the tree has a fixed shape.
__device__ float block_sum(float value) {
  __shared__ float of_warp[kThreads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFF, value, offset);
  __syncthreads();  // an earlier call may still be reading
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < kThreads / kWarp; ++warp) sum += of_warp[warp];
  return sum;
}

template <class T, int Count>
__global__ void __launch_bounds__(kThreads) forward_kernel(const RmsNormForward a) {
  using Vector = Pack<T, Count>;
  const std::int64_t row = blockIdx.x;
  const Vector* x = reinterpret_cast<const Vector*>(static_cast<const T*>(a.x) + row * a.size);
  const Vector* const weight = static_cast<const Vector*>(a.weight);
  Vector* const y = reinterpret_cast<Vector*>(static_cast<T*>(a.y) + row * a.size);
  const std::int64_t vectors = a.size / Count;

  float squares = 0;
  if (a.branch != nullptr) {  // every thread adds, and reads below, the same columns
    const Vector* const branch = reinterpret_cast<const Vector*>(static_cast<const T*>(a.branch) + row * a.size);
    Vector* const sum = reinterpret_cast<Vector*>(static_cast<T*>(a.sum) + row * a.size);
    for (std::int64_t i = threadIdx.x; i < vectors; i += kThreads) {
      Vector v = x[i];
      const Vector b = branch[i];
      for (int k = 0; k < Count; ++k) v.at[k] = narrow<T>(widen(v.at[k]) + widen(b.at[k]));
      sum[i] = v;
    }
    x = sum;
  }
  for (std::int64_t i = threadIdx.x; i < vectors; i += kThreads) {
    const Vector v = x[i];
    for (int k = 0; k < Count; ++k) squares += widen(v.at[k]) * widen(v.at[k]);
  }
  const float inv_rms = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(a.size) + a.eps);
  if (a.inv_rms != nullptr && threadIdx.x == 0) a.inv_rms[row] = inv_rms;

  for (std::int64_t i = threadIdx.x; i < vectors; i += kThreads) {
    const Vector v = x[i], w = weight[i];
    Vector out;
    for (int k = 0; k < Count; ++k) {
      out.at[k] = narrow<T>(widen(w.at[k]) * widen(narrow<T>(widen(v.at[k]) * inv_rms)));
    }
    y[i] = out;
  }
}

template <class T, int Count>
__global__ void __launch_bounds__(kThreads) backward_kernel(const RmsNormBackward a) {
  using Vector = Pack<T, Count>;
  const Vector* const weight = static_cast<const Vector*>(a.weight);
  const std::int64_t vectors = a.size / Count;
  float* const partial = a.dweight == nullptr ? nullptr : a.workspace + blockIdx.x * a.size;

  for (std::int64_t row = blockIdx.x, pass = 0; row < a.rows; row += gridDim.x, ++pass) {
    const Vector* const x = reinterpret_cast<const Vector*>(static_cast<const T*>(a.x) + row * a.size);
    const Vector* const dy = reinterpret_cast<const Vector*>(static_cast<const T*>(a.dy) + row * a.size);
    const Vector* const dsum =
        a.dsum == nullptr ? nullptr : reinterpret_cast<const Vector*>(static_cast<const T*>(a.dsum) + row * a.size);
    Vector* const dx = reinterpret_cast<Vector*>(static_cast<T*>(a.dx) + row * a.size);
    const float inv_rms = a.inv_rms[row];

    float products = 0;
    for (std::int64_t i = threadIdx.x; i < vectors; i += kThreads) {
      const Vector v = x[i], g = dy[i], w = weight[i];
      for (int k = 0; k < Count; ++k) products += widen(g.at[k]) * widen(w.at[k]) * widen(v.at[k]);
    }
    const float mean = block_sum(products) * inv_rms / static_cast<float>(a.size);

    for (std::int64_t i = threadIdx.x; i < vectors; i += kThreads) {
      const Vector v = x[i], g = dy[i], w = weight[i];
      Vector out = dsum == nullptr ? Vector{} : dsum[i];
      for (int k = 0; k < Count; ++k) {
        const float normal = widen(v.at[k]) * inv_rms, gradient = widen(g.at[k]);
        out.at[k] = narrow<T>(widen(out.at[k]) + inv_rms * (gradient * widen(w.at[k]) - normal * mean));
        if (partial != nullptr) {
          float& sum = partial[i * Count + k];
          sum = pass == 0 ? gradient * normal : sum + gradient * normal;
        }
      }
      dx[i] = out;
    }
  }
}

__global__ void __launch_bounds__(kThreads) add_parts_kernel(const RmsNormBackward a, std::int64_t parts) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= a.size) return;
  float sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) sum += a.workspace[part * a.size + column];
  a.dweight[column] += sum;
}

std::int64_t part_count(std::int64_t rows) { return rows < kParts ? rows : kParts; }

/// Error of the last launch, or null. It clears the error, so that it is not blamed on a later call.
const char* launch_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

template <class T>
const char* forward(const RmsNormForward& a) {
  constexpr int kCount = 16 / sizeof(T);
  const auto grid = static_cast<unsigned>(a.rows);
  if (a.size % kCount == 0 && aligned(a.x) && aligned(a.weight) && aligned(a.y) && aligned(a.branch) &&
      aligned(a.sum)) {
    forward_kernel<T, kCount><<<grid, kThreads, 0, a.stream>>>(a);
  } else {
    forward_kernel<T, 1><<<grid, kThreads, 0, a.stream>>>(a);
  }
  return launch_error();
}

template <class T>
const char* backward(const RmsNormBackward& a) {
  constexpr int kCount = 16 / sizeof(T);
  const std::int64_t parts = part_count(a.rows);
  const auto grid = static_cast<unsigned>(parts);
  if (a.size % kCount == 0 && aligned(a.x) && aligned(a.weight) && aligned(a.dy) && aligned(a.dx) && aligned(a.dsum)) {
    backward_kernel<T, kCount><<<grid, kThreads, 0, a.stream>>>(a);
  } else {
    backward_kernel<T, 1><<<grid, kThreads, 0, a.stream>>>(a);
  }
  if (const char* error = launch_error()) return error;
  if (a.dweight == nullptr) return nullptr;
  add_parts_kernel<<<static_cast<unsigned>((a.size + kThreads - 1) / kThreads), kThreads, 0, a.stream>>>(a, parts);
  return launch_error();
}

}  // namespace

const char* rms_norm_forward(const RmsNormForward& a) {
  if (a.rows == 0 || a.size == 0) return nullptr;
  if (a.rows > 0x7FFFFFFF) return "rms_norm: more than 2^31 - 1 rows";
  switch (a.dtype) {
    case DType::float32:
      return forward<float>(a);
    case DType::bfloat16:
      return forward<__nv_bfloat16>(a);
    case DType::float16:
      return forward<__half>(a);
  }
  return "rms_norm: unknown element type";
}

std::int64_t rms_norm_backward_workspace(std::int64_t rows, std::int64_t size) { return part_count(rows) * size; }

const char* rms_norm_backward(const RmsNormBackward& a) {
  if (a.rows == 0 || a.size == 0) return nullptr;
  switch (a.dtype) {
    case DType::float32:
      return backward<float>(a);
    case DType::bfloat16:
      return backward<__nv_bfloat16>(a);
    case DType::float16:
      return backward<__half>(a);
  }
  return "rms_norm: unknown element type";
}

}  // namespace ilme::kernels::cuda
