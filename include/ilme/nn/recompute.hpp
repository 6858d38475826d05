/// Activation checkpointing (Chen et al. 2016): a segment of a model keeps its inputs only and runs again for its
/// gradients.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/core/error.hpp>

namespace ilme::nn {

/// What a block keeps for its backward. `none`: all that autograd saves. `selective`: the inputs of what is dear to
/// compute, the matrix products; norms, activations and attention's softmax are computed again. `block`: the block's
/// input alone; all of it is computed again, but for its last product.
enum class ActivationCheckpointing { none, block, selective };

/// "none", "block" or "selective"; InputError for anything else.
inline ActivationCheckpointing parse_activation_checkpointing(const std::string& name) {
  if (name == "none") return ActivationCheckpointing::none;
  if (name == "block") return ActivationCheckpointing::block;
  if (name == "selective") return ActivationCheckpointing::selective;
  throw InputError("activation checkpointing \"", name, "\": expected none, block or selective");
}

/// A differentiable function of tensors. `again`: it runs in the backward, where the values of its last linear maps are
/// not needed (ops::ValueNotNeeded). It must own what it refers to, or that must outlive the backward.
using Segment = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs, bool again)>;

namespace detail {

/// The state that random operations draw from and that decides dtypes, to be put back for the second run.
class ComputeState {
 public:
  explicit ComputeState(const at::Device& device)
      : device_(device),
        autocast_(at::autocast::is_autocast_enabled(device.type())),
        autocast_dtype_(at::autocast::get_autocast_dtype(device.type())),
        autocast_cache_(at::autocast::is_autocast_cache_enabled()) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    random_ = generator.get_state();
  }

  void apply() const {
    at::autocast::set_autocast_enabled(device_.type(), autocast_);
    at::autocast::set_autocast_dtype(device_.type(), autocast_dtype_);
    at::autocast::set_autocast_cache_enabled(autocast_cache_);
    at::Generator generator = at::globalContext().defaultGenerator(device_);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(random_);
  }

 private:
  at::Device device_;
  bool autocast_;
  at::ScalarType autocast_dtype_;
  bool autocast_cache_;
  at::Tensor random_;
};

/// A state until the end of the scope.
class ScopedComputeState {
 public:
  explicit ScopedComputeState(const ComputeState& state, const at::Device& device) : before_(device) { state.apply(); }
  ~ScopedComputeState() { before_.apply(); }
  ScopedComputeState(const ScopedComputeState&) = delete;
  ScopedComputeState& operator=(const ScopedComputeState&) = delete;

 private:
  ComputeState before_;
};

struct SegmentRun {
  Segment segment;
  ComputeState state;
};

struct RecomputeFunction : torch::autograd::Function<RecomputeFunction> {
  /// The last of `inputs` is an empty tensor that requires a gradient, so that the segment's parameters get theirs even
  /// where no other input does.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                                                const std::shared_ptr<SegmentRun>& run) {
    const std::vector<at::Tensor> real(inputs.begin(), inputs.end() - 1);
    context->save_for_backward(real);
    context->saved_data["run"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(run));
    return run->segment(real, /*again=*/false);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach().set_requires_grad(saved.requires_grad()));
    }
    const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["run"].toCapsule());
    {
      const ScopedComputeState state(holder->run->state, inputs.front().device());
      std::vector<at::Tensor> outputs;
      {
        const c10::AutoGradMode recording(true);
        outputs = holder->run->segment(inputs, /*again=*/true);
      }
      std::vector<at::Tensor> roots, root_gradients;
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
        roots.push_back(outputs[i]);
        root_gradients.push_back(std::move(gradients[i]));
      }
      outputs.clear();
      if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
    }
    torch::autograd::variable_list result;
    for (const at::Tensor& input : inputs) result.push_back(input.grad());
    result.resize(inputs.size() + 2);  // the empty tensor and the segment have no gradient
    return result;
  }

  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<SegmentRun> r) : run(std::move(r)) {}
    std::shared_ptr<SegmentRun> run;
  };
};

}  // namespace detail

/// segment(inputs), with only the (floating, one or more) inputs kept for the backward, which runs the segment again
/// with the random state and the autocast mode of now. Gradients of parameters inside arrive as usual. Without
/// gradients (c10::GradMode) nothing is kept and nothing runs again. First derivatives only; the backward runs once.
inline std::vector<at::Tensor> recompute(Segment segment, std::vector<at::Tensor> inputs) {
  TORCH_CHECK_VALUE(!inputs.empty(), "ilme::nn::recompute: a segment has no input");
  if (!c10::GradMode::is_enabled()) return segment(inputs, /*again=*/false);
  const at::Device device = inputs.front().device();
  auto run = std::make_shared<detail::SegmentRun>(detail::SegmentRun{std::move(segment), detail::ComputeState(device)});
  inputs.push_back(at::empty({0}, inputs.front().options()).set_requires_grad(true));
  return detail::RecomputeFunction::apply(at::TensorList(inputs), run);
}

}  // namespace ilme::nn
