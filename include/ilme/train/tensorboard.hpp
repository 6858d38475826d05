/// TensorBoard event files, written without TensorFlow or torch.
///
/// A file is a sequence of TFRecords (length, masked CRC-32C of it, an Event message, masked CRC-32C of that); the
/// messages are those of tensorboard/compat/proto/{event,summary}.proto, encoded by hand as PyTorch's SummaryWriter
/// writes them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>

namespace ilme::train {

namespace detail {

constexpr std::array<std::uint32_t, 256> crc32c_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    table[i] = crc;
  }
  return table;
}

/// CRC-32C (Castagnoli), RFC 3720 appendix B.4.
inline std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc32c_table();
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

/// TFRecord's mask, so that a CRC of data that holds CRCs stays meaningful.
inline std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

template <class Unsigned>
void append_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

/// A protocol buffer message in the making. Each call appends a field by its number; see
/// https://protobuf.dev/programming-guides/encoding.
class ProtoMessage {
 public:
  ProtoMessage& integer(int field, std::uint64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  ProtoMessage& number(int field, double value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 1);
    append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  ProtoMessage& number(int field, float value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 5);
    append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  ProtoMessage& text(int field, std::string_view value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtoMessage& message(int field, const ProtoMessage& value) { return text(field, value.bytes_); }

  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

/// One TFRecord.
inline std::string tf_record(std::string_view data) {
  std::string record;
  append_little_endian(record, static_cast<std::uint64_t>(data.size()));
  append_little_endian(record, masked_crc32c(record));
  record += data;
  append_little_endian(record, masked_crc32c(data));
  return record;
}

}  // namespace detail

/// Appends scalars and texts to an event file of its own, `events.out.tfevents.<time>.<host>.<pid>.<n>` in a folder
/// that `tensorboard --logdir` reads. Records are written out at the latest with the first record after kFlushSeconds,
/// by flush(), and by the destructor. Not thread-safe.
class EventFileWriter {
 public:
  static constexpr double kFlushSeconds = 5;

  /// `step` is the step after which the run goes on; what earlier files of the folder hold for later steps disappears
  /// from TensorBoard's curves. 0: a new run, all of it does. Throws RunError when the file cannot be created.
  explicit EventFileWriter(const std::filesystem::path& folder, std::int64_t step = 0) {
    ilme::detail::create_folders(folder);
    create_file(folder);
    detail::ProtoMessage version, source, session;
    source.text(1, "ilme");
    add(version.text(3, "brain.Event:2").message(10, source), 0);
    session.integer(1, 1);  // SessionLog.START: drops what was logged at this step and later
    add(detail::ProtoMessage().message(7, session), step > 0 ? step + 1 : 0);
    flush();
  }
  EventFileWriter(const EventFileWriter&) = delete;
  EventFileWriter& operator=(const EventFileWriter&) = delete;
  ~EventFileWriter() {
    try {
      flush();
    } catch (const RunError&) {
      // Nothing to report to from a destructor; flush() before it does report.
    }
    ::close(fd_);
  }

  /// Adds a point of the curve `tag` ("train/loss" groups by the part before the slash). Stored as a float.
  void scalar(const std::string& tag, double value, std::int64_t step) {
    detail::ProtoMessage item;
    add_value(item.text(1, tag).number(2, static_cast<float>(value)), step);
  }

  /// Adds a text, shown as Markdown (fence code with ```).
  void text(const std::string& tag, std::string_view markdown, std::int64_t step) {
    constexpr std::uint64_t kString = 7;  // DT_STRING
    detail::ProtoMessage dimension, shape, tensor, plugin, metadata, item;
    shape.message(2, dimension.integer(1, 1));
    tensor.integer(1, kString).message(2, shape).text(8, markdown);
    metadata.message(1, plugin.text(1, "text"));
    add_value(item.text(1, tag + "/text_summary").message(8, tensor).message(9, metadata), step);
  }

  /// Hands all records to the operating system. Throws RunError when writing fails (a full disk).
  void flush() {
    last_flush_ = Clock::now();
    std::size_t done = 0;
    while (done < pending_.size()) {
      const ssize_t count = ::write(fd_, pending_.data() + done, pending_.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        const std::string reason = ilme::detail::errno_text();
        pending_.erase(0, done);
        throw RunError(path_.string(), ": cannot write: ", reason);
      }
      done += static_cast<std::size_t>(count);
    }
    pending_.clear();
  }

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  using Clock = std::chrono::steady_clock;

  void add_value(const detail::ProtoMessage& value, std::int64_t step) {
    detail::ProtoMessage summary, event;
    add(event.message(5, summary.message(1, value)), step);
  }

  /// Completes an Event with time and step and queues it.
  void add(const detail::ProtoMessage& rest, std::int64_t step) {
    const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    detail::ProtoMessage event;
    event.number(1, now);
    if (step != 0) event.integer(2, static_cast<std::uint64_t>(step));
    pending_ += detail::tf_record(event.bytes() + rest.bytes());
    if (std::chrono::duration<double>(Clock::now() - last_flush_).count() > kFlushSeconds) flush();
  }

  /// TensorBoard reads the files of a folder in the order of their names: the time in ours is later than in all others.
  void create_file(const std::filesystem::path& folder) {
    static constexpr std::string_view kPrefix = "events.out.tfevents.";
    std::int64_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      std::int64_t other = 0;
      if (!name.starts_with(kPrefix)) continue;
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other);
      if (other < 9'999'999'999) time = std::max(time, other + 1);
    }
    char host[256] = "localhost";
    ::gethostname(host, sizeof host - 1);
    path_ = folder / concat(kPrefix, time, ".", host, ".", ::getpid(), ".0");
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ < 0) throw RunError(path_.string(), ": cannot create: ", ilme::detail::errno_text());
  }

  std::filesystem::path path_;
  int fd_ = -1;
  std::string pending_;
  Clock::time_point last_flush_{};
};

}  // namespace ilme::train
