/// Counting the words of a corpus on several threads within a bound of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/text/word_counter.hpp>
#include <ilme/text/word_runs.hpp>

namespace ilme::text {

/// A table for each thread. A table that is full goes to the disk, so that any number of distinct words is counted;
/// what is counted does not depend on the memory or the threads.
class CorpusWords {
 public:
  /// `memory`: bytes that the tables take together at most (0: no bound); `spill_folder`: where room on a disk is taken
  /// when they are full.
  explicit CorpusWords(std::size_t threads, std::size_t memory = 0, std::filesystem::path spill_folder = ".")
      : memory_(memory), runs_(std::make_unique<WordRuns>(std::move(spill_folder))) {
    for (std::size_t i = 0; i < threads; ++i) {
      if (memory == 0) {
        counters_.emplace_back();
      } else {
        counters_.emplace_back(memory / threads, [runs = runs_.get()](WordCounter& words) { runs->write(words); });
      }
    }
  }

  /// The table of one thread.
  WordCounter& counter(std::size_t thread) { return counters_[thread]; }

  /// Puts the tables together when all is counted.
  void finish() {
    for (std::size_t i = 1; i < counters_.size() && runs_->size() == 0; ++i) {
      counters_[0].add(counters_[i]);
      counters_[i] = {};
    }
    if (runs_->size() == 0) return counters_.resize(1);
    for (WordCounter& counter : counters_) {
      if (counter.size() > 0) runs_->write(counter);
    }
    counters_.clear();
  }

  /// Times that a table went to the disk.
  std::size_t spills() const noexcept { return runs_->size(); }

  /// Calls `visit(word, count)` for every word, each once, in no particular order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (runs_->size() > 0) {
      runs_->for_each(memory_ / 4, visit);
    } else {
      for (const WordCounter& counter : counters_) counter.for_each(visit);
    }
  }

 private:
  std::size_t memory_;
  std::vector<WordCounter> counters_;
  std::unique_ptr<WordRuns> runs_;
};

}  // namespace ilme::text
