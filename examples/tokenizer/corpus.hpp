/// Reading and counting a corpus within a budget of memory: what train and extend share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <malloc.h>

#include <CLI/CLI.hpp>

#include <ilme/core/memory_size.hpp>
#include <ilme/core/parallel.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/data/text_blocks.hpp>
#include <ilme/text/corpus_words.hpp>

#include "tokenizer/support.hpp"

namespace ilme::program {

struct CorpusOptions {
  std::vector<std::string> inputs;
  std::string field = "text", memory_budget = "80%";
  std::size_t threads = 0;
};

inline void add_corpus_options(CLI::App& command, CorpusOptions& o) {
  command.add_option("--input", o.inputs, "Text or .jsonl files, also as .gz or .zst")->required();
  command.add_option("--field", o.field, "Key of the text in .jsonl lines");
  command.add_option("--memory-budget", o.memory_budget,
                     "Memory of the whole process, as 500MB, 4GiB or a share of what is available; 0: no bound. Words "
                     "that do not fit are counted on disk, beside the output");
  add_threads(command, o.threads);
}

/// How a budget is divided, in bytes; without a budget there are no bounds.
struct MemoryPlan {
  std::size_t counting = 0, merging = 0;
  std::size_t longest_line = std::numeric_limits<std::size_t>::max();
};

/// Throws InputError when the budget is too small for so many threads and tokens.
inline MemoryPlan plan_memory(const CorpusOptions& options, std::size_t vocabulary_size) {
  const std::string& given = options.memory_budget;
  std::uint64_t budget = 0;
  if (given.ends_with('%')) {
    char* end = nullptr;
    const double share = std::strtod(given.c_str(), &end) / 100;
    if (end != &given.back() || !(share > 0 && share <= 1)) {
      throw InputError("--memory-budget: expected a share from 1% to 100%, found \"", given, "\"");
    }
    budget = static_cast<std::uint64_t>(share * static_cast<double>(available_memory().value_or(0)));
  } else {
    budget = parse_memory_size(given, "--memory-budget");
  }
  if (budget == 0) return {};
  constexpr std::uint64_t kProgram = 20 << 20, kLeast = 16 << 20;
  const std::size_t threads = thread_count(options.threads);
  const std::uint64_t reserved = kProgram + vocabulary_size * 256, least = reserved + threads * kLeast;
  if (budget < least) {
    throw InputError("--memory-budget ", given, " is too small for ", threads, " threads and ", vocabulary_size,
                     " tokens, expected at least ", (least + (1 << 20) - 1) >> 20, "MiB");
  }
  // Half for the tables of words. A line is there up to four times (as bytes, as JSON, as text), in each thread.
  const std::uint64_t work = budget - reserved;
  return {work / 2, work / 8 * 7, work / 10 / threads};
}

/// What `count(text, counter)` counts of the corpus; the disk, if need be, is that of `output`.
template <class Count>
text::CorpusWords count_corpus(const CorpusOptions& options, const MemoryPlan& plan,
                               const std::filesystem::path& output, std::uint64_t& bytes_read, Count&& count) {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // large tables go back to the system when they are freed
  std::filesystem::path folder = std::filesystem::absolute(output).lexically_normal();
  std::error_code ignored;
  while (!std::filesystem::is_directory(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  const std::size_t workers = thread_count(options.threads);
  text::CorpusWords words(workers, plan.counting, folder);
  ProgressBar reading({.label = "counting words", .unit = ProgressUnit::bytes});
  data::TextBlocks blocks(
      {options.inputs.begin(), options.inputs.end()}, options.field,
      [&](std::uint64_t done) { reading.update(static_cast<double>(done)); }, std::size_t{1} << 18, plan.longest_line);
  reading.set_total(static_cast<double>(blocks.bytes_total()));
  data::for_each_text(blocks, workers,
                      [&](std::size_t worker, std::string_view text) { count(text, words.counter(worker)); });
  words.finish();
  bytes_read = blocks.bytes_total();
  return words;
}

/// Words that are tallied as they are read.
struct TalliedWords {
  text::CorpusWords words;
  std::size_t* distinct;

  template <class Visit>
  void for_each(Visit&& visit) const {
    words.for_each([&](std::string_view word, std::uint64_t count) {
      ++*distinct;
      visit(word, count);
    });
  }
};

}  // namespace ilme::program
