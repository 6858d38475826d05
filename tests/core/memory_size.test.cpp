#include <ilme/core/memory_size.hpp>

#include <catch2/catch_all.hpp>

using namespace ilme;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("Sizes of memory as people write them") {
  const auto parse = [](const char* text) { return parse_memory_size(text, "--memory-budget"); };
  CHECK(parse("0") == 0);
  CHECK(parse("1024") == 1024);
  CHECK(parse("12B") == 12);
  CHECK(parse("64KiB") == 65536);
  CHECK(parse("64 kib") == 65536);
  CHECK(parse("500MB") == 500'000'000);
  CHECK(parse("500M") == 500'000'000);
  CHECK(parse("1.5GiB") == 1'610'612'736);
  CHECK(parse("2TB") == 2'000'000'000'000);
  for (const char* wrong : {"", "GiB", "-1", "4GiBs", "4XB", "4iB", "1e9", "nan", "inf", "4 G 2", "99999999999TiB"}) {
    INFO(wrong);
    CHECK_THROWS_MATCHES(parse(wrong), InputError, MessageMatches(ContainsSubstring("--memory-budget: expected")));
  }
}

TEST_CASE("The machine says how much memory is free") {
  const auto available = available_memory();
  if (!available) SKIP("no /proc/meminfo");
  CHECK(*available > 1 << 20);
}
