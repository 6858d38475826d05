/// Streams of documents from text and JSON Lines files, plain or compressed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/input_file.hpp>
#include <ilme/data/json_line.hpp>

namespace ilme::data {

/// What a line of a file is.
enum class DocumentFormat { text, json_lines };

/// By the file's name, `.gz` and `.zst` aside: `.jsonl` and `.ndjson` are JSON Lines, the rest is text. Names that
/// promise something that is neither (`.json`, `.parquet`, `.xz`, ...) are refused: as text they would be garbage.
inline DocumentFormat document_format(std::filesystem::path path) {
  const std::string name = path.string();
  if (path.extension() == ".gz" || path.extension() == ".zst") path = path.stem();
  const std::string extension = path.extension().string();
  if (extension == ".jsonl" || extension == ".ndjson") return DocumentFormat::json_lines;
  constexpr std::array<std::string_view, 12> kUnreadable = {".json", ".parquet", ".arrow", ".csv", ".xz",   ".bz2",
                                                            ".lz4",  ".zip",     ".tar",   ".tgz", ".html", ".pdf"};
  if (std::find(kUnreadable.begin(), kUnreadable.end(), extension) != kUnreadable.end()) {
    throw InputError(name, ": cannot read ", extension,
                     " files; expected .txt or .jsonl, or one of them with .gz or .zst");
  }
  return DocumentFormat::text;
}

/// The non-empty lines of a file, without LF or CR LF, whatever their bytes. A byte-order mark that opens the file is
/// left out. Memory: one line, at most `longest_line` bytes (InputError beyond it).
class LineReader {
 public:
  static constexpr std::size_t kLongestLine = std::size_t{1} << 30;

  explicit LineReader(std::filesystem::path path, std::size_t longest_line = kLongestLine)
      : path_(std::move(path)), file_(path_), longest_line_(longest_line), buffer_(std::size_t{1} << 18) {}

  /// The next line that is not empty; nothing at the end of the file.
  std::optional<std::string> next() {
    std::string line;
    while (read_line(line)) {
      ++line_number_;
      if (line_number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty()) return line;
    }
    return std::nullopt;
  }

  /// Of the line that `next()` returned last, counted from 1 with the empty ones.
  std::uint64_t line_number() const noexcept { return line_number_; }
  /// Bytes of the file read so far, as they are on disk.
  std::uint64_t bytes_read() const noexcept { return file_.bytes_read(); }
  /// "file:line" of the line that `next()` returned last.
  std::string where() const { return concat(path_.string(), ":", line_number_); }

 private:
  bool read_line(std::string& line) {
    line.clear();
    for (;;) {
      if (begin_ == end_) {
        begin_ = 0;
        end_ = file_.read(buffer_.data(), buffer_.size());
        if (end_ == 0) return !line.empty();
      }
      const char* start = buffer_.data() + begin_;
      const auto* stop = static_cast<const char*>(std::memchr(start, '\n', end_ - begin_));
      const std::size_t length = stop != nullptr ? static_cast<std::size_t>(stop - start) : end_ - begin_;
      if (line.size() + length > longest_line_) {
        throw InputError(path_.string(), ":", line_number_ + 1, ": the line is longer than ", longest_line_, " bytes");
      }
      line.append(start, length);
      begin_ += length + (stop != nullptr ? 1 : 0);
      if (stop != nullptr) return true;
    }
  }

  std::filesystem::path path_;
  InputFile file_;
  std::size_t longest_line_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t line_number_ = 0;
};

/// A line as it was read: its text is taken out of it (by any thread) with `DocumentReader::text`.
struct DocumentLine {
  std::string bytes;
  std::size_t file = 0;    // index into the reader's files
  std::uint64_t line = 0;  // from 1
};

/// The documents of several files in order: one a line, of a JSON line the string in `field`. Errors of the content
/// name file:line.
class DocumentReader {
 public:
  /// Checks every name and that every file can be opened before anything is read.
  explicit DocumentReader(std::vector<std::filesystem::path> files, std::string field = "text")
      : files_(std::move(files)), field_(std::move(field)) {
    if (files_.empty()) throw InputError("no input files were given");
    for (const auto& file : files_) {
      formats_.push_back(document_format(file));
      InputFile probe(file);
      std::error_code code;
      const std::uintmax_t size = std::filesystem::file_size(file, code);
      bytes_total_ += code ? 0 : size;
    }
  }

  /// The next line that is not empty, not parsed yet; nothing after the last file.
  std::optional<DocumentLine> next_line() {
    while (current_ < files_.size()) {
      if (!lines_) lines_.emplace(files_[current_]);
      if (auto bytes = lines_->next()) return DocumentLine{std::move(*bytes), current_, lines_->line_number()};
      bytes_before_ += lines_->bytes_read();
      lines_.reset();
      ++current_;
    }
    return std::nullopt;
  }

  /// The document's text; may be empty for a JSON line. Thread-safe.
  std::string text(const DocumentLine& line) const {
    if (formats_[line.file] == DocumentFormat::text) return line.bytes;
    return JsonObject(json(line), where(line)).require<std::string>(field_);
  }

  /// The whole JSON value of the line. Thread-safe.
  Json json(const DocumentLine& line) const {
    if (formats_[line.file] == DocumentFormat::text) {
      throw InputError(where(line), ": is a line of text, expected a .jsonl file");
    }
    return parse_json_line(line.bytes, where(line));
  }

  std::string where(const DocumentLine& line) const { return concat(files_[line.file].string(), ":", line.line); }

  /// The text of the next document that is not empty; nothing after the last one.
  std::optional<std::string> next() {
    while (auto line = next_line()) {
      std::string document = text(*line);
      if (!document.empty()) return document;
    }
    return std::nullopt;
  }

  const std::vector<std::filesystem::path>& files() const noexcept { return files_; }
  /// Bytes on disk of all files, and how many of them have been read: for progress.
  std::uint64_t bytes_total() const noexcept { return bytes_total_; }
  std::uint64_t bytes_read() const noexcept { return bytes_before_ + (lines_ ? lines_->bytes_read() : 0); }

 private:
  std::vector<std::filesystem::path> files_;
  std::string field_;
  std::vector<DocumentFormat> formats_;
  std::uint64_t bytes_total_ = 0, bytes_before_ = 0;
  std::size_t current_ = 0;
  std::optional<LineReader> lines_;
};

}  // namespace ilme::data
