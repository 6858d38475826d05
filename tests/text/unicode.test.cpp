#include <ilme/text/unicode.hpp>

#include <string>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/text/byte_level.hpp>

using namespace ilme::text;

namespace {

std::vector<char32_t> code_points(std::string_view bytes) {
  std::vector<char32_t> out;
  for (const char *p = bytes.data(), *end = p + bytes.size(); p < end;) {
    const DecodedCharacter character = decode_utf8(p, end);
    out.push_back(character.code_point);
    p += character.length;
  }
  return out;
}

}  // namespace

TEST_CASE("Well-formed UTF-8 decodes, every other byte is a unit of its own") {
  constexpr char32_t bad = kInvalidCodePoint;
  CHECK(code_points("aə€😀") == std::vector<char32_t>{'a', 0x259, 0x20AC, 0x1F600});
  CHECK(code_points("s\xC9") == std::vector<char32_t>{'s', bad});
  CHECK(code_points("\xC0\x80") == std::vector<char32_t>{bad, bad});                    // overlong
  CHECK(code_points("\xE0\x9F\xBF") == std::vector<char32_t>{bad, bad, bad});           // overlong
  CHECK(code_points("\xED\xA0\x80") == std::vector<char32_t>{bad, bad, bad});           // surrogate
  CHECK(code_points("\xF4\x90\x80\x80") == std::vector<char32_t>{bad, bad, bad, bad});  // above U+10FFFF
  CHECK(code_points("\xF0\x9F\x98") == std::vector<char32_t>{bad, bad, bad});           // cut
  CHECK(code_points("\xF4\x8F\xBF\xBF\xEF\xBF\xBF") == std::vector<char32_t>{0x10FFFF, 0xFFFF});
  CHECK(is_valid_utf8("söz"));
  CHECK_FALSE(is_valid_utf8("s\xF6z"));
}

TEST_CASE("Classes are those of Unicode 16 as Hugging Face's engine has them") {
  const CharClassTable& classes = char_classes();
  CHECK(classes['a'] == CharClass::letter);
  CHECK(classes[0x259] == CharClass::letter);
  CHECK(classes[0x1C89] == CharClass::letter);   // new in Unicode 16
  CHECK(classes[0x2EBF0] == CharClass::letter);  // new in Unicode 15.1
  CHECK(classes['7'] == CharClass::number);
  CHECK(classes[0xB2] == CharClass::number);
  CHECK(classes[0x10D40] == CharClass::number);  // new in Unicode 16
  CHECK(classes[0x301] == CharClass::other);
  CHECK(classes['_'] == CharClass::other);
  CHECK(classes[' '] == CharClass::space);
  CHECK(classes[0x85] == CharClass::space);
  CHECK(classes[0x3000] == CharClass::space);
  CHECK(classes[0x180E] == CharClass::other);
  CHECK(classes[0x200B] == CharClass::other);
  CHECK(classes['\n'] == CharClass::newline);
  CHECK(classes['\r'] == CharClass::newline);
  CHECK(classes[kInvalidCodePoint] == CharClass::other);
  std::size_t letters = 0, numbers = 0, spaces = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    letters += classes[c] == CharClass::letter ? 1 : 0;
    numbers += classes[c] == CharClass::number ? 1 : 0;
    spaces += classes[c] >= CharClass::space ? 1 : 0;
  }
  CHECK(letters == 141028);
  CHECK(numbers == 1911);
  CHECK(spaces == 25);
  for (const char32_t c : {char32_t{'_'}, char32_t{'7'}, char32_t{0x259}, char32_t{0x301}, char32_t{0x200D}}) {
    CHECK(is_word_character(c));
  }
  for (const char32_t c : {char32_t{'-'}, char32_t{' '}, char32_t{0x2019}, kInvalidCodePoint})
    CHECK_FALSE(is_word_character(c));
  CHECK(last_character("aə").code_point == 0x259);
  CHECK(last_character("a\x99").code_point == kInvalidCodePoint);
  CHECK(last_character("\x99\x99\x99\x99\x99").length == 1);
}

TEST_CASE("The byte-level alphabet is GPT-2's") {
  CHECK(to_byte_level("a \n\xC9\x99") == "aĠĊÉĻ");
  CHECK(from_byte_level("aĠĊÉĻ") == "a \n\xC9\x99");
  CHECK_FALSE(from_byte_level("a b"));
  CHECK_FALSE(from_byte_level("ə"));
  CHECK_FALSE(from_byte_level("\xFF"));
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(from_byte_level(to_byte_level(all)) == all);
  const auto alphabet = byte_level_alphabet();
  CHECK(alphabet[0] == '!');
  CHECK(alphabet[255] == 0xAD);
}
