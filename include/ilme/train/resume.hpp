/// A trainer's whole state to and from a checkpoint.
#pragma once

#include <cstddef>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/io/safetensors.hpp>

namespace ilme::train {

/// Everything that decides how the run goes on: the parameters that have been updated, the optimizer's state, the
/// random generator (dropout), the counters and the source's place. Parameters that are frozen, or have been so far,
/// come from the model folder again. `more` is stored beside it (the run's settings, the state of callbacks). Tensors
/// are the live ones: save before the next step.
template <class Trainer>
checkpoint::Contents snapshot(Trainer& trainer, const Json& more = Json::object()) {
  checkpoint::Contents contents;
  contents.files["model"] = trainer.optimizer().updated_parameters();
  contents.files["optimizer"] = trainer.optimizer().state();
  contents.files["random"] = {{"cpu_generator", at::detail::getDefaultCPUGenerator().get_state()}};
  contents.state = more;
  contents.state["trainer"] = trainer.state();
  return contents;
}

/// Puts a freshly built trainer where `snapshot` was taken. InputError when the checkpoint is of another model,
/// optimizer or data; then the trainer must not be used.
template <class Trainer>
void restore(Trainer& trainer, const checkpoint::Loaded& checkpoint) {
  const c10::NoGradGuard no_gradient;
  const auto& model = checkpoint.file("model");
  std::size_t found = 0;
  for (const auto& [name, parameter] : trainer.optimizer().named_parameters()) {
    if (!model.contains(name)) continue;
    const at::Tensor saved = model.tensor(name);
    if (saved.sizes() != parameter.sizes()) {
      throw InputError(model.path().string(), ": tensor \"", name, "\" has shape ", saved.sizes(), ", this model has ",
                       parameter.sizes());
    }
    at::Tensor(parameter).copy_(saved);
    ++found;
  }
  trainer.optimizer().load_state(checkpoint.file("optimizer").tensors());
  if (found != model.names().size() || found != trainer.optimizer().updated_parameters().size()) {
    throw InputError(model.path().string(), ": holds ", model.names().size(), " tensors, of which this run trains ",
                     found);
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(checkpoint.file("random").tensor("cpu_generator").clone());
  trainer.restore(checkpoint.state.at("trainer"));
}

}  // namespace ilme::train
