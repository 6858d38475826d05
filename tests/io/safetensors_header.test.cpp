// Torch-free, so that it can also be built alone with sanitizers.
#include <ilme/io/safetensors_header.hpp>

#include <string>

#include <catch2/catch_all.hpp>

#include <ilme/core/file.hpp>
#include <ilme/core/random.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string file_of(const std::string& json, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return bytes + json + std::string(data_bytes, '\1');
}

io::SafetensorsHeader parse(const std::string& json, std::size_t data_bytes) {
  return io::parse_safetensors_header(file_of(json, data_bytes), "file");
}

}  // namespace

TEST_CASE("a safetensors header gives names, shapes and metadata in data order") {
  const auto header = parse(
      R"({"b":{"data_offsets":[8,14],"shape":[3],"dtype":"BF16"},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"z":{"dtype":"I64","shape":[0,4],"data_offsets":[8,8]}}  )",
      14);
  REQUIRE(header.tensors.size() == 3);
  CHECK(header.tensors[0].name == "a");
  CHECK(header.tensors[1].name == "z");
  CHECK(header.tensors[2].name == "b");
  CHECK(header.tensors[2].shape == std::vector<std::int64_t>{3});
  CHECK(header.metadata.at("format") == "pt");
  CHECK(parse("{}", 0).tensors.empty());
}

TEST_CASE("a broken safetensors header is refused with its fault") {
  const auto fault = [](const std::string& json, std::size_t data_bytes) -> std::string {
    try {
      parse(json, data_bytes);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string entry = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  CHECK_THAT(fault(R"({"a":{)" + entry + R"(},"a":{)" + entry + "}}", 8), ContainsSubstring("\"a\" appears twice"));
  CHECK_THAT(fault(R"({"a":{)" + entry + R"(,"shape":[2]}})", 8), ContainsSubstring("shape appears twice"));
  CHECK_THAT(fault(R"({"a":{)" + entry + R"(,"more":[2]}})", 8), ContainsSubstring("unknown key \"more\""));
  CHECK_THAT(fault(R"({"a":{)" + entry + R"(},"v":{)" + entry + "}}", 8), ContainsSubstring("overlaps"));
  CHECK_THAT(fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12), ContainsSubstring("hole"));
  CHECK_THAT(fault(R"({"a":{)" + entry + "}}", 9), ContainsSubstring("belong to none"));
  CHECK_THAT(fault(R"({"a":{)" + entry + "}}", 7), ContainsSubstring("cut off"));
  CHECK_THAT(fault(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8), ContainsSubstring("dtype is missing"));
  CHECK_THAT(fault(R"({"a":{"dtype":"Q7","shape":[2],"data_offsets":[0,8]}})", 8), ContainsSubstring("Q7"));
  CHECK_THAT(fault(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), ContainsSubstring("negative"));
  CHECK_THAT(fault(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), ContainsSubstring("2.0"));
  CHECK_THAT(fault(R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8),
             ContainsSubstring("too large"));
  CHECK_THAT(fault(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0),
             ContainsSubstring("too large"));
  CHECK_THAT(fault(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), ContainsSubstring("need 12"));
  CHECK_THAT(fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), ContainsSubstring("ends before"));
  CHECK_THAT(fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), ContainsSubstring("two numbers"));
  CHECK_THAT(fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4,8]}})", 8), ContainsSubstring("third"));
  CHECK_THAT(fault(R"({"a":[1]})", 8), ContainsSubstring("expected an object"));
  CHECK_THAT(fault(R"({"__metadata__":{"x":7}})", 0), ContainsSubstring("must hold text"));
  CHECK_THAT(fault(R"({"__metadata__":[]})", 0), ContainsSubstring("must be an object"));
  CHECK_THAT(fault("[]", 0), ContainsSubstring("does not start with '{'"));
  CHECK_THAT(fault(" {}", 0), ContainsSubstring("does not start with '{'"));
  CHECK_THAT(fault("{} x", 0), ContainsSubstring("not valid JSON"));
  CHECK_THAT(fault(std::string("{}\0\0", 4), 0), ContainsSubstring("zero byte"));
  CHECK_THAT(fault("", 0), ContainsSubstring("does not start with '{'"));
  CHECK_THAT(fault("{\"\xFF\":{" + entry + "}}", 8), ContainsSubstring("not valid JSON"));
  CHECK_THAT(fault(R"({"a":)" + std::string(100000, '[') + "}", 8), ContainsSubstring("expected an object"));
  CHECK_THROWS_WITH(io::parse_safetensors_header("version https://git-lfs.github.com/spec/v1", "f"),
                    ContainsSubstring("Git LFS"));
}

