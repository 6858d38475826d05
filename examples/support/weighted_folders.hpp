/// --data DIR[:WEIGHT]...: folders of token shards, and the mixture of their rows.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/data/mixture.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/token_shards.hpp>
#include <ilme/dist/environment.hpp>

namespace ilme {

struct WeightedFolder {
  std::string folder;
  double weight = 0;  ///< 0: none was given
};

/// A name that exists as it stands is a folder, colons and all; else what follows the last colon is the weight.
inline WeightedFolder parse_weighted_folder(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || std::filesystem::exists(text)) return {text};
  WeightedFolder parsed{text.substr(0, colon)};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data() + colon + 1, end, parsed.weight);
  if (result.ec == std::errc() && result.ptr == end && parsed.weight > 0 && std::isfinite(parsed.weight)) return parsed;
  if (!std::filesystem::exists(parsed.folder)) return {text};  // no weight was meant, perhaps
  throw InputError("--data ", text, ": weight ", text.substr(colon + 1), ", expected a positive number");
}

using ShardRows = data::PackedRows<data::TokenShards>;

/// The rows of all folders, which must be of this tokenizer, in the shares of their weights. The ranks
/// of a host check the files together; the first one of all says the shares of several.
inline data::MixedRows<ShardRows> open_shards(const std::vector<std::string>& given, const std::string& tokenizer,
                                              const data::PackingOptions& options, const dist::Environment& ranks) {
  const data::VerifyShare share{static_cast<std::size_t>(ranks.local_rank), static_cast<std::size_t>(ranks.local_size)};
  std::vector<data::MixturePart<ShardRows>> parts;
  for (const std::string& text : given) {
    const WeightedFolder folder = parse_weighted_folder(text);
    const data::TokenShards shards(folder.folder, data::Verify::checksums, share);
    shards.require_tokenizer(tokenizer);
    parts.push_back({data::packed_rows(shards, options), folder.weight});
  }
  auto rows = data::mixed_rows(parts, options.seed);
  for (std::size_t i = 0; i < parts.size() && parts.size() > 1 && ranks.rank == 0; ++i) {
    const auto share = static_cast<double>(rows.rows_of(i));
    std::fprintf(
        stderr, "%s: %.3g %% of the rows, %.3g times an epoch of %lld\n",
        parts[i].rows.document_sources().front().name.c_str(), 100 * share / static_cast<double>(rows.rows_per_epoch()),
        share / static_cast<double>(parts[i].rows.rows_per_epoch()), static_cast<long long>(rows.rows_per_epoch()));
  }
  return rows;
}

}  // namespace ilme
