/// The texts of large files in blocks, for work that needs no order: counting words, say.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/parallel.hpp>
#include <ilme/data/documents.hpp>
#include <ilme/data/input_file.hpp>
#include <ilme/data/json_line.hpp>

namespace ilme::data {

/// Hands out the files (text, JSON Lines, `.gz`, `.zst`) as blocks of whole lines, each to one of any number of
/// threads.
class TextBlocks {
 public:
  struct Block {
    std::string bytes;  // whole lines with their newlines; the last of a file may lack its own
    std::size_t file = 0;
    std::uint64_t first_line = 1;
  };

  /// Checks that every file can be opened. `on_read(bytes on disk read so far)` is called now and then, by one thread
  /// at a time. A block, and so a line, longer than `longest_line` bytes is an InputError that names file:line.
  explicit TextBlocks(std::vector<std::filesystem::path> files, std::string field = "text",
                      std::function<void(std::uint64_t)> on_read = {}, std::size_t block_size = std::size_t{1} << 18,
                      std::size_t longest_line = std::numeric_limits<std::size_t>::max())
      : files_(std::move(files)),
        field_(std::move(field)),
        on_read_(std::move(on_read)),
        block_size_(block_size),
        longest_line_(longest_line) {
    if (files_.empty()) throw InputError("no input files were given");
    for (const auto& file : files_) {
      formats_.push_back(document_format(file));
      const InputFile probe(file);
      std::error_code code;
      const std::uintmax_t size = std::filesystem::file_size(file, code);
      bytes_total_ += code ? 0 : size;
    }
  }

  /// Bytes on disk of all files.
  std::uint64_t bytes_total() const noexcept { return bytes_total_; }

  /// Puts the next block in the place of `block`, whose memory is used again; false after the last. Thread-safe.
  bool next(Block& block) {
    const std::lock_guard lock(mutex_);
    while (current_ < files_.size()) {
      if (!file_) {
        file_.emplace(files_[current_]);
        line_ = 1;
      }
      block.bytes = rest_;
      rest_.clear();
      block.file = current_;
      block.first_line = line_;
      const bool ended = !fill(block.bytes);
      const std::uint64_t done = bytes_before_ + file_->bytes_read();
      if (ended) {
        bytes_before_ = done;
        file_.reset();
        ++current_;
      } else {
        line_ += static_cast<std::uint64_t>(std::count(block.bytes.begin(), block.bytes.end(), '\n'));
      }
      if (on_read_) on_read_(done);
      if (!block.bytes.empty()) return true;
    }
    return false;
  }

  /// Calls `visit(string_view)` with the texts of a block: all of it at once for a text file, else the string in
  /// `field` of each line that is not empty. Throws InputError that names file:line. Thread-safe.
  template <class Visit>
  void for_each_text(const Block& block, Visit&& visit) const {
    if (formats_[block.file] == DocumentFormat::text) {
      visit(std::string_view(block.bytes));
      return;
    }
    std::string_view rest = block.bytes;
    for (std::uint64_t number = block.first_line; !rest.empty(); ++number) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string where = concat(files_[block.file].string(), ":", number);
      const Json value = parse_json_line(line, where);
      visit(std::string_view(JsonObject(value, where).require<std::string>(field_)));
    }
  }

  /// No more blocks for anyone.
  void stop() {
    const std::lock_guard lock(mutex_);
    current_ = files_.size();
  }

 private:
  /// Adds to `bytes` until it holds a block of whole lines; what follows goes to `rest_`. False at the end of the file.
  bool fill(std::string& bytes) {
    for (std::size_t searched = 0;;) {
      const std::size_t before = bytes.size();
      bytes.resize(before + block_size_);
      const std::size_t count = file_->read(bytes.data() + before, block_size_);
      bytes.resize(before + count);
      if (count == 0) return false;
      if (bytes.size() < block_size_) continue;
      const std::size_t newline = std::string_view(bytes).substr(searched).rfind('\n');
      if (newline != std::string_view::npos) {
        rest_.assign(bytes, searched + newline + 1);
        bytes.resize(searched + newline + 1);
        return true;
      }
      searched = bytes.size();
      if (searched > longest_line_) {
        throw InputError(files_[current_].string(), ":", line_, ": the line is longer than ", longest_line_, " bytes");
      }
    }
  }

  std::vector<std::filesystem::path> files_;
  std::string field_;
  std::function<void(std::uint64_t)> on_read_;
  std::size_t block_size_, longest_line_;
  std::vector<DocumentFormat> formats_;
  std::uint64_t bytes_total_ = 0, bytes_before_ = 0;
  std::mutex mutex_;
  std::size_t current_ = 0;
  std::optional<InputFile> file_;
  std::string rest_;
  std::uint64_t line_ = 1;
};

/// Calls `visit(worker, string_view text)` for every text of `blocks` on `threads` threads (0: all); `worker` is below
/// that number and tells them apart. The first exception ends it.
template <class Visit>
void for_each_text(TextBlocks& blocks, std::size_t threads, Visit&& visit) {
  const std::size_t workers = thread_count(threads);
  parallel_for(workers, workers, [&](std::size_t worker) {
    try {
      TextBlocks::Block block;
      while (blocks.next(block)) {
        blocks.for_each_text(block, [&](std::string_view text) { visit(worker, text); });
      }
    } catch (...) {
      blocks.stop();
      throw;
    }
  });
}

}  // namespace ilme::data
