#include <ilme/core/progress.hpp>

#include <cstdio>
#include <limits>
#include <string>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <catch2/catch_all.hpp>

using namespace ilme;

TEST_CASE("format_bytes, format_count and format_duration") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(999) == "999 B");
  CHECK(format_bytes(17.9e6) == "17.9 MB");
  CHECK(format_bytes(999.96e6) == "1.0 GB");
  CHECK(format_bytes(123.4e9) == "123 GB");
  CHECK(format_count(640) == "640");
  CHECK(format_count(78319) == "78.3k");
  CHECK(format_count(1.25) == "1.2");
  CHECK(format_count(2.5e9) == "2.5G");
  CHECK(format_duration(4.24) == "4.2s");
  CHECK(format_duration(59.7) == "1:00");
  CHECK(format_duration(187) == "3:07");
  CHECK(format_duration(8109) == "2:15:09");
  CHECK(format_duration(3 * 86400 + 4 * 3600) == "3d 04:00:00");
  CHECK(format_duration(-1) == "?");
  CHECK(format_duration(std::numeric_limits<double>::infinity()) == "?");
}

TEST_CASE("format_progress shows what is known and fits the columns") {
  ProgressLine line{"reading", "", ProgressUnit::bytes, 12.3e6, 17.9e6, 8.0, 1.54e6, "loss 2.31"};
  const std::string text = format_progress(line, 100);
  CAPTURE(text);
  CHECK(text.find("reading [") == 0);
  CHECK(text.find("]  68%  12.3/17.9 MB  1.5 MB/s  8.0s < 3.6s  loss 2.31") != std::string::npos);
  for (std::size_t columns = 0; columns < 100; ++columns)
    CHECK(display_width(format_progress(line, columns)) <= columns);

  line = {"steps", "steps", ProgressUnit::items, 120, 500, 60, 2, ""};
  CHECK(format_progress(line, 40).find("120/500 steps") != std::string::npos);
  line.total.reset();
  CHECK(format_progress(line, 80) == "steps  120 steps  2/s  1:00");
  line.total = 0;
  CHECK(format_progress(line, 80).find("100%") != std::string::npos);
}

TEST_CASE("clipping never cuts a UTF-8 character") {
  const std::string text = "öyrənmə ədədi 模型 🧶 son";
  CHECK(display_width("öyrənmə") == 7);
  for (std::size_t columns = 0; columns <= 30; ++columns) {
    const auto cut = clip_to_width(text, columns);
    CHECK(display_width(cut) <= columns);
    if (cut.size() < text.size()) CHECK((static_cast<unsigned char>(text[cut.size()]) & 0xC0) != 0x80);
  }
  CHECK(clip_to_width("\xF0\x9F", 5).empty());
  CHECK(display_width("\xFF\x80") == 2);
}

TEST_CASE("ProgressBar is silent on a file and draws on a terminal") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    ProgressBar bar({.label = "work", .total = 10}, file);
    CHECK_FALSE(bar.enabled());
    bar.update(3, "x");
    bar.finish();
  }
  CHECK(std::ftell(file) == 0);
  std::fclose(file);

  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) SKIP("no pseudo-terminal");
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  REQUIRE(slave >= 0);
  winsize size{};
  size.ws_col = 50;
  ::ioctl(slave, TIOCSWINSZ, &size);
  std::FILE* terminal = ::fdopen(slave, "w");
  {
    ProgressBar bar({.label = "work", .item_name = "steps", .total = 100000}, terminal);
    if (!bar.enabled()) SKIP("TERM=dumb");
    for (int i = 0; i < 100000; ++i) bar.advance();  // quick: must not draw 100000 times
    bar.finish();
    bar.finish();
  }
  // The kernel hands a terminal's output over in pieces, and later than write() returns.
  std::string out;
  for (pollfd ready{.fd = master, .events = POLLIN, .revents = 0};
       !out.ends_with("\r\n") && ::poll(&ready, 1, 5000) == 1;) {
    char piece[4096];
    const ssize_t got = ::read(master, piece, sizeof piece);
    REQUIRE(got > 0);
    out.append(piece, static_cast<std::size_t>(got));
  }
  CHECK(out.size() < 2000);
  CHECK(out.find("100%") != std::string::npos);
  CHECK(out.find("100000/100000 steps") != std::string::npos);
  CHECK(out.ends_with("\r\n"));  // the terminal turns \n into \r\n
  std::fclose(terminal);
  ::close(master);
}
