/// The sharding of one model: which parts gather and give back their parameters when, and what becomes of gradients.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <ilme/core/error.hpp>
#include <ilme/dist/flat_parameters.hpp>
#include <ilme/dist/group.hpp>
#include <ilme/dist/sharding_options.hpp>
#include <ilme/ops/gradient_receiver.hpp>
#include <ilme/optim/clip.hpp>
#include <ilme/optim/gradients.hpp>
#include <ilme/optim/parameter_slice.hpp>

namespace ilme::dist {

/// What sharded parameters take on this rank, bytes.
struct ShardingMemory {
  std::int64_t shards = 0;         ///< parameters at rest
  std::int64_t largest_parts = 0;  ///< the unsharded parameters that are there at most: the root's and two parts'
};

/// The parts of a model in the order in which they compute, the root first. Built by dist::fully_shard; the wrappers
/// (dist/fully_sharded.hpp) tell it where the computation is. All ranks run the same computation, and so call the same
/// collectives in the same order.
///
/// Forward: a part's parameters are gathered while the part before it computes, and given back after it. Backward: the
/// same the other way round; when all gradients of a part have come they are reduced to this rank's shard while the
/// next part computes. Gradients are those of the sum over ranks, not of the mean.
class Sharding : public optim::Gradients {
 public:
  Sharding(const Mesh& mesh, const ShardingOptions& options) : mesh_(mesh), options_(options) {}
  Sharding(const Sharding&) = delete;
  Sharding& operator=(const Sharding&) = delete;
  ~Sharding() override {
    for (Part& part : parts_) {
      for (auto& flat : part.flats) {
        for (std::size_t i = 0; i < flat->size(); ++i) {
          torch::autograd::impl::set_post_acc_grad_hooks(flat->parameter(i), nullptr);
        }
      }
    }
  }

  const Mesh& mesh() const noexcept { return mesh_; }
  const ShardingOptions& options() const noexcept { return options_; }

  // --- values ---

  /// This rank's slices of all parameters, in the order of the model's named_parameters(). Writing into them changes
  /// the model, from the next time that a part is gathered.
  std::vector<optim::ParameterSlice> slices() const { return slices(all_); }
  /// Those that trained when the model was sharded: what an optimizer gets. Their gradients are in the same order.
  std::vector<optim::ParameterSlice> trainable_slices() const { return slices(trainable_); }

  /// Calls visit(name, parameter) with each whole parameter whose name `wanted` accepts (all, by default), part by
  /// part; what holds none of them is not gathered. Called by all ranks. The tensors are valid in the call only.
  void for_each_parameter(const std::function<void(const std::string& name, const at::Tensor& whole)>& visit,
                          const std::function<bool(const std::string& name)>& wanted = {}) {
    const c10::NoGradGuard no_gradient;
    reshard();
    for (Part& part : parts_) {
      for (auto& flat : part.flats) {
        std::vector<std::size_t> members;
        for (std::size_t i = 0; i < flat->size(); ++i) {
          if (!wanted || wanted(flat->name(i))) members.push_back(i);
        }
        if (members.empty()) continue;
        flat->unshard();
        for (const std::size_t i : members) visit(flat->name(i), flat->parameter(i));
        flat->reshard();
      }
    }
  }

  /// Gives back all unsharded parameters. Needed after slices were written outside of a step.
  void reshard() {
    for (Part& part : parts_) reshard(part);
  }

  ShardingMemory memory() const {
    ShardingMemory memory;
    std::int64_t largest = 0;
    for (const Part& part : parts_) {
      std::int64_t whole = 0;
      for (const auto& flat : part.flats) {
        memory.shards += flat->shard_bytes();
        whole += flat->unsharded_bytes();
      }
      (&part == &parts_.front() ? memory.largest_parts : largest) = std::max(largest, whole);
    }
    memory.largest_parts += 2 * largest;
    return memory;
  }

  /// Seconds that the computation waited for other ranks or the wire since the last call.
  double take_wait_seconds() { return std::exchange(wait_seconds_, 0.0); }

  // --- gradients ---

  void redirect(Handler handler) override { handler_ = std::move(handler); }

  /// Between the backwards of a step that are not the last, copies of the model (hybrid, none) are not reduced.
  void set_is_last_backward(bool last) override {
    last_backward_ = last;
    for (Part& part : parts_) {
      for (auto& flat : part.flats) flat->begin_backward();
    }
  }

  /// false: gradients are summed unsharded and not reduced until a backward with true, which saves communication and
  /// takes the memory of whole gradients.
  void set_requires_gradient_sync(bool sync) { sync_ = sync; }

  /// Ends the step's backward where that has not happened (parts that got no gradient of some parameter) and gives this
  /// rank's part of each gradient, one a trainable slice.
  std::vector<at::Tensor>& gradients() override {
    finish();
    gradients_.clear();
    for (const Place& place : trainable_) gradients_.push_back(flat(place).gradient(place.index));
    return gradients_;
  }

