/// Any bytes as tokenizer.json or tiktoken file: they are refused with an Error, or what is loaded works: it encodes,
/// what it writes loads again as the same tokenizer.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/text/tokenizer.hpp>

#include "temporary_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ilme;
  static constexpr std::string_view kTexts[] = {"", " Bakı, 2026-cı il\n\n", "I\u0307 e\u0301 \u4e2d\u6587 <|a|> 12345",
                                                "\xFF\xC9 a\xE2\x80"};
  const fuzz::TemporaryFile file(data, size);
  try {
    const text::Tokenizer tokenizer = text::Tokenizer::load(file.path());
    const std::string written = text::tokenizer_json(tokenizer.model());
    const fuzz::TemporaryFile copy(reinterpret_cast<const std::uint8_t*>(written.data()), written.size());
    const text::Tokenizer again = text::Tokenizer::load(copy.path());
    for (const std::string_view text : kTexts) {
      for (const text::Special special : {text::Special::text, text::Special::allow}) {
        const std::vector<text::TokenId> ids = tokenizer.encode(text, special);
        fuzz::require(again.encode(text, special) == ids);
        fuzz::require(tokenizer.encode_with_offsets(text, special).ids == ids);
        tokenizer.decode(ids);
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
