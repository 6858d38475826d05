#include <ilme/data/collate.hpp>

#include <cstdint>
#include <vector>

#include <ilme/data/batched.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/token_documents.hpp>

#include "support/catch_torch.hpp"

using namespace ilme;
using namespace ilme::data;

TEST_CASE("a packed batch becomes int64 tensors that own their memory") {
  const TokenDocuments documents({{10, 11, 12, 13, 14}, {20, 21, 22, 23}});
  auto source = packed_rows(documents, {.sequence_length = 4, .shuffle = false}) | batched(3);
  Batch batch;
  PackedBatch packed;
  {
    PackedBatch short_lived = *source.next();
    batch = collate(short_lived);
    packed = short_lived;
    std::fill(short_lived.input_ids.begin(), short_lived.input_ids.end(), 0);
  }
  for (const auto& [tensor, values] :
       {std::pair{batch.input_ids, packed.input_ids}, std::pair{batch.labels, packed.labels},
        std::pair{batch.position_ids, packed.position_ids}}) {
    REQUIRE(tensor.sizes() == at::IntArrayRef{3, 4});
    REQUIRE(tensor.scalar_type() == at::kLong);
    CHECK(std::vector<std::int64_t>(tensor.data_ptr<std::int64_t>(), tensor.data_ptr<std::int64_t>() + 12) == values);
  }
  CHECK(batch.sequence_offsets == std::vector<std::int64_t>{0, 4, 5, 8, 9, 12});
  CHECK(batch.token_count == 7);
  CHECK(batch.labels.ne(kIgnoredLabel).sum().item<std::int64_t>() == batch.token_count);

  packed.labels.pop_back();
  CHECK_THROWS_AS(collate(packed), InputError);
}
