/// `FullySharded<Module>`: a module whose parameters are sharded over ranks (Rajbhandari et al. 2020, "ZeRO", stage 3;
/// Zhao et al. 2023, "PyTorch FSDP").
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <ilme/core/error.hpp>
#include <ilme/dist/sharding.hpp>

namespace ilme::dist {

namespace detail {

/// What every FullySharded module is, whatever it wraps: how fully_shard finds the parts of a model.
class ShardedPart {
 public:
  virtual ~ShardedPart() = default;
  Sharding* sharding_ = nullptr;
  std::size_t part_ = 0;
};

/// Calls f with each tensor in a module's result: a tensor, or a vector, pair or tuple of results.
template <class Result, class F>
void for_each_tensor(Result& result, F&& f) {
  if constexpr (std::is_same_v<Result, at::Tensor>) {
    if (result.defined()) f(result);
  } else if constexpr (requires { std::tuple_size<Result>::value; }) {
    std::apply([&](auto&... items) { (for_each_tensor(items, f), ...); }, result);
  } else if constexpr (requires { result.begin(); }) {
    for (auto& item : result) for_each_tensor(item, f);
  }
}

template <class Argument>
decltype(auto) cast_input(const MixedPrecisionPolicy& policy, Argument&& argument) {
  if constexpr (std::is_same_v<std::remove_cvref_t<Argument>, at::Tensor>) {
    const bool cast =
        policy.param_dtype && policy.cast_forward_inputs && argument.defined() && argument.is_floating_point();
    return cast ? argument.to(*policy.param_dtype) : at::Tensor(argument);
  } else {
    return std::forward<Argument>(argument);
  }
}

}  // namespace detail

/// `Module`, any module with a `forward` or a `hidden` that returns tensors, as a part that can be sharded. Until
/// fully_shard it is what Module is, at no cost: names, values and behaviour are the same.
///
/// A part's parameters are whole from its forward to that forward's end, and again in its backward; in between they
/// have no memory and must not be read. Those that belong to no part inside the model are the root's.
template <class Module>
class FullySharded : public Module, public detail::ShardedPart {
 public:
  using Module::Module;

  template <class... Arguments>
  auto forward(Arguments&&... arguments) requires requires(Module& m) {
    m.forward(std::forward<Arguments>(arguments)...);
  }
  {
    return run([this](auto&&... given) { return Module::forward(std::forward<decltype(given)>(given)...); },
               std::forward<Arguments>(arguments)...);
  }

  template <class... Arguments>
  auto hidden(Arguments&&... arguments) requires requires(Module& m) {
    m.hidden(std::forward<Arguments>(arguments)...);
  }
  {
    return run([this](auto&&... given) { return Module::hidden(std::forward<decltype(given)>(given)...); },
               std::forward<Arguments>(arguments)...);
  }

  /// The model's sharding; null before fully_shard.
  Sharding* sharding() const noexcept { return sharding_; }

 private:
  template <class Model>
  friend void fully_shard(Model&, const Mesh&, const ShardingOptions&);

  template <class Compute, class... Arguments>
  auto run(Compute&& compute, Arguments&&... arguments) {
    if (sharding_ == nullptr) return compute(std::forward<Arguments>(arguments)...);
    const MixedPrecisionPolicy& policy = sharding_->options().mixed_precision;
    sharding_->before_forward(part_);
    auto result = compute(detail::cast_input(policy, std::forward<Arguments>(arguments))...);
    sharding_->after_forward(part_);
    detail::for_each_tensor(result, [&](at::Tensor& output) {
      sharding_->watch(part_, output);
      if (policy.output_dtype && output.is_floating_point()) output = output.to(*policy.output_dtype);
    });
    return result;
  }

  std::unique_ptr<Sharding> owned_;  // the root's
};

namespace detail {

struct FoundPart {
  ShardedPart* part;
  optim::NamedParameters parameters;
};

/// Collects the parts below `module`, and each parameter with the part that it belongs to. One that is shared by
/// several parts is the root's, which is there for all of them.
inline void collect_parts(torch::nn::Module& module, std::size_t owner, std::vector<FoundPart>& parts,
                          std::unordered_map<const c10::TensorImpl*, std::size_t>& owners) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    const auto [known, fresh] = owners.emplace(item.value().unsafeGetTensorImpl(), owner);
    if (!fresh && known->second != owner) known->second = 0;
  }
  for (const auto& item : module.named_children()) {
    std::size_t below = owner;
    if (auto* part = dynamic_cast<ShardedPart*>(item.value().get())) {
      below = parts.size();
      parts.push_back({part, {}});
    }
    collect_parts(*item.value(), below, parts, owners);
  }
}

}  // namespace detail

/// Shards a model over the ranks of a mesh: its FullySharded modules are the parts, itself the root. Every rank calls
/// it with the same model. Parameters that hold values keep them; those on the meta device (a model that was built with
/// `at::TensorOptions().device(at::kMeta)`, so that no rank ever holds it whole) become zeros on options.device, to be
/// filled through `sharding()->slices()`. Which parameters train is fixed by now; freezing some for a while is fine.
/// Throws InputError for a model that is sharded already.
template <class Model>
void fully_shard(Model& model, const Mesh& mesh, const ShardingOptions& options = {}) {
  if (model.sharding() != nullptr) throw InputError("fully_shard: the model is sharded already");
  std::vector<detail::FoundPart> parts{{&model, {}}};
  std::unordered_map<const c10::TensorImpl*, std::size_t> owners;
  detail::collect_parts(model, 0, parts, owners);
  std::vector<at::Tensor> order;
  for (const auto& item : model.named_parameters()) {
    const auto owner = owners.find(item.value().unsafeGetTensorImpl());
    if (owner == owners.end() || owner->second == parts.size()) continue;
    parts[owner->second].parameters.emplace_back(item.key(), item.value());
    order.push_back(item.value());
    owner->second = parts.size();  // a tensor that stands under two names comes once, under the first
  }
  auto sharding = std::make_unique<Sharding>(mesh, options);
  for (detail::FoundPart& found : parts) {
    found.part->part_ = sharding->add_part(found.parameters);
    found.part->sharding_ = sharding.get();
  }
  sharding->set_order(order);
  model.owned_ = std::move(sharding);
}

}  // namespace ilme::dist
