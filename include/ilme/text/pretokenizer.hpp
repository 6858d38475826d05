/// Pre-tokenisation: cutting text into pieces that merges never cross.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/aligned_text.hpp>
#include <ilme/text/byte_level.hpp>
#include <ilme/text/regex.hpp>
#include <ilme/text/scanner.hpp>
#include <ilme/text/scanner_az.hpp>
#include <ilme/text/scanner_o200k.hpp>
#include <ilme/text/split_step.hpp>

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

/// A piece of a text that knows where its bytes come from.
struct AlignedPiece {
  std::string_view text;
  const SourceRange* ranges;  // one for each byte

  std::size_t size() const noexcept { return text.size(); }
  AlignedPiece substr(std::size_t begin, std::size_t count) const {
    return {text.substr(begin, count), ranges + begin};
  }
};

/// A chain of steps, each applied to the pieces of the one before; with none the whole text is one piece. A value:
/// copies share what is compiled, any number of threads may use one at once.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  /// Each split isolates what it finds.
  explicit PreTokenizer(std::vector<Splitter> splitters) {
    for (Splitter& splitter : splitters) add_splitter(std::move(splitter));
  }

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

  /// Reads the `pre_tokenizer` of a tokenizer.json: Split, Digits, Punctuation, Whitespace, WhitespaceSplit, one
  /// ByteLevel and Sequence of these. Any other is refused by name. Throws InputError that opens with `where`.
  static PreTokenizer from_json(const Json& json, const std::string& where) {
    PreTokenizer out;
    out.json_ = json;
    out.add(json, where, 0);
    if (!out.byte_level_) {
      throw InputError(where, " ", ilme::detail::short_dump(json), " is not supported, expected one with ByteLevel");
    }
    return out;
  }

  /// As from_json reads it; a chain that was not read ends with a ByteLevel.
  Json json() const {
    if (!json_.is_null()) return json_;
    Json steps = Json::array();
    const bool own_pattern = !steps_.empty() && steps_.back().signature == kGpt2Pattern;
    for (std::size_t i = 0; i + (own_pattern ? 1 : 0) < steps_.size(); ++i) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", steps_[i].signature}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    steps.push_back(
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own_pattern}});
    if (steps.size() == 1) return steps[0];
    return {{"type", "Sequence"}, {"pretokenizers", steps}};
  }

  /// One line for each step: two chains with equal lines split alike.
  std::vector<std::string> signature() const {
    std::vector<std::string> lines;
    for (const Step& step : steps_) lines.push_back(step.signature);
    return lines;
  }

  /// True when pieces may be other than views of the text: then they are good during the call of `on_piece` only.
  bool rewrites() const noexcept {
    return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.kind == Step::Kind::space; });
  }

  /// Calls `on_piece(string_view)` for the non-empty pieces of `text` in order; together they are `text`, but for what
  /// a step removes or puts before it.
  template <class OnPiece>
  void split(std::string_view text, OnPiece&& on_piece) const {
    if (steps_.size() == 1 && steps_[0].kind == Step::Kind::splitter) {
      steps_[0].splitter->split(text, on_piece);
    } else if (!text.empty()) {
      split_from(0, text, on_piece);
    }
  }
  /// Calls `on_piece(AlignedPiece)` for the same pieces.
  template <class OnPiece>
  void split(const AlignedPiece& text, OnPiece&& on_piece) const {
    if (text.size() > 0) split_from(0, text, on_piece);
  }

  /// Cuts `text` into stretches of about `size` bytes that split by themselves to the same pieces as the whole; one
  /// stretch when no such place is known.
  std::vector<std::string_view> stretches(std::string_view text, std::size_t size) const {
    std::vector<std::string_view> out;
    size = std::max<std::size_t>(size, 1);
    const bool can_cut = cuts_before_spaces();
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

  /// True when a cut before a space that follows a character outside \s never changes the pieces: digits by themselves
  /// and the space that a step puts where there is none do not heed it, and a cut that the first split makes anyway
  /// means nothing to the steps after it.
  bool cuts_before_spaces() const {
    for (const Step& step : steps_) {
      if (step.kind == Step::Kind::splitter) return step.splitter->cuts_before_spaces();
      const bool digits = step.kind == Step::Kind::places && step.finder->kind() == detail::PlaceFinder::Kind::number &&
                          (step.behavior == SplitBehavior::isolated || step.behavior == SplitBehavior::contiguous);
      if (!digits && step.kind != Step::Kind::space) return false;
    }
    return false;
  }

  struct Step {
    enum class Kind { splitter, places, space };
    Kind kind;  // space: a space comes before a piece that does not start with one
    std::string signature;
    std::optional<Splitter> splitter = {};
    std::optional<detail::PlaceFinder> finder = {};
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
    bool byte_level = false;  // after ByteLevel a step sees the text in the byte-level alphabet
  };

  static std::string_view text_of(std::string_view piece) { return piece; }
  static std::string_view text_of(const AlignedPiece& piece) { return piece.text; }

  /// Calls `visit` with a space and the piece, aligned as by Hugging Face: the space with the first character.
  template <class Visit>
  static void with_space(std::string_view piece, Visit&& visit) {
    visit(std::string_view(std::string(1, ' ').append(piece)));
  }
  template <class Visit>
  static void with_space(const AlignedPiece& piece, Visit&& visit) {
    AlignedText spaced;
    spaced.text = std::string(1, ' ').append(piece.text);
    const std::size_t first = decode_utf8(piece.text.data(), piece.text.data() + piece.text.size()).length;
    spaced.ranges = {{piece.ranges[0].begin, piece.ranges[first - 1].end}};
    spaced.ranges.insert(spaced.ranges.end(), piece.ranges, piece.ranges + piece.text.size());
    visit(AlignedPiece{spaced.text, spaced.ranges.data()});
  }

  template <class Piece, class OnPiece>
  void split_from(std::size_t index, const Piece& piece, OnPiece& on_piece) const {
    if (index == steps_.size()) {
      on_piece(piece);
      return;
    }
    const Step& step = steps_[index];
    const std::string_view text = text_of(piece);
    const auto next = [&](std::size_t begin, std::size_t end) {
      split_from(index + 1, piece.substr(begin, end - begin), on_piece);
    };
    if (step.kind == Step::Kind::splitter) {
      step.splitter->split(text, [&](std::string_view part) {
        const auto begin = static_cast<std::size_t>(part.data() - text.data());
        next(begin, begin + part.size());
      });
    } else if (step.kind == Step::Kind::space) {
      if (text.starts_with(' ')) return split_from(index + 1, piece, on_piece);
      with_space(piece, [&](const Piece& spaced) { split_from(index + 1, spaced, on_piece); });
    } else if (step.byte_level) {
      // Every character of the alphabet is a byte.
      const std::string mapped = to_byte_level(text);
      auto position = [&, at = std::size_t{0}, count = std::size_t{0}](std::size_t end) mutable {
        for (; at < end; ++at) count += (static_cast<unsigned char>(mapped[at]) & 0xC0U) != 0x80U ? 1 : 0;
        return count;
      };
      detail::split_at_places(mapped, *step.finder, step.behavior, step.invert,
                              [&](std::size_t begin, std::size_t end) {
                                const std::size_t first = position(begin);
                                next(first, position(end));
                              });
    } else {
      detail::split_at_places(text, *step.finder, step.behavior, step.invert, next);
    }
  }

  void add_splitter(Splitter splitter) {
    Step step{.kind = Step::Kind::splitter, .signature = splitter.pattern()};
    step.splitter = std::move(splitter);
    steps_.push_back(std::move(step));
  }
  void add_places(const Json& json, detail::PlaceFinder finder, SplitBehavior behavior, bool invert = false) {
    steps_.push_back({.kind = Step::Kind::places,
                      .signature = (byte_level_ ? "after ByteLevel " : "") + json.dump(),
                      .finder = std::move(finder),
                      .behavior = behavior,
                      .invert = invert,
                      .byte_level = byte_level_});
  }

  void add(const Json& json, const std::string& where, std::size_t depth) {
    using Kind = detail::PlaceFinder::Kind;
    JsonObject object(json, where);
    const auto type = object.require<std::string>("type");
    if (steps_.size() >= kMostSteps) throw InputError(where, ": expected at most ", kMostSteps, " steps");
    if (type == "Sequence") {
      const Json members = object.raw("pretokenizers");
      if (!members.is_array() || depth >= kMostSteps) {
        throw InputError(where, ": key \"pretokenizers\" is ", ilme::detail::short_dump(members),
                         ", expected an array, at most ", kMostSteps, " deep");
      }
      for (const Json& member : members) add(member, where, depth + 1);
    } else if (type == "ByteLevel") {
      if (byte_level_) throw InputError(where, " with ByteLevel twice is not supported");
      if (object.get<bool>("add_prefix_space", true)) {
        steps_.push_back({.kind = Step::Kind::space, .signature = "add_prefix_space"});
      }
      object.get<bool>("trim_offsets", true);  // of no effect here, as at Hugging Face
      if (object.get<bool>("use_regex", true)) add_splitter(Splitter(std::string(kGpt2Pattern)));
      byte_level_ = true;
    } else if (type == "Split") {
      add_split(json, object);
    } else if (type == "Digits") {
      add_places(json, detail::PlaceFinder(Kind::number),
                 object.require<bool>("individual_digits") ? SplitBehavior::isolated : SplitBehavior::contiguous);
    } else if (type == "Punctuation") {
      add_places(json, detail::PlaceFinder(Kind::punctuation),
                 object.has("behavior") ? behavior_of(object) : SplitBehavior::isolated);
    } else if (type == "Whitespace") {
      add_places(json, detail::PlaceFinder(Kind::word_or_mark), SplitBehavior::removed, true);
    } else if (type == "WhitespaceSplit") {
      add_places(json, detail::PlaceFinder(Kind::space), SplitBehavior::removed);
    } else {
      throw InputError(where, " ", ilme::detail::short_dump(json),
                       " is not supported, expected ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit "
                       "or a Sequence");
    }
    object.refuse_unknown();
  }

  static SplitBehavior behavior_of(JsonObject& object) {
    const auto name = object.require<std::string>("behavior");
    for (const auto& [behavior, own] : {std::pair<SplitBehavior, std::string_view>{SplitBehavior::removed, "Removed"},
                                        {SplitBehavior::isolated, "Isolated"},
                                        {SplitBehavior::merged_with_previous, "MergedWithPrevious"},
                                        {SplitBehavior::merged_with_next, "MergedWithNext"},
                                        {SplitBehavior::contiguous, "Contiguous"}}) {
      if (name == own) return behavior;
    }
    throw InputError(object.where(), ": behavior \"", name,
                     "\" is not known, expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  }

  void add_split(const Json& json, JsonObject& object) {
    const SplitBehavior behavior = behavior_of(object);
    const bool invert = object.get<bool>("invert", false);
    const Json pattern_json = object.raw("pattern");
    JsonObject pattern(pattern_json, object.where() + ": pattern");
    const bool is_regex = pattern.has("Regex");
    const auto text = pattern.require<std::string>(is_regex ? "Regex" : "String");
    pattern.refuse_unknown();
    if (!is_regex && !text.empty()) {
      return add_places(json, detail::PlaceFinder(detail::PlaceFinder::Kind::literal, text), behavior, invert);
    }
    try {
      // These patterns leave nothing between their matches.
      const bool covers =
          text == kLlama3Pattern || text == kCl100kPattern || text == kQwen2Pattern || text == kGpt2Pattern;
      if (!byte_level_ && is_regex &&
          (behavior == SplitBehavior::isolated || (covers && invert && behavior == SplitBehavior::removed))) {
        return add_splitter(Splitter(text));
      }
      add_places(json, detail::PlaceFinder(detail::PlaceFinder::Kind::pattern, {}, std::make_shared<const Regex>(text)),
                 behavior, invert);
    } catch (const InputError& error) {
      throw InputError(object.where(), ": ", error.what());
    }
  }

  static constexpr std::size_t kMostSteps = 100;

  Json json_;  // null: not read from a file
  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace ilme::text
