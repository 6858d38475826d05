#include "support/catch_torch.hpp"

#include <tuple>
#include <vector>

#include <ilme/ops/cached_attention.hpp>

using namespace ilme;

TEST_CASE("the kernel for cached tokens equals scaled dot product attention in float64") {
  const at::NoGradGuard no_gradient;
  at::manual_seed(1);
  for (const auto& [type, tolerance] :
       std::vector<std::pair<at::ScalarType, double>>{{at::kFloat, 2e-6}, {at::kBFloat16, 8e-3}, {at::kHalf, 1e-3}}) {
    for (const auto& [heads, kv_heads, head_dim] :
         std::vector<std::tuple<int, int, int>>{{4, 2, 4}, {9, 3, 64}, {2, 2, 80}, {4, 1, 128}}) {
      CAPTURE(type, heads, kv_heads, head_dim);
      std::vector<ops::LayerCache> caches(3), twins(3);
      std::vector<ops::LayerCache*> pointers, twin_pointers;
      for (std::size_t i = 0; i < 3; ++i) {  // prompts of 1, 17 and 255 tokens; the last then outgrows its storage
        const std::int64_t length = i == 0 ? 1 : i == 1 ? 17 : 255;
        const at::Tensor k = at::randn({length, kv_heads, head_dim}).to(type), v = at::randn_like(k);
        caches[i].append(k, v);
        twins[i].append(k.to(at::kDouble), v.to(at::kDouble));
        pointers.push_back(&caches[i]);
        twin_pointers.push_back(&twins[i]);
      }
      for (int step = 0; step < 3; ++step) {
        const at::Tensor q = at::randn({3, 1, heads, head_dim}).mul(2).to(type);
        const at::Tensor k = at::randn({3, 1, kv_heads, head_dim}).to(type), v = at::randn_like(k);
        const at::Tensor y = ops::cached_attention(q, k, v, pointers);
        const at::Tensor expected =
            ops::cached_attention_reference(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), twin_pointers);
        REQUIRE(y.sizes() == expected.sizes());
        CHECK((y.to(at::kDouble) - expected).abs().max().item<double>() < tolerance);
        CHECK(caches[2].length() == 256 + step);
        CHECK(at::equal(caches[2].keys().to(at::kDouble), twins[2].keys()));
      }
    }
  }
  ops::LayerCache one;
  ops::LayerCache* const pointer[] = {&one};
  const at::Tensor two = at::zeros({2, 1, 2, 4});
  CHECK_THROWS(ops::cached_attention(two, two, two, pointer));
}
