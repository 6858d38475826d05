/// Text of a generation as it is made, up to the first stop string.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/text/stream_decoder.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::generate {

/// Lets text through up to the first stop string, which is not part of it. What may yet turn out to begin a stop string
/// is held back. The first stop string is the one that is complete first, so how the text is cut into pieces has no
/// part in it.
class StopStrings {
 public:
  /// Throws InputError for an empty stop string.
  explicit StopStrings(std::vector<std::string> stops = {}) : stops_(std::move(stops)) {
    for (const std::string& stop : stops_) {
      if (stop.empty()) throw InputError("a stop string is empty, expected text that ends an answer");
    }
  }

  /// The text that is certain after this piece; nothing more once `stopped`.
  std::string push(std::string_view piece) {
    if (stopped_) return {};
    held_ += piece;
    std::size_t begin = std::string::npos, end = std::string::npos;
    for (const std::string& stop : stops_) {
      const std::size_t at = held_.find(stop);
      if (at == std::string::npos) continue;
      if (at + stop.size() < end || (at + stop.size() == end && at < begin)) {
        begin = at;
        end = at + stop.size();
      }
    }
    stopped_ = begin != std::string::npos;
    return release(stopped_ ? begin : held_.size() - longest_start());
  }

  /// What was held back, when the text ends without a stop string.
  std::string finish() { return stopped_ ? std::string() : release(held_.size()); }

  bool stopped() const noexcept { return stopped_; }

 private:
  std::string release(std::size_t count) {
    std::string text = held_.substr(0, count);
    held_.erase(0, count);
    return text;
  }

  /// Length of the longest end of the held text that begins a stop string.
  std::size_t longest_start() const {
    std::size_t longest = 0;
    for (const std::string& stop : stops_) {
      for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > longest; --length) {
        if (held_.compare(held_.size() - length, length, stop, 0, length) == 0) longest = length;
      }
    }
    return longest;
  }

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

/// Hands on the text of ids as they come: valid UTF-8, cut between characters and before the first stop string. `push`
/// is made for GenerateOptions::on_token.
class TextStream {
 public:
  TextStream(const text::Tokenizer& tokenizer, std::vector<std::string> stops,
             std::function<void(const std::string&)> show)
      : decoder_(tokenizer), stops_(std::move(stops)), show_(std::move(show)) {}

  /// False once a stop string is complete.
  bool push(text::TokenId id) {
    emit(stops_.push(decoder_.push(id)));
    return !stops_.stopped();
  }

  /// Call it at the end: hands on what was held back.
  void finish() {
    emit(stops_.push(decoder_.finish()));
    emit(stops_.finish());
  }

  bool stopped() const noexcept { return stops_.stopped(); }  ///< by a stop string
  const std::string& text() const noexcept { return text_; }  ///< all that was handed on

 private:
  void emit(const std::string& piece) {
    if (piece.empty()) return;
    text_ += piece;
    show_(piece);
  }

  text::StreamDecoder decoder_;
  StopStrings stops_;
  std::function<void(const std::string&)> show_;
  std::string text_;
};

}  // namespace ilme::generate
