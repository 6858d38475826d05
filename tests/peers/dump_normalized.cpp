/// Normalises texts for compare_az_normalizer.py.                              usage: dump_normalized NAME < texts
/// In: each text as its length in bytes (u32, little-endian) and its bytes. Out: in the same form the normaliser as
/// JSON, then each text normalised. Fails when the form with offsets gives another text.
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>

#include <ilme/text/normalizer.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto normalizer = ilme::text::Normalizer::named(argv[1]);
  std::ios::sync_with_stdio(false);
  const auto write = [](std::string_view bytes) {
    const auto size = static_cast<std::uint32_t>(bytes.size());
    std::cout.write(reinterpret_cast<const char*>(&size), sizeof size);
    std::cout.write(bytes.data(), size);
  };
  write(normalizer.json().dump());
  std::string text;
  for (std::uint32_t size = 0; std::cin.read(reinterpret_cast<char*>(&size), sizeof size);) {
    text.resize(size);
    std::cin.read(text.data(), size);
    const std::string normalized = normalizer.normalize(text);
    if (size < 1000 && normalizer.normalize(ilme::text::AlignedText(text)).text != normalized) {
      std::cerr << "with offsets \"" << text << "\" becomes another text\n";
      return 1;
    }
    write(normalized);
  }
}
