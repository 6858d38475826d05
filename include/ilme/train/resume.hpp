/// A trainer's whole state to and from a checkpoint.
#pragma once

#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/io/safetensors.hpp>
#include <ilme/optim/adamw.hpp>

namespace ilme::train {

/// Everything that decides how the run goes on: the trainable parameters, the optimizer's state, the random generator
/// (dropout), the counters and the source's place. Frozen parameters come from the model folder again. `settings` (the
/// run's options) are stored beside it. Tensors are the live ones: save before the next step.
template <class Trainer>
checkpoint::Contents snapshot(Trainer& trainer, Json settings = Json::object()) {
  checkpoint::Contents contents;
  contents.files["model"] = optim::trainable_parameters(trainer.model());
  contents.files["optimizer"] = trainer.optimizer().state();
  contents.files["random"] = {{"cpu_generator", at::detail::getDefaultCPUGenerator().get_state()}};
  contents.state = {{"trainer", trainer.state()}, {"settings", std::move(settings)}};
  return contents;
}

/// Puts a freshly built trainer where `snapshot` was taken. InputError when the checkpoint is of another model,
/// optimizer or data; then the trainer must not be used.
template <class Trainer>
void restore(Trainer& trainer, const checkpoint::Loaded& checkpoint) {
  const c10::NoGradGuard no_gradient;
  const auto& model = checkpoint.file("model");
  const auto parameters = optim::trainable_parameters(trainer.model());
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor saved = model.tensor(name);
    if (saved.sizes() != parameter.sizes()) {
      throw InputError(model.path().string(), ": tensor \"", name, "\" has shape ", saved.sizes(), ", this model has ",
                       parameter.sizes());
    }
    parameter.copy_(saved);
  }
  if (model.names().size() != parameters.size()) {
    throw InputError(model.path().string(), ": holds ", model.names().size(), " tensors, this run trains ",
                     parameters.size());
  }
  const auto& optimizer = checkpoint.file("optimizer");
  trainer.optimizer().load_state([&](const std::string& name) { return optimizer.tensor(name); });
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(checkpoint.file("random").tensor("cpu_generator").clone());
  trainer.restore(checkpoint.state.at("trainer"));
}

}  // namespace ilme::train
