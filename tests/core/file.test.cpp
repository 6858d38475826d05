#include <ilme/core/file.hpp>

#include <catch2/catch_all.hpp>

#include <ilme/core/memory_map.hpp>

#include "support/temporary.hpp"

namespace fs = std::filesystem;

namespace {

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a file is replaced as a whole or not at all") {
  ilme::test::TemporaryFolder folder;
  const fs::path path = folder / "deep" / "file";
  ilme::write_file(path, "old");
  {
    ilme::AtomicFile file(path);
    file.write("half of the new");
    CHECK(ilme::read_file(path) == "old");
  }
  CHECK(ilme::read_file(path) == "old");
  CHECK(entries(path.parent_path()) == 1);
  ilme::AtomicFile file(path);
  file.write("new");
  file.commit();
  CHECK(ilme::read_file(path) == "new");
  CHECK(entries(path.parent_path()) == 1);
}

TEST_CASE("a folder appears as a whole and replaces an older one") {
  ilme::test::TemporaryFolder folder;
  const fs::path target = folder / "model/";
  {
    ilme::AtomicDirectory abandoned(target);
    ilme::write_file(abandoned.path() / "a", "1");
  }
  CHECK(entries(folder.path()) == 0);
  for (const char* content : {"1", "2"}) {
    ilme::AtomicDirectory fresh(target);
    ilme::write_file(fresh.path() / content, content);
    fresh.commit();
    CHECK(entries(target) == 1);
    CHECK(ilme::read_file(target / content) == content);
  }
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("files that cannot be read are named") {
  ilme::test::TemporaryFolder folder;
  using Catch::Matchers::ContainsSubstring;
  CHECK_THROWS_WITH(ilme::read_file(folder / "absent"), ContainsSubstring("absent"));
  CHECK_THROWS_AS(ilme::read_file(folder.path()), ilme::InputError);
  CHECK_THROWS_AS(ilme::MemoryMap(folder.path()), ilme::InputError);
  CHECK_THROWS_AS(ilme::MemoryMap(folder / "absent"), ilme::InputError);
  ilme::write_file(folder / "empty", "");
  CHECK(ilme::MemoryMap(folder / "empty").text().empty());
  CHECK(ilme::read_file(folder / "empty").empty());
  CHECK_THROWS_AS(ilme::write_file("/proc/version/x", "y"), ilme::RunError);
}
