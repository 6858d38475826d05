/// Packing for pretraining: shuffled documents laid end to end and cut into rows of one length.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/random.hpp>
#include <ilme/data/concepts.hpp>
#include <ilme/data/document_sources.hpp>

namespace ilme::data {

struct PackingOptions {
  std::int64_t sequence_length = 2048;
  std::uint64_t seed = 0;
  /// true: the last row of an epoch is left out when tokens do not fill it, and an incomplete last batch too.
  /// false: the row is padded, the batch completed with rows without labels, and every token is used once an epoch.
  bool drop_last = false;
  /// false keeps the documents in their order in every epoch (held-out text).
  bool shuffle = true;
  /// Id written where there is no token; never attended to by a document and never a label.
  std::int64_t padding_id = 0;
};

/// A RowSource over the documents of a TokenSource. In epoch e they stand in an order drawn from (seed, e); row r holds
/// tokens [r * sequence_length, (r + 1) * sequence_length) of them laid end to end. A document that a row cuts goes on
/// in the next row as a part of its own; the label at the cut is still the token that follows. A document's last token
/// has no label. Any row of any epoch can be made alone: per document the plan holds 16 bytes.
template <TokenSource Source>
class PackedRows {
 public:
  PackedRows(Source source, PackingOptions options) : source_(std::move(source)), options_(options) {
    const auto length = static_cast<std::uint64_t>(options_.sequence_length);
    if (options_.sequence_length < 1) {
      throw InputError("sequence length is ", options_.sequence_length, ", expected at least 1");
    }
    const std::uint64_t tokens = source_.token_count();
    rows_ = static_cast<std::int64_t>(options_.drop_last ? tokens / length : tokens / length + (tokens % length != 0));
    if (rows_ == 0) {
      throw InputError(document_sources().front().name, ": has ", tokens,
                       " tokens, too few for one row of sequence length ", length,
                       tokens > 0 ? " (drop_last leaves out the rest)" : "");
    }
  }

  std::int64_t sequence_length() const noexcept { return options_.sequence_length; }
  std::int64_t rows_per_epoch() const noexcept { return rows_; }
  bool drop_last() const noexcept { return options_.drop_last; }
  std::vector<DocumentSource> document_sources() const {
    if constexpr (requires { source_.name(); }) return {{source_.name()}};
    return {{"documents"}};
  }
  Json identity() const {
    return {{"data", source_.fingerprint()},
            {"sequence_length", options_.sequence_length},
            {"seed", options_.seed},
            {"shuffle", options_.shuffle},
            {"drop_last", options_.drop_last}};
  }

  /// The order of one epoch. Immutable; `fill` is thread-safe.
  class Epoch {
   public:
    Epoch(Source source, const PackingOptions& options, std::int64_t epoch)
        : source_(std::move(source)), padding_id_(options.padding_id) {
      const std::uint64_t count = source_.document_count();
      if (options.shuffle) {
        order_ = random_permutation(count, options.seed, static_cast<std::uint64_t>(epoch));
      } else {
        order_.resize(count);
        std::iota(order_.begin(), order_.end(), std::uint64_t{0});
      }
      ends_.reserve(count);
      std::uint64_t end = 0;
      for (const std::uint64_t document : order_) ends_.push_back(end += source_.document(document).size());
    }

    void fill(std::int64_t row, RowSlot slot) const {
      const std::size_t length = slot.input_ids.size();
      std::uint64_t at = static_cast<std::uint64_t>(row) * length;  // in the epoch's tokens
      // The document that holds token `at`; empty ones end where their predecessor does and are passed over.
      auto place = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
      std::size_t filled = 0;
      for (; filled < length && place < ends_.size(); ++place) {
        const TokenView document = source_.document(order_[place]);
        if (document.empty()) continue;
        const std::size_t first = document.size() - static_cast<std::size_t>(ends_[place] - at);
        const std::size_t count = std::min(length - filled, document.size() - first);
        const std::size_t labelled = std::min(count, document.size() - first - 1);
        document.copy(first, count, slot.input_ids.data() + filled);
        document.copy(first + 1, labelled, slot.labels.data() + filled);
        if (labelled < count) slot.labels[filled + labelled] = kIgnoredLabel;
        slot.add_part(filled, count, {0, static_cast<std::int64_t>(order_[place])});
        filled += count;
        at += count;
      }
      slot.pad(filled, padding_id_);
    }

   private:
    Source source_;
    std::int64_t padding_id_;
    std::vector<std::uint64_t> order_;  // documents as they stand in this epoch
    std::vector<std::uint64_t> ends_;   // where each of them ends, in tokens of the epoch
  };

  std::shared_ptr<const Epoch> epoch(std::int64_t number) const {
    return std::make_shared<const Epoch>(source_, options_, number);
  }

 private:
  Source source_;
  PackingOptions options_;
  std::int64_t rows_ = 0;
};

/// `packed_rows(TokenShards(folder), {.sequence_length = 2048, .seed = 1}) | batched(8) | prefetched(4)`
template <TokenSource Source>
PackedRows<Source> packed_rows(Source source, PackingOptions options) {
  return PackedRows<Source>(std::move(source), options);
}

}  // namespace ilme::data
