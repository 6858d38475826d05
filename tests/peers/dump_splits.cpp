/// Splits texts for compare_splits.py.                                             usage: dump_splits PATTERN < texts
/// In: each text as its length in bytes (u32, little-endian) and its bytes. Out: for each the number of its pieces and
/// their lengths, u32 each. Fails when cutting a text into stretches changes its pieces.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <ilme/text/pretokenizer.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto pre_tokenizer = ilme::text::PreTokenizer::named(argv[1]);
  std::ios::sync_with_stdio(false);
  std::string text;
  std::vector<std::uint32_t> lengths, by_stretches;
  for (std::uint32_t size = 0; std::cin.read(reinterpret_cast<char*>(&size), sizeof size);) {
    text.resize(size);
    std::cin.read(text.data(), size);
    lengths.assign(1, 0);
    by_stretches.assign(1, 0);
    const auto collect = [](std::vector<std::uint32_t>& out) {
      return [&out](std::string_view piece) { out.push_back(static_cast<std::uint32_t>(piece.size())); };
    };
    pre_tokenizer.split(text, collect(lengths));
    for (const std::string_view stretch : pre_tokenizer.stretches(text, 1)) {
      pre_tokenizer.split(stretch, collect(by_stretches));
    }
    if (lengths != by_stretches) {
      std::cerr << "stretches change the pieces of \"" << text << "\"\n";
      return 1;
    }
    lengths[0] = static_cast<std::uint32_t>(lengths.size() - 1);
    std::cout.write(reinterpret_cast<const char*>(lengths.data()),
                    static_cast<std::streamsize>(lengths.size() * sizeof lengths[0]));
  }
}