TEST_CASE("write_safetensors_header is aligned, and reads back") {
  const std::vector<io::SafetensorsEntry> tensors{{"qət\n\"x\"", "F32", {2, 1}, 0, 8}, {"s", "U8", {}, 8, 9}};
  std::string bytes = io::write_safetensors_header(tensors, {{"format", "pt"}}, "file");
  CHECK(bytes.size() % 8 == 0);
  bytes += std::string(9, '\0');
  const auto header = io::parse_safetensors_header(bytes, "file");
  CHECK(header.tensors[0].name == tensors[0].name);
  CHECK(header.tensors[1].shape.empty());
  CHECK(header.metadata.size() == 1);
  CHECK(io::write_safetensors_header({}, {}, "file").substr(8) == "{}      ");
  CHECK_THROWS_WITH(io::write_safetensors_header({tensors[1], tensors[1]}, {}, "file"), ContainsSubstring("is taken"));
  CHECK_THROWS_AS(io::write_safetensors_header({{"__metadata__", "U8", {}, 0, 1}}, {}, "file"), InputError);
  CHECK_THROWS_WITH(io::write_safetensors_header({{"\xC0", "U8", {}, 0, 1}}, {}, "file"), ContainsSubstring("UTF-8"));
}

TEST_CASE("mutated safetensors headers are parsed or refused, never worse") {
  const std::string seed = file_of(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},"z":{"dtype":"I64","shape":[0],"data_offsets":[26,26]}})",
      26);
  static constexpr std::string_view kPieces[] = {"{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 ",",
                                                 ":",
                                                 "\"",
                                                 "0",
                                                 "9",
                                                 "-",
                                                 ".",
                                                 "e9",
                                                 "null",
                                                 "18446744073709551615",
                                                 "\\u0000",
                                                 "\xFF",
                                                 "__metadata__",
                                                 "a",
                                                 " "};
  std::size_t accepted = 0;
  for (std::uint64_t round = 0; round < 40000; ++round) {
    std::string bytes = seed;
    auto draw = [&, n = std::uint64_t{0}](std::uint64_t bound) mutable {
      return static_cast<std::size_t>(random_bits(1, round, n++) % bound);
    };
    for (std::size_t edits = 1 + draw(3); edits > 0 && !bytes.empty(); --edits) {
      const std::size_t at = draw(bytes.size());
      switch (draw(5)) {
        case 0:
          bytes[at] = static_cast<char>(draw(256));
          break;
        case 1:
          bytes.erase(at, 1 + draw(8));
          break;
        case 2:
          bytes.insert(at, kPieces[draw(std::size(kPieces))]);
          break;
        case 3:
          bytes.replace(at, 1, kPieces[draw(std::size(kPieces))]);
          break;
        default:
          bytes.resize(at);
          break;
      }
    }
    if (draw(2) == 0 && bytes.size() > 34) {  // a length that fits again, so that the JSON itself is reached
      const std::size_t length = bytes.size() - 34;
      for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
    }
    try {
      const auto header = io::parse_safetensors_header(bytes, "fuzz");
      ++accepted;
      std::uint64_t end = 0;
      for (const auto& tensor : header.tensors) {
        REQUIRE(tensor.begin == end);
        REQUIRE(tensor.end >= tensor.begin);
        end = tensor.end;
      }
      REQUIRE(header.data_begin + end == bytes.size());
    } catch (const InputError& error) {
      REQUIRE(std::string(error.what()).find('\n') == std::string::npos);
    }
  }
  CHECK(accepted > 0);
}

TEST_CASE("st-headers: the shared files load or are refused by name") {
  const auto folder = test::shared_path("cases/st-headers");
  if (!folder) SKIP("cases/st-headers is absent");
  int good = 0, bad = 0;
  for (const auto& file : std::filesystem::directory_iterator(*folder)) {
    const std::string name = file.path().filename().string();
    if (!name.ends_with(".safetensors")) continue;
    CAPTURE(name);
    const std::string bytes = read_file(file.path());
    if (name.starts_with("good_")) {
      ++good;
      CHECK_NOTHROW(io::parse_safetensors_header(bytes, name));
    } else if (name.starts_with("bad_")) {
      ++bad;
      CHECK_THROWS_WITH(io::parse_safetensors_header(bytes, name), ContainsSubstring(name));
    }
  }
  CHECK(good == 14);
  CHECK(bad == 29);
}
