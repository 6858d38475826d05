/// Encodes one file several times and prints the seconds of each pass, for benchmarks/peers/compare_encoding.py: the
/// first pass meets every word for the first time, the others find them in the cache of words.
/// usage: encode_file TOKENIZER FILE THREADS PASSES [IDS]
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/memory_map.hpp>
#include <ilme/text/tokenizer.hpp>

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: encode_file TOKENIZER FILE THREADS PASSES [IDS]\n";
    return 2;
  }
  try {
    using namespace ilme;
    const text::Tokenizer tokenizer = text::Tokenizer::load(argv[1]);
    const MemoryMap map(argv[2]);
    const std::size_t threads = std::stoul(argv[3]), passes = std::stoul(argv[4]);
    std::size_t newlines = 0;  // reads the file into memory
    for (const char c : map.text()) newlines += c == '\n' ? 1 : 0;
    Json seconds = Json::array();
    std::vector<text::TokenId> ids;
    for (std::size_t pass = 0; pass < passes; ++pass) {
      ids = {};
      const auto start = std::chrono::steady_clock::now();
      ids = tokenizer.encode(map.text(), text::Special::text, threads);
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    if (argc > 5) write_file(argv[5], {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0])});
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::cout << Json{{"seconds", seconds},
                      {"bytes", map.text().size()},
                      {"lines", newlines},
                      {"ids", ids.size()},
                      {"peak_memory_bytes", usage.ru_maxrss * 1024}}
              << "\n";
  } catch (const std::exception& error) {
    std::cerr << "encode_file: " << error.what() << "\n";
    return 1;
  }
}