  void clear() override {
    for (Part& part : parts_) {
      for (auto& flat : part.flats) flat->clear_gradients();
    }
    reduced_everywhere_.clear();
    gradients_.clear();
  }

  /// The norm of all ranks' gradients together, a float32 scalar tensor, equal on every rank; no host sync on a GPU.
  /// `p` infinity: the largest magnitude. Called by all ranks.
  at::Tensor norm(double p = 2.0) override {
    const c10::NoGradGuard no_gradient;
    const at::Tensor own = optim::global_norm(gradients(), p);
    if (mesh_.shard.size() == 1) return own;
    if (std::isinf(p)) {
      at::Tensor largest = own.clone();
      mesh_.shard.all_reduce_max(largest).wait();
      return largest;
    }
    at::Tensor sum = own.to(at::kDouble).pow(p);
    mesh_.shard.all_reduce(sum).wait();
    return sum.pow(1.0 / p).to(at::kFloat);
  }

  // --- called by the wrappers ---

  /// Adds a part; the first is the root. `parameters`: what is its own.
  std::size_t add_part(const optim::NamedParameters& parameters) {
    Part& part = parts_.emplace_back();
    // One buffer for each dtype, and apart what trains and what does not: frozen parameters have no gradients.
    std::vector<std::pair<std::pair<at::ScalarType, bool>, optim::NamedParameters>> kinds;
    for (const auto& parameter : parameters) {
      const std::pair kind{parameter.second.scalar_type(), parameter.second.requires_grad()};
      auto found = kinds.begin();
      while (found != kinds.end() && found->first != kind) ++found;
      if (found == kinds.end()) found = kinds.insert(kinds.end(), {kind, {}});
      found->second.push_back(parameter);
    }
    for (const auto& [kind, members] : kinds) {
      part.flats.push_back(std::make_unique<detail::FlatParameters>(members, mesh_, options_, pool_));
      for (std::size_t i = 0; i < members.size(); ++i) {
        const at::Tensor& tensor = members[i].second;
        places_[tensor.unsafeGetTensorImpl()] = {parts_.size() - 1, part.flats.size() - 1, i};
        if (kind.second) {
          torch::autograd::impl::set_post_acc_grad_hooks(
              tensor, std::make_unique<Receiver>(*this, Place{parts_.size() - 1, part.flats.size() - 1, i}));
        }
      }
    }
    order_.push_back(parts_.size() - 1);
    return parts_.size() - 1;
  }

  /// Tells in which order the parameters stand; after the last part has been added.
  void set_order(const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& parameter : parameters) {
      const Place place = places_.at(parameter.unsafeGetTensorImpl());
      all_.push_back(place);
      if (parameter.requires_grad()) trainable_.push_back(place);
    }
  }

  void before_forward(std::size_t index) {
    if (index == 0) {
      position_ = 0;
    } else if (position_ + 1 < order_.size() && order_[position_ + 1] == index) {
      ++position_;
    } else {  // not the order of the last time: this one is to be expected from now on
      order_.resize(++position_);
      order_.push_back(index);
    }
    unshard(parts_[index]);
    if (options_.prefetch && position_ + 1 < order_.size()) start_unshard(parts_[order_[position_ + 1]]);
  }

  void after_forward(std::size_t index) {
    if (index == 0) return;
    // The last part is needed first in the backward.
    const bool last = c10::GradMode::is_enabled() && position_ + 1 == order_.size();
    if (!c10::GradMode::is_enabled() || (options_.reshard_after_forward && !last)) reshard(parts_[index]);
  }

  /// Makes the backward tell when it comes to `output`, of part `index`.
  void watch(std::size_t index, const at::Tensor& output) {
    if (!c10::GradMode::is_enabled() || !output.requires_grad()) return;
    output.register_hook([this, index](const at::Tensor&) { before_backward(index); });
  }

 private:
  struct Part {
    std::vector<std::unique_ptr<detail::FlatParameters>> flats;
  };
  /// Where a parameter is.
  struct Place {
    std::size_t part, flat, index;
  };

  struct Reduction {
    Place place;
    bool last;  // of the step
  };

  struct Receiver : ops::GradientReceiver {
    Receiver(Sharding& s, Place p) : sharding(s), place(p) {}

    void operator()(const torch::autograd::Variable& parameter) override {
      at::Tensor gradient = std::move(parameter.mutable_grad());
      parameter.mutable_grad() = at::Tensor();
      if (gradient.defined()) take(std::move(gradient));
      sharding.complete(place);
    }
    void take(at::Tensor gradient) override {
      const c10::NoGradGuard no_gradient;
      auto [sum, empty] = sharding.flat(place).accumulator(place.index);
      TORCH_CHECK_VALUE(gradient.sizes() == sum.sizes(), "ilme::dist::Sharding: a gradient ", gradient.sizes(),
                        " came for a parameter ", sum.sizes());
      empty ? sum.copy_(gradient) : sum.add_(gradient);
    }
    Accumulator accumulator() override {
      auto [sum, empty] = sharding.flat(place).accumulator(place.index);
      return {sum, empty};
    }

