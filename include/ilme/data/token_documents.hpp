/// Tokenised documents in memory: a TokenSource for small sets and tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/data/fingerprint.hpp>
#include <ilme/data/token_view.hpp>

namespace ilme::data {

/// Documents held as vectors of ids; copies share them.
class TokenDocuments {
 public:
  explicit TokenDocuments(std::vector<std::vector<std::uint32_t>> documents) {
    std::uint64_t hash = 0;
    for (const auto& ids : documents) {
      token_count_ += ids.size();
      hash = hash_bytes({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(std::uint32_t)}, hash);
    }
    fingerprint_ = hash_digits(hash);
    documents_ = std::make_shared<const std::vector<std::vector<std::uint32_t>>>(std::move(documents));
  }

  std::uint64_t document_count() const noexcept { return documents_->size(); }
  std::uint64_t token_count() const noexcept { return token_count_; }
  TokenView document(std::uint64_t i) const { return TokenView(std::span((*documents_)[static_cast<std::size_t>(i)])); }
  const std::string& fingerprint() const noexcept { return fingerprint_; }

 private:
  std::shared_ptr<const std::vector<std::vector<std::uint32_t>>> documents_;
  std::uint64_t token_count_ = 0;
  std::string fingerprint_;
};

}  // namespace ilme::data
