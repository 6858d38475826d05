#include "support/catch_torch.hpp"

#include <thread>

#include <ilme/core/resident_memory.hpp>
#include <ilme/ops/memory.hpp>

using namespace ilme::ops;

namespace {
constexpr std::int64_t kMiB = 1 << 20;
at::Tensor megabytes(std::int64_t count) { return at::zeros({count * kMiB / 4}); }
bool near(std::int64_t bytes, std::int64_t expected) { return std::abs(bytes - expected) < 16384; }
}  // namespace

TEST_CASE("a phase has the peak of what tensors hold, inner phases included, other threads too") {
  count_tensor_memory();
  const std::int64_t before = tensor_bytes();
  const at::Tensor kept = megabytes(3);
  CHECK(near(tensor_bytes() - before, 3 * kMiB));
  MemoryPhase outer;
  CHECK(outer.start_bytes() == tensor_bytes());
  CHECK(outer.peak_bytes() == outer.start_bytes());
  { const at::Tensor temporary = megabytes(5); }
  CHECK(near(outer.peak_bytes() - outer.start_bytes(), 5 * kMiB));
  {
    MemoryPhase small;
    std::thread([] { const at::Tensor temporary = megabytes(2); }).join();
    CHECK(near(small.peak_bytes() - small.start_bytes(), 2 * kMiB));
  }
  CHECK(near(outer.peak_bytes() - outer.start_bytes(), 5 * kMiB));
  {
    MemoryPhase large;
    const at::Tensor temporary = megabytes(7);
  }
  CHECK(near(outer.peak_bytes() - outer.start_bytes(), 7 * kMiB));
  CHECK(tensor_bytes() == outer.start_bytes());
}

TEST_CASE("a tensor that grows, moves its storage or is freed by another thread stays in the count") {
  count_tensor_memory();
  const std::int64_t before = tensor_bytes();
  at::Tensor tensor = megabytes(1);
  tensor.resize_({3 * kMiB / 4});
  CHECK(near(tensor_bytes() - before, 3 * kMiB));
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  CHECK(tensor_bytes() == before);
  // oneDNN's scratch memory comes from the same allocator and goes back to it.
  const at::Tensor a = at::rand({256, 256}).to(at::kBFloat16);
  for (int i = 0; i < 3; ++i) at::mm(a, a);
  CHECK(tensor_bytes() - before < 4 * kMiB);
}

TEST_CASE("the resident peak covers what was touched and starts again") {
  if (!ilme::resident_peak_bytes()) SKIP("no /proc/self/status");
  { const at::Tensor touched = at::ones({64 * kMiB / 4}); }
  const auto high = *ilme::resident_peak_bytes();
  CHECK(high >= *ilme::resident_bytes());
  CHECK(high > 64 * static_cast<std::uint64_t>(kMiB));
  if (ilme::reset_resident_peak()) CHECK(*ilme::resident_peak_bytes() <= high);
}
