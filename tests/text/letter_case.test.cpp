#include <ilme/text/letter_case.hpp>

#include <cstddef>
#include <map>

#include <catch2/catch_all.hpp>

using namespace ilme::text;

TEST_CASE("Cases are those of Unicode 16 as Hugging Face's engine has them") {
  const auto& classes = case_classes();
  CHECK(classes['A'] == CaseClass::upper);
  CHECK(classes[0x18F] == CaseClass::upper);
  CHECK(classes[0x1C5] == CaseClass::upper);   // title case
  CHECK(classes[0xA7CB] == CaseClass::upper);  // new in Unicode 16
  CHECK(classes['a'] == CaseClass::lower);
  CHECK(classes[0x259] == CaseClass::lower);
  CHECK(classes[0x2BC] == CaseClass::caseless);
  CHECK(classes[0xAA] == CaseClass::caseless);
  CHECK(classes[0x4E2D] == CaseClass::caseless);
  CHECK(classes[0x301] == CaseClass::mark);
  CHECK(classes[0x903] == CaseClass::mark);
  CHECK(classes[0x2019] == CaseClass::other);
  CHECK(classes['7'] == CaseClass::number);
  CHECK(classes[0x2028] == CaseClass::space);
  CHECK(classes['\n'] == CaseClass::newline);
  CHECK(classes[kInvalidCodePoint] == CaseClass::other);
  std::map<CaseClass, std::size_t> counts;
  for (char32_t c = 0; c < 0x110000; ++c) {
    ++counts[classes[c]];
    if (c < 0x800) CHECK(classes.low(c) == classes[c]);
  }
  CHECK(counts[CaseClass::upper] == 1889);
  CHECK(counts[CaseClass::caseless] == 136881);
  CHECK(counts[CaseClass::lower] == 2258);
  CHECK(counts[CaseClass::mark] == 2501);
  CHECK(counts[CaseClass::number] == 1911);
  CHECK(counts[CaseClass::space] == 23);
  CHECK(counts[CaseClass::newline] == 2);
}
