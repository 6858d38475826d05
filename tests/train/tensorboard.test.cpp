#include <ilme/train/tensorboard.hpp>

#include <cstring>
#include <map>

#include "support/catch_torch.hpp"
#include "support/temporary.hpp"

using namespace ilme;

namespace {

template <class Value>
Value little_endian(std::string_view& bytes) {
  REQUIRE(bytes.size() >= sizeof(Value));
  Value value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

std::uint64_t varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    REQUIRE_FALSE(bytes.empty());
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

/// The fields of a protocol buffer message, undecoded.
std::multimap<int, std::string> fields(std::string_view bytes) {
  std::multimap<int, std::string> result;
  while (!bytes.empty()) {
    const std::uint64_t key = varint(bytes);
    std::string value;
    switch (key & 7) {
      case 0:
        value = std::to_string(varint(bytes));
        break;
      case 1:
        value = bytes.substr(0, 8), bytes.remove_prefix(8);
        break;
      case 5:
        value = bytes.substr(0, 4), bytes.remove_prefix(4);
        break;
      default: {
        REQUIRE((key & 7) == 2);
        const auto length = static_cast<std::size_t>(varint(bytes));
        REQUIRE(length <= bytes.size());
        value = bytes.substr(0, length);
        bytes.remove_prefix(length);
      }
    }
    result.emplace(static_cast<int>(key >> 3), value);
  }
  return result;
}

std::string only(const std::multimap<int, std::string>& message, int field) {
  REQUIRE(message.count(field) == 1);
  return message.find(field)->second;
}

/// The Events of a file, with both checksums of every record checked.
std::vector<std::multimap<int, std::string>> events(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  std::string_view rest = file;
  std::vector<std::multimap<int, std::string>> result;
  while (!rest.empty()) {
    const std::string_view length_bytes = rest.substr(0, 8);
    const auto length = little_endian<std::uint64_t>(rest);
    CHECK(little_endian<std::uint32_t>(rest) == train::detail::masked_crc32c(length_bytes));
    REQUIRE(length <= rest.size());
    const std::string_view data = rest.substr(0, length);
    rest.remove_prefix(length);
    CHECK(little_endian<std::uint32_t>(rest) == train::detail::masked_crc32c(data));
    result.push_back(fields(data));
  }
  return result;
}

}  // namespace

TEST_CASE("crc32c: the vectors of RFC 3720") {
  using train::detail::crc32c;
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43U);
}

TEST_CASE("tensorboard: records equal those of PyTorch's SummaryWriter") {
  // Bytes that torch.utils.tensorboard 2.11.0 wrote for add_scalar("loss", 1.5, 3), after the 9 bytes of the time.
  test::TemporaryFolder folder;
  train::EventFileWriter writer(folder.path());
  writer.scalar("loss", 1.5, 3);
  writer.text("config", "ab", 0);
  writer.flush();
  const std::string file = read_file(writer.path());
  using namespace std::string_literals;
  CHECK(file.find("\x10\x03*\r\n\x0b\n\x04loss\x15\x00\x00\xc0?"s) != std::string::npos);
  std::string text = "*/\n-\n\x13"s;
  text += "config/text_summaryB\x0c\x08\x07\x12\x04\x12\x02\x08\x01"s;
  text += "B\x02"s;
  text += "abJ\x08\n\x06\n\x04text"s;
  CHECK(file.find(text) != std::string::npos);
}

TEST_CASE("tensorboard: a file decodes to what was logged") {
  test::TemporaryFolder folder;
  std::filesystem::path path;
  {
    train::EventFileWriter writer(folder / "logs", 41);
    path = writer.path();
    writer.scalar("loss", 2.25, 42);
    writer.scalar("loss", 1.0e9, 1'000'000'000'000);
  }
  CHECK(path.filename().string().starts_with("events.out.tfevents."));
  const auto found = events(path);
  REQUIRE(found.size() == 4);
  CHECK(only(found[0], 3) == "brain.Event:2");
  CHECK(only(found[1], 2) == "42");                  // drops step 42 and later
  CHECK(only(fields(only(found[1], 7)), 1) == "1");  // SessionLog.START
  CHECK(only(found[2], 2) == "42");
  const auto value = fields(only(fields(only(found[2], 5)), 1));
  CHECK(only(value, 1) == "loss");
  const std::string number_bytes = only(value, 2);
  std::string_view number = number_bytes;
  CHECK(little_endian<float>(number) == 2.25F);
  CHECK(only(found[3], 2) == "1000000000000");
}

TEST_CASE("tensorboard: a resumed run's file sorts after the older one") {
  test::TemporaryFolder folder;
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) names.push_back(train::EventFileWriter(folder.path(), i).path().filename().string());
  CHECK(names[0] < names[1]);
  CHECK(names[1] < names[2]);
}
