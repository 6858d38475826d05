#include <ilme/data/documents.hpp>

#include <catch2/catch_all.hpp>

#include <string>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include "data/loader_support.hpp"
#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::data;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using ilme::test::put_file;
using ilme::test::TemporaryFolder;

namespace {

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

std::vector<std::string> all(const std::filesystem::path& file, const std::string& field = "text") {
  DocumentReader reader({file}, field);
  std::vector<std::string> documents;
  while (auto document = reader.next()) documents.push_back(*document);
  CHECK(reader.bytes_read() == reader.bytes_total());
  return documents;
}

}  // namespace

TEST_CASE("a text file is one document a line") {
  const TemporaryFolder folder;
  const auto file = folder / "a.txt";
  put_file(file,
           "\xEF\xBB\xBF"
           "bir\r\n\n\r\niki  \nüç \xFF\xC3\n" +
               std::string("a\0b", 3) + "\nson");
  CHECK(all(file) == std::vector<std::string>{"bir", "iki  ", "üç \xFF\xC3", std::string("a\0b", 3), "son"});
  put_file(file, "");
  CHECK(all(file).empty());
  put_file(file, "\n\n");
  CHECK(all(file).empty());
}

TEST_CASE("a JSON Lines file gives the field, and errors name file and line") {
  const TemporaryFolder folder;
  const auto file = folder / "a.jsonl";
  put_file(file,
           "{\"text\": \"bir\\niki\", \"id\": 1}\r\n\n{\"text\": \"\"}\n{\"body\": \"x\", \"text\": \"\\u0259\"}");
  CHECK(all(file) == std::vector<std::string>{"bir\niki", "ə"});
  CHECK_THROWS_MATCHES(all(file, "body"), InputError,
                       MessageMatches(ContainsSubstring("a.jsonl:1: key \"body\" is missing")));
  put_file(file, "{\"text\": \"bir\"}\n{\"text\": 5}\n");
  CHECK_THROWS_MATCHES(all(file), InputError, MessageMatches(ContainsSubstring("a.jsonl:2")));
  put_file(file, "{\"text\": \"bir\"}\n\n{\"text\": \"iki\n");
  CHECK_THROWS_MATCHES(all(file), InputError, MessageMatches(ContainsSubstring("a.jsonl:3: not valid JSON")));
  put_file(file, "[1]\n");
  CHECK_THROWS_MATCHES(all(file), InputError, MessageMatches(ContainsSubstring("expected a JSON object")));
}

TEST_CASE("bytes that are not UTF-8 survive JSON") {
  const TemporaryFolder folder;
  const auto file = folder / "a.jsonl";
  // Stray lead and continuation bytes, an overlong form, a surrogate, and a real character of the stand-ins' block.
  const std::string odd = "q\xFF\x80\xC0\xAF\xED\xA0\x80 \xF4\x8F\xBE\x80\xF4\x8F\xBF\xBF ə \xF4\x90\x80\x80 \xE2\x82";
  put_file(file, "{\"text\": \"" + odd + "\"}\n");
  CHECK(all(file) == std::vector<std::string>{odd});
  CHECK_FALSE(text::is_valid_utf8(odd));
  for (int lead = 0x80; lead < 0x100; ++lead) {
    const std::string byte(1, static_cast<char>(lead));
    CHECK(parse_json_line("\"" + byte + "\"", "x").get<std::string>() == byte);
  }
}

TEST_CASE("compressed files read as the plain one does") {
  const TemporaryFolder folder;
  std::string text;
  std::vector<std::string> documents;
  for (int i = 0; i < 40000; ++i) {
    documents.push_back(concat("sənəd ", i, " ", mix64(static_cast<std::uint64_t>(i))));
    text += documents.back() + "\n";
  }
  const std::size_t half = text.find('\n', text.size() / 2) - 5;  // members need not end with a line
  put_file(folder / "a.txt.gz", gzip(text.substr(0, half)) + gzip("") + gzip(text.substr(half)));
  put_file(folder / "a.txt.zst", zstd(text.substr(0, half)) + zstd("") + zstd(text.substr(half)));
  CHECK(all(folder / "a.txt.gz") == documents);
  CHECK(all(folder / "a.txt.zst") == documents);
  put_file(folder / "b.jsonl.zst", zstd("{\"text\": \"bir\"}\n"));
  CHECK(all(folder / "b.jsonl.zst") == std::vector<std::string>{"bir"});
  put_file(folder / "empty.txt.gz", gzip(""));
  CHECK(all(folder / "empty.txt.gz").empty());
}

TEST_CASE("damaged and truncated archives are refused") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += concat("sənəd ", mix64(static_cast<std::uint64_t>(i)), "\n");
  for (const std::string extension : {".gz", ".zst"}) {
    const std::string whole = extension == ".gz" ? gzip(text) : zstd(text);
    const auto file = folder / ("a.txt" + extension);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{3}, whole.size() / 2, whole.size() - 1}) {
      put_file(file, whole.substr(0, size));
      CAPTURE(extension, size);
      CHECK_THROWS_MATCHES(all(file), InputError, MessageMatches(ContainsSubstring(file.string())));
    }
    put_file(file, whole + "rest");
    CHECK_THROWS_AS(all(file), InputError);
    std::string damaged = whole;
    damaged[damaged.size() / 2] ^= 0x55;
    damaged[damaged.size() / 2 + 1] ^= 0x55;
    put_file(file, damaged);
    // zstd checks content only when asked to; it must not crash, and gzip must notice.
    if (extension == ".gz") {
      CHECK_THROWS_AS(all(file), InputError);
    }
    put_file(file, "not an archive at all, only text\n");
    CHECK_THROWS_AS(all(file), InputError);
  }
}

TEST_CASE("names and missing files are refused before anything is read") {
  const TemporaryFolder folder;
  put_file(folder / "a.txt", "bir\n");
  CHECK_THROWS_MATCHES(DocumentReader({folder / "a.txt", folder / "none.txt"}), InputError,
                       MessageMatches(ContainsSubstring("none.txt")));
  CHECK_THROWS_AS(DocumentReader({folder.path()}), InputError);
  CHECK_THROWS_AS(DocumentReader({}), InputError);
  for (const std::string name : {"a.json", "a.parquet", "a.tar.gz"}) {
    put_file(folder / name, "x");
    CHECK_THROWS_MATCHES(DocumentReader({folder / name}), InputError, MessageMatches(ContainsSubstring(name)));
  }
  LineReader lines(folder / "a.txt", 2);
  CHECK_THROWS_MATCHES(lines.next(), InputError, MessageMatches(ContainsSubstring("a.txt:1: the line is longer")));
}

TEST_CASE("several files come one after the other") {
  const TemporaryFolder folder;
  put_file(folder / "a.txt", "bir\niki");
  put_file(folder / "b.jsonl", "{\"text\": \"üç\"}");
  put_file(folder / "c.txt", "");
  put_file(folder / "d.txt", "dörd\n");
  DocumentReader reader({folder / "a.txt", folder / "b.jsonl", folder / "c.txt", folder / "d.txt"});
  std::vector<std::string> places;
  while (auto line = reader.next_line()) places.push_back(reader.text(*line) + "@" + reader.where(*line));
  REQUIRE(places.size() == 4);
  CHECK(places[2] == "üç@" + (folder / "b.jsonl").string() + ":1");
  CHECK(places[3] == "dörd@" + (folder / "d.txt").string() + ":1");
}
