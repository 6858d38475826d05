/// Pre-tokenisation: cutting text into pieces that merges never cross.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/text/regex.hpp>
#include <ilme/text/scanner.hpp>
#include <ilme/text/scanner_az.hpp>
#include <ilme/text/scanner_o200k.hpp>

namespace ilme::text {

/// One split by a pattern: each match is a piece, and so is each stretch between matches ("Isolated" at Hugging Face).
class Splitter {
 public:
  /// The known patterns get their scanners, any other goes through PCRE2. Throws InputError when it does not compile.
  explicit Splitter(std::string pattern) : pattern_(std::move(pattern)) {
    if (pattern_ == kLlama3Pattern || pattern_ == kCl100kPattern) {
      kind_ = Kind::llama3;
    } else if (pattern_ == kQwen2Pattern) {
      kind_ = Kind::qwen2;
    } else if (pattern_ == kGpt2Pattern) {
      kind_ = Kind::gpt2;
    } else if (pattern_ == kO200kPattern) {
      kind_ = Kind::o200k;
    } else if (pattern_ == kAzPattern) {
      kind_ = Kind::az;
    } else {
      kind_ = Kind::regex;
      regex_ = std::make_shared<const Regex>(pattern_);
    }
  }

  const std::string& pattern() const noexcept { return pattern_; }

  /// Calls `on_piece(string_view)` for the pieces of `text` in order.
  template <class OnPiece>
  void split(std::string_view text, OnPiece&& on_piece) const {
    switch (kind_) {
      case Kind::llama3:
        return scan_llama3(text, 3, on_piece);
      case Kind::qwen2:
        return scan_llama3(text, 1, on_piece);
      case Kind::gpt2:
        return scan_gpt2(text, on_piece);
      case Kind::o200k:
        return scan_o200k(text, on_piece);
      case Kind::az:
        return scan_az(text, on_piece);
      case Kind::regex:
        return regex_->split(text, on_piece);
    }
  }

  /// True when a cut before a space that follows a character outside \s never changes the pieces: such a piece neither
  /// reaches over that place (a space only ever opens a piece or stands among spaces) nor looks beyond it (only
  /// `\s+(?!\S)` looks ahead, from a space).
  bool cuts_before_spaces() const noexcept { return kind_ != Kind::regex; }

 private:
  enum class Kind { llama3, qwen2, gpt2, o200k, az, regex };

  std::string pattern_;
  Kind kind_;
  std::shared_ptr<const Regex> regex_;
};

/// A sequence of splits, each applied to the pieces of the one before; with none the whole text is one piece.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<Splitter> splitters) : splitters_(std::move(splitters)) {}

  /// One split by `llama3`, `gpt2`, `qwen2`, `o200k`, `az` or, for any other name, by that name as a regular
  /// expression.
  static PreTokenizer named(const std::string& name) {
    std::string_view pattern = name;
    if (name == "llama3") pattern = kLlama3Pattern;
    if (name == "gpt2") pattern = kGpt2Pattern;
    if (name == "qwen2") pattern = kQwen2Pattern;
    if (name == "o200k") pattern = kO200kPattern;
    if (name == "az") pattern = kAzPattern;
    if (pattern.empty()) throw InputError("the split pattern is empty");
    return PreTokenizer({Splitter(std::string(pattern))});
  }

  const std::vector<Splitter>& splitters() const noexcept { return splitters_; }

  /// Calls `on_piece(string_view)` for the non-empty pieces of `text` in order; together they are `text`.
  template <class OnPiece>
  void split(std::string_view text, OnPiece&& on_piece) const {
    if (splitters_.size() == 1) {
      splitters_[0].split(text, on_piece);
    } else if (!text.empty()) {
      split_from(0, text, on_piece);
    }
  }

  /// Cuts `text` into stretches of about `size` bytes that split by themselves to the same pieces as the whole; one
  /// stretch when no such place is known.
  std::vector<std::string_view> stretches(std::string_view text, std::size_t size) const {
    std::vector<std::string_view> out;
    size = std::max<std::size_t>(size, 1);
    // A cut that the first split makes anyway means nothing to those after it.
    const bool can_cut = !splitters_.empty() && splitters_[0].cuts_before_spaces();
    while (can_cut && text.size() > size) {
      const std::size_t cut = next_cut(text, size);
      if (cut == std::string_view::npos) break;
      out.push_back(text.substr(0, cut));
      text.remove_prefix(cut);
    }
    if (!text.empty()) out.push_back(text);
    return out;
  }

 private:
  /// The first place from `from` on (from > 0) where a space follows a well-formed character outside \s.
  static std::size_t next_cut(std::string_view text, std::size_t from) {
    for (std::size_t cut = text.find(' ', from); cut != std::string_view::npos; cut = text.find(' ', cut + 1)) {
      const char32_t before = last_character(text.substr(0, cut)).code_point;
      if (before != kInvalidCodePoint && char_classes()[before] < CharClass::space) {
        return cut;
      }
    }
    return std::string_view::npos;
  }

  template <class OnPiece>
  void split_from(std::size_t index, std::string_view text, OnPiece& on_piece) const {
    if (index == splitters_.size()) {
      on_piece(text);
    } else {
      splitters_[index].split(text, [&](std::string_view piece) { split_from(index + 1, piece, on_piece); });
    }
  }

  std::vector<Splitter> splitters_;
};

}  // namespace ilme::text
