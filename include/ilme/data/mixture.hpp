/// Mixtures: the rows of several sources in given shares.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/random.hpp>
#include <ilme/data/concepts.hpp>
#include <ilme/data/document_sources.hpp>

namespace ilme::data {

/// One source of a mixture and its share of the rows, relative to the other weights; 0 for all parts: as many as it
/// has.
template <RowSource Rows>
struct MixturePart {
  Rows rows;
  double weight = 0;
};

/// A RowSource over other ones. An epoch has as many rows as all parts together, and of each part exactly its share of
/// them (rounded by largest remainder): without weights every row once. The order in which the parts take turns is
/// drawn from (seed, epoch); each part goes through its own epochs one after the other, as long as it takes: a small
/// part with a large weight comes several times in an epoch of the mixture, a large one with a small weight goes on in
/// the next. Any row can be made alone. A mixture of one part is that part, its identity included.
///
/// Memory: 2 bytes a row of the epoch and 8 bytes a part for every 1,024 rows; of each part the plans of its newest two
/// epochs, which are drawn when their first row is asked for.
template <RowSource Rows>
class MixedRows {
 public:
  /// Throws InputError when sequence lengths or drop_last differ, a weight is no positive number or missing where
  /// others have one, or a weight is so small that its part has no row in an epoch.
  explicit MixedRows(std::vector<MixturePart<Rows>> parts, std::uint64_t seed = 0)
      : parts_(std::make_shared<Parts>()), seed_(seed) {
    if (parts.empty()) throw InputError("a mixture has no part, expected one or more");
    if (parts.size() > std::numeric_limits<std::uint16_t>::max()) {
      throw InputError("a mixture of ", parts.size(), " parts, expected at most 65535");
    }
    std::size_t sources = 0;
    for (const MixturePart<Rows>& part : parts) {
      auto& kept = *parts_->emplace_back(std::make_unique<Part>(part.rows));
      kept.first_source = static_cast<std::int64_t>(sources);
      sources += part.rows.document_sources().size();
      rows_ += part.rows.rows_per_epoch();
      const auto same = [&](const char* name, auto first, auto own) {
        if (own != first) {
          throw InputError("mixture: ", name_of(part.rows), " has ", name, " ", own, ", ", name_of(parts.front().rows),
                           " has ", first);
        }
      };
      same("sequence length", parts.front().rows.sequence_length(), part.rows.sequence_length());
      same("drop_last", parts.front().rows.drop_last(), part.rows.drop_last());
    }
    share_out(parts);
  }

  std::int64_t sequence_length() const noexcept { return parts_->front()->rows.sequence_length(); }
  std::int64_t rows_per_epoch() const noexcept { return rows_; }
  bool drop_last() const noexcept { return parts_->front()->rows.drop_last(); }

  /// How many of an epoch's rows part `i` has.
  std::int64_t rows_of(std::size_t i) const { return parts_->at(i)->share; }

  Json identity() const {
    if (parts_->size() == 1) return parts_->front()->rows.identity();
    Json parts = Json::array();
    for (const auto& part : *parts_) {
      parts.push_back(part->rows.identity());
      parts.back()["rows"] = part->share;
    }
    return {{"sequence_length", sequence_length()}, {"seed", seed_}, {"mixture", parts}};
  }

  /// Those of all parts, in order.
  std::vector<DocumentSource> document_sources() const {
    std::vector<DocumentSource> all;
    for (const auto& part : *parts_) {
      for (DocumentSource& source : part->rows.document_sources()) all.push_back(std::move(source));
    }
    return all;
  }

 private:
  struct Part {
    explicit Part(Rows source) : rows(std::move(source)) {}

    /// The plan of one of the part's epochs; the two that were asked for last are kept. Thread-safe.
    std::shared_ptr<const typename Rows::Epoch> plan(std::int64_t epoch) {
      const std::lock_guard lock(mutex);
      if (!plans[0].second || plans[0].first != epoch) {
        std::swap(plans[0], plans[1]);
        if (!plans[0].second || plans[0].first != epoch) plans[0] = {epoch, rows.epoch(epoch)};
      }
      return plans[0].second;
    }

    Rows rows;
    std::int64_t share = 0;  // rows of the mixture's epoch
    std::int64_t first_source = 0;
    std::mutex mutex;  // guards plans
    std::array<std::pair<std::int64_t, std::shared_ptr<const typename Rows::Epoch>>, 2> plans;
  };
  using Parts = std::vector<std::unique_ptr<Part>>;

