/// Text that was rewritten, with the place in the source that every byte of it comes from.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/text/unicode.hpp>

namespace ilme::text {

/// Bytes [begin, end) of the source text.
struct SourceRange {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const SourceRange&, const SourceRange&) = default;
};

/// A text and one range for each of its bytes.
struct AlignedText {
  std::string text;
  std::vector<SourceRange> ranges;

  AlignedText() = default;
  /// Bytes that stand at `offset` in the source and are not rewritten yet.
  explicit AlignedText(std::string_view source, std::size_t offset = 0) : text(source) {
    ranges.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) ranges.push_back({offset + i, offset + i + 1});
  }
};

namespace detail {

/// A byte of ill-formed UTF-8 among code points: kFirstRawByte + the byte.
inline constexpr char32_t kFirstRawByte = 0x110000;

struct Unit {
  char32_t code;  // a code point or a raw byte
  std::uint32_t length;
};

/// The character at `p` (`p < end`), or the raw byte when it starts none.
inline Unit decode_unit(const char* p, const char* end) {
  const DecodedCharacter character = decode_utf8(p, end);
  if (character.code_point != kInvalidCodePoint) return {character.code_point, character.length};
  return {kFirstRawByte + static_cast<unsigned char>(*p), 1};
}

/// Appends what decode_unit reads.
inline void append_unit(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else if (code < kFirstRawByte) {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(code - kFirstRawByte);
  }
}

/// Takes the edits of a text from left to right. What this one makes is the text alone.
class PlainRewriter {
 public:
  explicit PlainRewriter(std::string& out) : out_(out) {}

  /// The next bytes stay.
  void keep(std::string_view bytes) { out_ += bytes; }
  /// The next bytes go.
  void drop(std::string_view) {}
  /// `code` stands for the next character and the `also` characters after it.
  void replace(char32_t code, std::size_t /*also*/) { append_unit(out_, code); }
  /// `code` comes in; it takes nothing away.
  void insert(char32_t code) { append_unit(out_, code); }

 private:
  std::string& out_;
};

/// The same edits with the ranges, by the rules of Hugging Face's NormalizedString: a replaced character passes its
/// range on, without those of the characters that go with it; an inserted one has the range of the character before it
/// (the edits before counted as taken away), and an empty range when there is none.
class AlignedRewriter {
 public:
  AlignedRewriter(const AlignedText& in, AlignedText& out) : in_(in), out_(out) {}

  void keep(std::string_view bytes) {
    out_.text += bytes;
    const auto first = in_.ranges.begin() + static_cast<std::ptrdiff_t>(offset_);
    out_.ranges.insert(out_.ranges.end(), first, first + static_cast<std::ptrdiff_t>(bytes.size()));
    offset_ += bytes.size();
  }
  void drop(std::string_view bytes) { offset_ += bytes.size(); }
  void replace(char32_t code, std::size_t also) {
    const Unit old = unit();
    if (old.code == code) {
      keep(std::string_view(in_.text).substr(offset_, old.length));
    } else {
      put(code, {in_.ranges[offset_].begin, in_.ranges[offset_ + old.length - 1].end});
      offset_ += old.length;
    }
    for (; also > 0; --also) offset_ += unit().length;
  }
  void insert(char32_t code) {
    if (offset_ == 0) {
      const std::size_t start = in_.ranges.empty() ? 0 : in_.ranges[0].begin;
      return put(code, {start, start});
    }
    const std::size_t length = last_character(std::string_view(in_.text).substr(0, offset_)).length;
    put(code, {in_.ranges[offset_ - length].begin, in_.ranges[offset_ - 1].end});
  }

 private:
  Unit unit() const { return decode_unit(in_.text.data() + offset_, in_.text.data() + in_.text.size()); }
  void put(char32_t code, SourceRange range) {
    append_unit(out_.text, code);
    out_.ranges.resize(out_.text.size(), range);
  }

  const AlignedText& in_;
  AlignedText& out_;
  std::size_t offset_ = 0;  // in the text of `in_`
};

}  // namespace detail

}  // namespace ilme::text
