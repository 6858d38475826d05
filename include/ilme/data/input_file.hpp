/// Streaming reads of a plain, gzip (.gz) or Zstandard (.zst) file in bounded memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>

namespace ilme::data {

/// The bytes of a file, decompressed on the way when its name ends in `.gz` (RFC 1952, several members allowed) or
/// `.zst` (RFC 8878, several frames allowed, window up to 128 MiB). A missing, damaged or truncated file is an
/// InputError that names it.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path) : path_(std::move(path)) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path_, ignored)) {
      throw InputError(path_.string(), ": is a folder, expected a file");
    }
    file_.open(path_, std::ios::binary);
    if (!file_) throw InputError(path_.string(), ": cannot open: ", ilme::detail::errno_text());
    if (path_.extension() == ".gz") {
      gzip_.reset(new z_stream{});
      if (::inflateInit2(gzip_.get(), 15 + 16) != Z_OK) throw RunError(path_.string(), ": cannot start zlib");
    } else if (path_.extension() == ".zst") {
      zstd_.reset(::ZSTD_createDStream());
      if (!zstd_) throw RunError(path_.string(), ": cannot start zstd");
    }
    if (gzip_ || zstd_) input_.resize(std::size_t{1} << 17);
  }

  /// Reads up to `size` (> 0) decompressed bytes; 0 means the end of the file.
  std::size_t read(char* out, std::size_t size) {
    if (!gzip_ && !zstd_) return read_raw(out, size);
    for (;;) {
      if (!inside_) {  // between two members or frames
        if (begin_ == end_ && !refill()) {
          if (!started_) throw InputError(path_.string(), ": is empty, expected compressed data");
          return 0;
        }
        if (gzip_) ::inflateReset(gzip_.get());
        inside_ = started_ = true;
      }
      const std::size_t before = begin_;
      const std::size_t produced = gzip_ ? inflate_some(out, size) : unzstd_some(out, size);
      if (produced > 0) return produced;
      if (inside_ && begin_ == before && !refill()) {
        throw InputError(path_.string(), ": the compressed data ends early; the file is truncated");
      }
    }
  }

  /// Bytes of the file read so far, as they are on disk (compressed): for progress.
  std::uint64_t bytes_read() const noexcept { return bytes_read_; }

 private:
  struct EndInflate {
    void operator()(z_stream* stream) const {
      ::inflateEnd(stream);
      delete stream;
    }
  };
  struct FreeZstd {
    void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
  };

  std::size_t read_raw(char* out, std::size_t size) {
    file_.read(out, static_cast<std::streamsize>(size));
    if (file_.bad()) throw RunError(path_.string(), ": read failed: ", ilme::detail::errno_text());
    const auto count = static_cast<std::size_t>(file_.gcount());
    bytes_read_ += count;
    return count;
  }

  /// Appends to what is left of the compressed input; false at the end of the file.
  bool refill() {
    if (begin_ == end_) begin_ = end_ = 0;
    if (end_ == input_.size()) return true;
    const std::size_t count = read_raw(input_.data() + end_, input_.size() - end_);
    end_ += count;
    return count > 0;
  }

  std::size_t inflate_some(char* out, std::size_t size) {
    gzip_->next_in = reinterpret_cast<Bytef*>(input_.data() + begin_);
    gzip_->avail_in = static_cast<uInt>(end_ - begin_);
    gzip_->next_out = reinterpret_cast<Bytef*>(out);
    const auto room = static_cast<uInt>(std::min<std::size_t>(size, std::size_t{1} << 30));
    gzip_->avail_out = room;
    const int code = ::inflate(gzip_.get(), Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      throw InputError(path_.string(),
                       ": damaged gzip data: ", gzip_->msg != nullptr ? gzip_->msg : "unexpected bytes");
    }
    begin_ = end_ - gzip_->avail_in;
    if (code == Z_STREAM_END) inside_ = false;
    return room - gzip_->avail_out;
  }

  std::size_t unzstd_some(char* out, std::size_t size) {
    ZSTD_inBuffer in{input_.data(), end_, begin_};
    ZSTD_outBuffer to{out, size, 0};
    const std::size_t code = ::ZSTD_decompressStream(zstd_.get(), &to, &in);
    if (::ZSTD_isError(code)) {
      throw InputError(path_.string(), ": damaged zstd data: ", ::ZSTD_getErrorName(code));
    }
    begin_ = in.pos;
    if (code == 0) inside_ = false;
    return to.pos;
  }

  std::filesystem::path path_;
  std::ifstream file_;
  std::unique_ptr<z_stream, EndInflate> gzip_;
  std::unique_ptr<ZSTD_DStream, FreeZstd> zstd_;
  std::vector<char> input_;          // compressed bytes
  std::size_t begin_ = 0, end_ = 0;  // the part of input_ that is not used yet
  bool inside_ = false;              // a member or frame is under way
  bool started_ = false;             // there was one
  std::uint64_t bytes_read_ = 0;
};

}  // namespace ilme::data
