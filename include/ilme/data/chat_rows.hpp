/// Packing for fine-tuning: whole conversations side by side in rows, with a loss on the assistant's tokens only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <ilme/core/json.hpp>
#include <ilme/core/random.hpp>
#include <ilme/data/chat_examples.hpp>
#include <ilme/data/concepts.hpp>
#include <ilme/data/document_sources.hpp>

namespace ilme::data {

struct ChatRowsOptions {
  std::uint64_t seed = 0;
  /// true: an incomplete last batch of an epoch is left out; false: it is completed with rows without labels.
  bool drop_last = false;
  /// false: one conversation a row.
  bool pack = true;
  /// Id written where there is no token. May equal any real token: what is padding goes by position.
  std::int64_t padding_id = 0;
};

/// A RowSource of conversations, none split, each a part that attends within itself. labels[t] is the id that follows
/// when its loss mask is 1. Rows are filled best-fit, longest first, where equal lengths come in an order drawn from
/// (seed, epoch), and then stand in an order drawn too. So an epoch uses every conversation once, and all epochs have
/// the same number of rows.
class ChatRows {
 public:
  ChatRows(ChatExamples examples, ChatRowsOptions options)
      : examples_(std::move(examples)),
        options_(options),
        rows_(static_cast<std::int64_t>(Epoch(examples_, options_, 0).rows())) {}

  std::int64_t sequence_length() const noexcept { return examples_.sequence_length(); }
  std::int64_t rows_per_epoch() const noexcept { return rows_; }
  bool drop_last() const noexcept { return options_.drop_last; }
  Json identity() const {
    return {{"data", examples_.fingerprint()},
            {"sequence_length", sequence_length()},
            {"seed", options_.seed},
            {"pack", options_.pack},
            {"drop_last", options_.drop_last}};
  }
  std::vector<DocumentSource> document_sources() const { return examples_.files(); }
  const ChatReport& report() const noexcept { return examples_.report(); }

  /// Which conversations stand in which row of one epoch. Immutable; `fill` is thread-safe.
  class Epoch {
   public:
    Epoch(ChatExamples examples, const ChatRowsOptions& options, std::int64_t epoch)
        : examples_(std::move(examples)), padding_id_(options.padding_id) {
      const auto stream = static_cast<std::uint64_t>(epoch);
      std::vector<std::uint64_t> order = random_permutation(examples_.size(), options.seed, stream);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::uint64_t a, std::uint64_t b) { return length(a) > length(b); });
      std::vector<std::vector<std::uint64_t>> rows;
      std::set<std::pair<std::int64_t, std::size_t>> room;  // tokens that still fit, row
      for (const std::uint64_t example : order) {
        const auto fit = room.lower_bound({length(example), 0});
        std::int64_t left = examples_.sequence_length();
        std::size_t row = rows.size();
        if (options.pack && fit != room.end()) {
          std::tie(left, row) = *fit;
          room.erase(fit);
        } else {
          rows.emplace_back();
        }
        rows[row].push_back(example);
        room.emplace(left - length(example), row);
      }
      // Another stream of the seed than the examples' order.
      for (const std::uint64_t row : random_permutation(rows.size(), random_bits(options.seed, 1), stream)) {
        starts_.push_back(placed_.size());
        placed_.insert(placed_.end(), rows[row].begin(), rows[row].end());
      }
      starts_.push_back(placed_.size());
    }

    std::size_t rows() const noexcept { return starts_.size() - 1; }

    void fill(std::int64_t row, RowSlot slot) const {
      std::size_t filled = 0;
      for (std::size_t i = starts_[static_cast<std::size_t>(row)]; i < starts_[static_cast<std::size_t>(row) + 1];
           ++i) {
        const text::EncodedChat& example = examples_[placed_[i]];
        const std::size_t count = example.ids.size();
        for (std::size_t t = 0; t < count; ++t) {
          slot.input_ids[filled + t] = example.ids[t];
          slot.labels[filled + t] =
              t + 1 < count && example.loss_mask[t + 1] != 0 ? std::int64_t{example.ids[t + 1]} : kIgnoredLabel;
        }
        slot.add_part(filled, count, examples_.document(placed_[i]));
        filled += count;
      }
      slot.pad(filled, padding_id_);
    }

   private:
    std::int64_t length(std::uint64_t example) const {
      return static_cast<std::int64_t>(examples_[example].ids.size());
    }

    ChatExamples examples_;
    std::int64_t padding_id_;
    std::vector<std::size_t> starts_;    // of each row in placed_, and its end
    std::vector<std::uint64_t> placed_;  // examples, row after row
  };

  std::shared_ptr<const Epoch> epoch(std::int64_t number) const {
    return std::make_shared<const Epoch>(examples_, options_, number);
  }

 private:
  ChatExamples examples_;
  ChatRowsOptions options_;
  std::int64_t rows_;
};

/// `chat_rows(load_chat_examples({file}, tokenizer, {.sequence_length = 1024}), {.seed = 1}) | batched(8)`
inline ChatRows chat_rows(ChatExamples examples, ChatRowsOptions options = {}) {
  return ChatRows(std::move(examples), options);
}

}  // namespace ilme::data
