#include "support/catch_torch.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <ilme/generate/text_stream.hpp>

using ilme::generate::StopStrings;

namespace {

/// What comes out for pieces of `size` bytes.
std::string streamed(const std::vector<std::string>& stops, std::string_view text, std::size_t size, bool& stopped) {
  StopStrings strings(stops);
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += size) {
    out += strings.push(text.substr(at, size));
    if (!strings.stopped()) {
      // Nothing that is out may be part of a stop string that is complete later.
      REQUIRE(text.substr(0, out.size()) == out);
    }
  }
  out += strings.finish();
  stopped = strings.stopped();
  return out;
}

}  // namespace

TEST_CASE("text ends before the first stop string, however it is cut into pieces") {
  struct Case {
    std::vector<std::string> stops;
    std::string text, expected;
    bool stopped;
  };
  const std::vector<Case> cases = {
      {{"END"}, "one two END three", "one two ", true},
      {{"END"}, "one EN two E", "one EN two E", false},
      {{"aab"}, "aaaab", "aa", true},
      {{"xxabyy", "ab"}, "-xxabyy", "-xx", true},
      {{"abc", "bc"}, "zabc", "z", true},
      {{"\n\n", "User:"}, "hello\nUser: hi\n\n", "hello\n", true},
      {{}, "all of it", "all of it", false},
  };
  for (const Case& c : cases) {
    for (std::size_t size = 1; size <= c.text.size(); ++size) {
      CAPTURE(c.text, size);
      bool stopped = false;
      CHECK(streamed(c.stops, c.text, size, stopped) == c.expected);
      CHECK(stopped == c.stopped);
    }
  }
  StopStrings strings({"stop"});
  CHECK(strings.push("a st") == "a ");
  CHECK(strings.push("art") == "start");
  CHECK_THROWS_AS(StopStrings({""}), ilme::InputError);
}
