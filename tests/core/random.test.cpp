#include <algorithm>

#include <catch2/catch_all.hpp>

#include <ilme/core/random.hpp>

TEST_CASE("random_permutation holds every index once and depends on seed and stream") {
  const auto a = ilme::random_permutation(1000, 5, 0);
  CHECK(a == ilme::random_permutation(1000, 5, 0));
  CHECK(a != ilme::random_permutation(1000, 5, 1));
  CHECK(a != ilme::random_permutation(1000, 6, 0));
  auto sorted = a;
  std::sort(sorted.begin(), sorted.end());
  for (std::uint64_t i = 0; i < sorted.size(); ++i) REQUIRE(sorted[i] == i);
  CHECK(ilme::random_permutation(0, 1, 1).empty());
}

TEST_CASE("random_uniform is uniform") {
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = ilme::random_uniform(3, i);
    REQUIRE(value >= 0.0);
    REQUIRE(value < 1.0);
    sum += value;
  }
  CHECK(sum / 10000 == Catch::Approx(0.5).margin(0.02));
}
