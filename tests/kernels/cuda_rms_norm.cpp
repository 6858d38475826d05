// The CUDA kernel against the CPU kernel, without torch. Needs a GPU to run; where there is none it says so and ends
// with 77, which CTest counts as skipped.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cpu/rms_norm_rows.hpp"
#include "kernels/cuda/rms_norm.hpp"

namespace {

using namespace ilme::kernels;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& host) : size_(host.size()) {
    check(cudaMalloc(&data_, size_ * sizeof(T)));
    check(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  T* data() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> copy(size_);
    check(cudaMemcpy(copy.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
float from_bf16(std::uint16_t half) {
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
void store(float value, float& to) { to = value; }
void store(float value, std::uint16_t& to) { to = to_bf16(value); }
double load(float value) { return value; }
double load(std::uint16_t value) { return from_bf16(value); }

template <class T>
std::vector<T> random(std::int64_t count, unsigned seed, float mean) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, 1);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) store(normal(generator), value);
  return values;
}

template <class T>
double difference(const std::vector<T>& a, const std::vector<T>& b) {
  double most = 0, scale = 0.1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::fmax(most, std::isfinite(load(a[i])) ? std::fabs(load(a[i]) - load(b[i])) : INFINITY);
    scale = std::fmax(scale, std::fabs(load(b[i])));
  }
  return most / scale;
}

/// With a `branch` x is added to another tensor before, and the sum has a gradient of its own.
template <class T>
bool compare(DType dtype, std::int64_t rows, std::int64_t size, bool branch, double tolerance) {
  const auto x = random<T>(rows * size, 1, 0), dy = random<T>(rows * size, 2, 0), weight = random<T>(size, 3, 1),
             other = random<T>(rows * size, 4, 0), dsum = random<T>(rows * size, 5, 0);
  std::vector<T> y(x.size()), dx(x.size()), sum(x);
  std::vector<float> inv_rms(static_cast<std::size_t>(rows)), dweight(static_cast<std::size_t>(size));
  const auto pointer = [&](const auto& array) { return branch ? array.data() : nullptr; };
  cpu::kRmsNormBaseline.forward({x.data(), weight.data(), y.data(), inv_rms.data(), rows, size, 1e-5f, dtype, nullptr,
                                 pointer(other), branch ? sum.data() : nullptr},
                                0, rows);
  cpu::kRmsNormBaseline.backward({dy.data(), sum.data(), weight.data(), inv_rms.data(), dx.data(), nullptr, nullptr,
                                  rows, size, dtype, nullptr, pointer(dsum)},
                                 dweight.data(), 0, rows);

  const DeviceArray<T> gx(x), gdy(dy), gweight(weight), gy(x), gdx(x), gother(other), gsum(x), gdsum(dsum);
  const DeviceArray<float> ginv(inv_rms), gdweight(std::vector<float>(dweight.size()));
  const DeviceArray<float> workspace(
      std::vector<float>(static_cast<std::size_t>(cuda::rms_norm_backward_workspace(rows, size)), NAN));
  const char* error = cuda::rms_norm_forward({gx.data(), gweight.data(), gy.data(), ginv.data(), rows, size, 1e-5f,
                                              dtype, nullptr, pointer(gother), branch ? gsum.data() : nullptr});
  if (error == nullptr) {
    error = cuda::rms_norm_backward({gdy.data(), gsum.data(), gweight.data(), ginv.data(), gdx.data(), gdweight.data(),
                                     workspace.data(), rows, size, dtype, nullptr, pointer(gdsum)});
  }
  if (error != nullptr) {
    std::printf("%s\n", error);
    return false;
  }
  check(cudaDeviceSynchronize());
  const double of_y = difference(gy.host(), y), of_dx = difference(gdx.host(), dx),
               of_dweight = difference(gdweight.host(), dweight);
  const bool good = of_y <= tolerance && of_dx <= tolerance && of_dweight <= 1e-5;
  std::printf("%s rows %ld size %ld%s: y %.2g dx %.2g dweight %.2g\n", good ? "ok  " : "FAIL", static_cast<long>(rows),
              static_cast<long>(size), branch ? " with a branch" : "", of_y, of_dx, of_dweight);
  return good;
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  bool good = true;
  for (const auto [rows, size] : {std::pair<std::int64_t, std::int64_t>{1, 8}, {3, 7}, {513, 2048}, {1000, 1001}}) {
    for (const bool branch : {false, true}) {
      good &= compare<float>(DType::float32, rows, size, branch, 1e-5);
      good &= compare<std::uint16_t>(DType::bfloat16, rows, size, branch, 8e-3);
    }
  }
  return good ? 0 : 1;
}
