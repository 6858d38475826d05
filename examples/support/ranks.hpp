/// The ranks of a training program: connecting them, and the model that they share, read and written.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <ATen/Parallel.h>

#include <ilme/checkpoint/model_export.hpp>
#include <ilme/dist/connect.hpp>
#include <ilme/dist/load_model.hpp>
#include <ilme/dist/sharding_options.hpp>
#include <ilme/dist/world.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/io/safetensors.hpp>

#include "support/option_files.hpp"
#include "support/training_options.hpp"

namespace ilme {

/// The ranks that a launcher's environment describes, or this process alone. The ranks of a host share its cores.
inline dist::World connect(const TrainingOptions& options) {
  dist::WorldOptions ranks;
  ranks.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.rank_timeout * 1000));
  ranks.report = [print = ranks.report](const std::string& line) {
    detail::write_job_failure(line);
    print(line);
  };
  const dist::World world = dist::connect(ranks);
  if (world.local_size > 1 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    at::set_num_threads(std::max(1, at::get_num_threads() / world.local_size));
  }
  return world;
}

/// The model of options.model, whole on one rank, or sharded over those of `world`. `prepare(model)` may attach
/// adapters and freeze parameters.
template <class Model, class Prepare>
std::shared_ptr<Model> load_for_training(const TrainingOptions& options, dist::World& world, Prepare&& prepare) {
  const at::ScalarType dtype = hf::parse_dtype(options.dtype);
  if (world.size > 1) {
    return dist::load_model<Model>(options.model, dtype, dist::make_mesh(world, dist::parse_shard_kind(options.shard)),
                                   {}, prepare);
  }
  auto model = hf::load_model<Model>(options.model, dtype);
  prepare(*model);
  return model;
}

/// The parameters of a trained model whose names `wanted` accepts, whole; called by all ranks.
template <class Model, class Wanted>
io::NamedTensors whole_parameters(Model& model, Wanted&& wanted) {
  io::NamedTensors tensors;
  if (dist::Sharding* sharding = model.sharding()) {
    const auto keep = [&](const std::string& name, const at::Tensor& whole) {
      tensors.emplace_back(name, whole.detach().cpu().clone());
    };
    sharding->for_each_parameter(keep, wanted);
  } else {
    for (const auto& item : model.named_parameters()) {
      if (wanted(item.key())) tensors.emplace_back(item.key(), item.value());
    }
  }
  return tensors;
}

/// Writes a trained model to options.output; called by all ranks.
template <class Model>
void save_model(const TrainingOptions& options, Model& model) {
  const at::ScalarType dtype = hf::parse_dtype(options.dtype);
  const hf::SaveOptions save{.source = options.model, .max_shard_size = options.max_shard_bytes()};
  int rank = 0;
  if (dist::Sharding* sharding = model.sharding()) {
    rank = sharding->mesh().all.rank();
    checkpoint::save_model(sharding->slices(), model.config(), options.output, dtype, options.model,
                           sharding->mesh().all, save);
  } else {
    hf::save_model(model, options.output, dtype, options.model, save);
  }
  if (rank == 0) std::fprintf(stderr, "model written to %s\n", options.output.c_str());
}

}  // namespace ilme
