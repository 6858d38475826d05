/// How a model is sharded; names as in PyTorch's FSDP2 (torch.distributed.fsdp.fully_shard).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <ilme/core/error.hpp>
#include <ilme/dist/group.hpp>
#include <ilme/dist/world.hpp>

namespace ilme::dist {

/// Which ranks share one copy of the parameters, and which hold the same shard of other copies. A rank is in one group
/// of each kind; together they span `all`.
struct Mesh {
  Group all;
  Group shard;      ///< its ranks hold a shard each: all-gather and reduce-scatter
  Group replicate;  ///< its ranks hold equal shards: all-reduce of their gradients
};

/// `full`: one copy over all ranks. `hybrid` (HSDP): a copy a host, its gradients reduced over hosts. `none`: a copy a
/// rank, as in data-parallel training.
enum class ShardKind { full, hybrid, none };

/// "full", "hybrid" or "none"; InputError for anything else.
inline ShardKind parse_shard_kind(const std::string& name) {
  if (name == "full") return ShardKind::full;
  if (name == "hybrid") return ShardKind::hybrid;
  if (name == "none") return ShardKind::none;
  throw InputError("sharding \"", name, "\": expected full, hybrid or none");
}

/// The mesh of a kind over a run's ranks; called by all of them.
inline Mesh make_mesh(const World& world, ShardKind kind) {
  if (kind == ShardKind::full) return {world.all, world.all, Group()};
  if (kind == ShardKind::none) return {world.all, Group(), world.all};
  auto [shard, replicate] = world.split(world.local_size);
  return {world.all, shard, replicate};
}

/// Dtypes of computing and communicating; each defaults to what is there. The shards themselves keep the dtype that the
/// model was built with.
struct MixedPrecisionPolicy {
  std::optional<c10::ScalarType> param_dtype = std::nullopt;   ///< of unsharded parameters
  std::optional<c10::ScalarType> reduce_dtype = std::nullopt;  ///< gradients on their way; summed in float32 anyway
  std::optional<c10::ScalarType> output_dtype = std::nullopt;  ///< of a part's floating-point outputs
  bool cast_forward_inputs = true;                             ///< floating-point inputs to param_dtype
};

struct ShardingOptions {
  /// Give a part's unsharded parameters back after its forward and gather them once more for its backward. false: after
  /// the backward only (more memory, a third less communication). The root's always stay until the step's end, for the
  /// head is needed after the forward.
  bool reshard_after_forward = true;
  /// Gather the parameters of the next part while one computes, in forward and backward.
  bool prefetch = true;
  MixedPrecisionPolicy mixed_precision = {};
  /// Keep shards, gradients and optimizer in host memory and move them to the device for each part.
  bool cpu_offload = false;
  /// Where parameters are computed with, for a model that was built on the meta device.
  c10::Device device = c10::kCPU;
};

}  // namespace ilme::dist
