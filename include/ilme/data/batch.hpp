/// One packed batch as plain integers: what the loader makes and data/collate.hpp turns into tensors.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace ilme::data {

/// The label of a position that no loss is taken at.
inline constexpr std::int64_t kIgnoredLabel = -100;

/// Which document a part of a row is of: its number (data/document_sources.hpp) in one of the sources that the loader
/// reads. Padding is of none.
struct DocumentId {
  std::int64_t source = -1, document = -1;

  auto operator<=>(const DocumentId&) const = default;
};

/// `rows` rows of `sequence_length` tokens, flattened row by row.
struct PackedBatch {
  std::int64_t rows = 0, sequence_length = 0;
  /// [rows * sequence_length] each. `labels[t]` is the id that follows `input_ids[t]` in its document, or
  /// kIgnoredLabel; `position_ids` restart at 0 where a document (or the rest of one) starts in a row.
  std::vector<std::int64_t> input_ids, labels, position_ids;
  /// Cumulative lengths of the documents' parts over the flattened rows: 0, ..., rows * sequence_length, strictly
  /// ascending. Attention stays between two of them; every row boundary is one; padding has a part of its own.
  std::vector<std::int64_t> sequence_offsets;
  /// The document of each part. A loader's batches have one for each; batches made by hand need none.
  std::vector<DocumentId> documents;
  /// Labels that count.
  std::int64_t token_count = 0;

  bool operator==(const PackedBatch&) const = default;
};

}  // namespace ilme::data
