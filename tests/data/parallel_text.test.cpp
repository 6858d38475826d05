#include <ilme/data/parallel_text.hpp>

#include <string>

#include <catch2/catch_all.hpp>

#include <ilme/core/file.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

std::string shown(const text::ParallelText& text) {
  std::string out = text.first_name + "/" + text.second_name;
  for (const auto& pair : text.pairs) out += "|" + pair.first + "=" + pair.second;
  return out;
}

}  // namespace

TEST_CASE("Parallel text from two files and from columns") {
  const test::TemporaryFolder folder;
  const auto file = [&](const std::string& name, const std::string& bytes) {
    write_file(folder / name, bytes);
    return (folder / name).string();
  };
  const std::string az = file("az.txt", "\xEF\xBB\xBFsalam\r\n\ndəniz\n"), en = file("en.txt", "hello\n\nsea");
  CHECK(shown(data::read_parallel_text(az + ":" + en)) == "az/en|salam=hello|dəniz=sea");
  const std::string colon = file("a:b.txt", "salam\n"), one = file("one", "hello\n");
  CHECK(shown(data::read_parallel_text(colon + ":" + one)) == "a:b/one|salam=hello");
  CHECK(shown(data::read_parallel_text(file("p.tsv", "salam\thello\n\ndəniz\tsea\r\n"))) ==
        "p left/p right|salam=hello|dəniz=sea");
  CHECK(shown(data::read_parallel_text(file("t.tsv", "12\tsalam\t77\thello\n"))) == "t left/t right|salam=hello");

  const auto refused = [&](const std::string& name, const std::string& text) {
    CHECK_THROWS_MATCHES(data::read_parallel_text(name), InputError, MessageMatches(ContainsSubstring(text)));
  };
  refused(az + ":" + one, "az.txt:2: has no partner");
  refused(one + ":" + az, "az.txt:2: has no partner");
  refused(file("x", "a\n\n") + ":" + file("y", "a\nb\n"), "x:2: has no sentence");
  refused(file("three.tsv", "a\tb\na\tb\tc\n"), "three.tsv:2: has 3 columns");
  refused(file("plain.txt", "salam\n"), "plain.txt:1: has 1 column");
  refused(file("half.tsv", "a\tb\n\tb\n"), "half.tsv:2 (left): has no sentence");
  refused(file("empty.tsv", "\n"), "holds no pair");
  refused((folder / "absent").string() + ":" + az, "absent");
  refused((folder / "absent.tsv").string(), "absent.tsv");
}