    Sharding& sharding;
    Place place;
  };

  detail::FlatParameters& flat(const Place& place) const { return *parts_[place.part].flats[place.flat]; }

  std::vector<optim::ParameterSlice> slices(const std::vector<Place>& places) const {
    std::vector<optim::ParameterSlice> slices;
    for (const Place& place : places) slices.push_back(flat(place).slice(place.index));
    return slices;
  }

  template <class Work>
  void timed(Work&& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void start_unshard(Part& part) {
    for (auto& flat : part.flats) flat->start_unshard();
  }
  void unshard(Part& part) {
    start_unshard(part);
    timed([&] {
      for (auto& flat : part.flats) flat->unshard();
    });
  }
  void reshard(Part& part) {
    for (auto& flat : part.flats) flat->reshard();
  }

  void before_backward(std::size_t index) {
    if (index == 0) {  // the head comes first
      unshard(parts_[0]);
      if (options_.prefetch && order_.size() > 1) start_unshard(parts_[order_.back()]);
      return;
    }
    std::size_t position = 0;
    while (position < order_.size() && order_[position] != index) ++position;
    for (std::size_t i = position + 1; i < order_.size(); ++i) reshard(parts_[order_[i]]);
    unshard(parts_[index]);
    if (options_.prefetch && position > 1) start_unshard(parts_[order_[position - 1]]);
  }

  void complete(const Place& place) {
    if (!flat(place).complete(place.index)) return;
    sync_ ? reduce(place) : flat(place).begin_backward();
  }

  /// Begins to reduce a buffer's gradients. One reduction is under way at a time, so that no more than two buffers of
  /// gradients are held.
  void reduce(const Place& place) {
    finish_reduction();
    if (std::find(reduced_everywhere_.begin(), reduced_everywhere_.end(), &flat(place)) != reduced_everywhere_.end()) {
      throw RunError(
          "gradients came after those of the step's last backward had been summed over the copies of the model; call "
          "set_is_last_backward(false) before each backward of a step but the last");
    }
    flat(place).start_reduce();
    reducing_ = {place, last_backward_};
  }

  void finish_reduction() {
    if (!reducing_) return;
    const Reduction done = *std::exchange(reducing_, std::nullopt);
    timed([&] { flat(done.place).finish_reduce(); });
    if (done.last) reduce_everywhere(done.place);
  }

  /// After a buffer's last reduction of a step.
  void reduce_everywhere(const Place& place) {
    detail::FlatParameters& done = flat(place);
    reduced_everywhere_.push_back(&done);
    if (mesh_.replicate.size() > 1) {
      finish_all_reduce();
      done.start_all_reduce();
      all_reducing_ = place;
    } else {
      hand_over(place);
    }
  }

  void finish_all_reduce() {
    if (!all_reducing_) return;
    const Place place = *std::exchange(all_reducing_, std::nullopt);
    timed([&] { flat(place).finish_all_reduce(); });
    hand_over(place);
  }

  void hand_over(const Place& place) {
    if (!handler_) return;
    for (std::size_t i = 0; i < trainable_.size(); ++i) {
      if (trainable_[i].part != place.part || trainable_[i].flat != place.flat) continue;
      at::Tensor gradient = flat(place).gradient(trainable_[i].index);
      if (gradient.defined()) handler_(i, std::move(gradient));
    }
    flat(place).clear_gradients();
  }

  /// Reduces what has not been, in the same order on all ranks, and gives all parameters back.
  void finish() {
    finish_reduction();
    for (std::size_t p = parts_.size(); p-- > 0;) {
      for (std::size_t f = 0; f < parts_[p].flats.size(); ++f) {
        const Place place{p, f, 0};
        if (flat(place).has_gradient()) {
          reduce(place);
          finish_reduction();
        }
        const bool done = std::find(reduced_everywhere_.begin(), reduced_everywhere_.end(), &flat(place)) !=
                          reduced_everywhere_.end();
        if (flat(place).has_shard_gradient() && !done) reduce_everywhere(place);
      }
    }
    finish_all_reduce();
    reshard();
  }

  Mesh mesh_;
  ShardingOptions options_;
  detail::BufferPool pool_;
  std::vector<Part> parts_;
  std::unordered_map<const c10::TensorImpl*, Place> places_;
  std::vector<Place> all_, trainable_;
  std::vector<std::size_t> order_;  // parts as they compute
  std::size_t position_ = 0;        // in order_, of the part whose forward was last
  Handler handler_;
  bool last_backward_ = true, sync_ = true;
  std::optional<Reduction> reducing_;
  std::optional<Place> all_reducing_;
  std::vector<const detail::FlatParameters*> reduced_everywhere_;
  std::vector<at::Tensor> gradients_;
  double wait_seconds_ = 0;
};

}  // namespace ilme::dist