 public:
  /// Which part each row of one epoch is of. Immutable; `fill` is thread-safe.
  class Epoch {
   public:
    Epoch(std::shared_ptr<const Parts> parts, std::uint64_t seed, std::int64_t epoch)
        : parts_(std::move(parts)), epoch_(epoch) {
      if (parts_->size() == 1) return;
      for (std::size_t i = 0; i < parts_->size(); ++i) {
        part_of_.insert(part_of_.end(), static_cast<std::size_t>((*parts_)[i]->share), static_cast<std::uint16_t>(i));
      }
      // Another stream of the seed than that of the parts' own orders, which may have the same seed.
      random_shuffle(std::span(part_of_), random_bits(seed, 2), static_cast<std::uint64_t>(epoch));
      std::vector<std::int64_t> count(parts_->size());
      for (std::size_t row = 0; row < part_of_.size(); ++row) {
        if (row % kBlock == 0) before_.insert(before_.end(), count.begin(), count.end());
        ++count[part_of_[row]];
      }
    }

    void fill(std::int64_t row, RowSlot slot) const {
      const auto at = static_cast<std::size_t>(row);
      std::size_t index = 0;
      std::int64_t place = row;  // among the part's rows of this epoch
      if (parts_->size() > 1) {
        index = part_of_[at];
        const std::size_t block = at / kBlock;
        place = before_[block * parts_->size() + index] +
                std::count(part_of_.begin() + static_cast<std::ptrdiff_t>(block * kBlock), part_of_.begin() + row,
                           part_of_[at]);
      }
      Part& part = *(*parts_)[index];
      place += epoch_ * part.share;  // among all that it ever gives
      const std::int64_t rows = part.rows.rows_per_epoch();
      slot.first_source += part.first_source;
      part.plan(place / rows)->fill(place % rows, slot);
    }

   private:
    static constexpr std::size_t kBlock = 1024;

    std::shared_ptr<const Parts> parts_;
    std::int64_t epoch_;
    std::vector<std::uint16_t> part_of_;  // each row; empty for a single part
    std::vector<std::int64_t> before_;    // [blocks, parts]: rows of each part before a block
  };

  std::shared_ptr<const Epoch> epoch(std::int64_t number) const {
    return std::make_shared<const Epoch>(parts_, seed_, number);
  }

 private:
  static std::string name_of(const Rows& rows) {
    const auto sources = rows.document_sources();
    return sources.empty() ? "a part" : sources.front().name;
  }

  /// Sets each part's share of the epoch's rows.
  void share_out(const std::vector<MixturePart<Rows>>& given) {
    const bool weighted = std::any_of(given.begin(), given.end(), [](const auto& part) { return part.weight != 0; });
    double largest = 0, sum = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
      (*parts_)[i]->share = given[i].rows.rows_per_epoch();
      if (!weighted) continue;
      if (given[i].weight == 0) {
        throw InputError("mixture: ", name_of(given[i].rows),
                         " has no weight, but others have one: give each a weight, or none");
      }
      if (!(given[i].weight > 0) || !std::isfinite(given[i].weight)) {
        throw InputError("mixture: the weight of ", name_of(given[i].rows), " is ", given[i].weight,
                         ", expected a positive number");
      }
      largest = std::max(largest, given[i].weight);
    }
    if (!weighted || given.size() == 1) return;
    for (const auto& part : given) sum += part.weight / largest;
    std::int64_t left = rows_;
    std::vector<double> remainders;
    for (std::size_t i = 0; i < given.size(); ++i) {
      const double exact = given[i].weight / largest / sum * static_cast<double>(rows_);
      const double whole = std::min(std::floor(exact), static_cast<double>(left));
      (*parts_)[i]->share = static_cast<std::int64_t>(whole);
      left -= (*parts_)[i]->share;
      remainders.push_back(exact - whole);
    }
    std::vector<std::size_t> order(given.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
    for (std::size_t i = 0; left > 0; --left) ++(*parts_)[order[i++ % order.size()]]->share;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if ((*parts_)[i]->share > 0) continue;
      throw InputError("mixture: with its weight of ", given[i].weight, " ", name_of(given[i].rows),
                       " has none of the ", rows_, " rows of an epoch");
    }
  }

  std::shared_ptr<Parts> parts_;
  std::uint64_t seed_;
  std::int64_t rows_ = 0;
};

/// `mixed_rows(std::vector{MixturePart{books, 3.0}, MixturePart{web, 1.0}}, seed) | batched(8)`: three rows of `books`
/// to one of `web`.
template <RowSource Rows>
MixedRows<Rows> mixed_rows(std::vector<MixturePart<Rows>> parts, std::uint64_t seed = 0) {
  return MixedRows<Rows>(std::move(parts), seed);
}

}  // namespace ilme::data
