/// A model folder's model over many ranks, of which none ever holds it whole.
#pragma once

#include <filesystem>
#include <memory>

#include <ATen/core/TensorBody.h>

#include <ilme/dist/fully_sharded.hpp>
#include <ilme/hf/config.hpp>
#include <ilme/hf/weights.hpp>

namespace ilme::dist {

/// Builds `Model(config, dtype)` without memory, calls `prepare(model)` (which may attach adapters and freeze
/// parameters), shards it, and reads this rank's slices from the folder's weight files. Called by all ranks. Throws as
/// hf::load_slices and read_config do.
template <class Model, class Prepare>
std::shared_ptr<Model> load_model(const std::filesystem::path& folder, at::ScalarType dtype, const Mesh& mesh,
                                  const ShardingOptions& options, Prepare&& prepare) {
  const hf::WeightFiles files(folder);
  auto model = std::make_shared<Model>(hf::read_config(folder), at::TensorOptions(dtype).device(at::kMeta));
  prepare(*model);
  fully_shard(*model, mesh, options);
  hf::load_slices(model->sharding()->slices(), files);
  return model;
}

}  // namespace ilme::dist
