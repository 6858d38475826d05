#include <ilme/train/metrics_file.hpp>

#include <fstream>
#include <limits>

#include "support/catch_torch.hpp"
#include "support/temporary.hpp"

using namespace ilme;

TEST_CASE("metrics.jsonl: records are there at once, and a resume cuts what comes later") {
  test::TemporaryFolder folder;
  const auto path = folder / "run/metrics.jsonl";
  {
    train::MetricsFile file(path);
    file.write(1, {{"loss", 2.5}, {"bad", std::numeric_limits<double>::quiet_NaN()}});
    CHECK(read_file(path) == "{\"step\":1,\"loss\":2.5,\"bad\":null}\n");
    file.write(2, {{"loss", 0.1}});
    file.write(2, {{"eval_loss", 3}});
    file.write(3, {{"loss", 1}});
  }
  std::ofstream(path, std::ios::app) << "{\"step\":2,\"lo";  // torn by a crash
  const std::string one_and_two =
      "{\"step\":1,\"loss\":2.5,\"bad\":null}\n{\"step\":2,\"loss\":0.1}\n{\"step\":2,\"eval_loss\":3.0}\n";
  {
    train::MetricsFile file(path, 2);
    CHECK(read_file(path) == one_and_two);
    file.write(3, {{"loss", 7}});
  }
  CHECK(read_file(path) == one_and_two + "{\"step\":3,\"loss\":7.0}\n");
  train::MetricsFile same(path, 3);
  CHECK(read_file(path) == one_and_two + "{\"step\":3,\"loss\":7.0}\n");
  train::MetricsFile fresh(path);
  CHECK(read_file(path).empty());
  CHECK_THROWS_AS(train::MetricsFile(folder.path()), Error);
}
