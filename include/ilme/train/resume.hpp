/// A trainer's whole state to and from a checkpoint, whatever number of ranks, sharding and dtypes it was made with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/random.hpp>
#include <ilme/dist/group.hpp>
#include <ilme/io/dtype.hpp>
#include <ilme/io/safetensors.hpp>
#include <ilme/optim/parameter_slice.hpp>

namespace ilme::train {

/// The ranks of a trainer that may have several.
template <class Trainer>
dist::Group group_of(Trainer& trainer) {
  if constexpr (requires { trainer.group(); }) return trainer.group();
  return {};
}

namespace detail {

/// What training draws from on this rank: the CPU's generator and that of the parameters' device.
template <class Trainer>
std::vector<std::pair<std::string, at::Generator>> generators(Trainer& trainer) {
  std::vector<std::pair<std::string, at::Generator>> all{{"cpu_generator", at::detail::getDefaultCPUGenerator()}};
  for (const optim::ParameterSlice& slice : trainer.optimizer().slices()) {
    if (!slice.tensor.is_cuda() || all.size() > 1) continue;
    all.emplace_back("cuda_generator", at::globalContext().defaultGenerator(slice.tensor.device()));
  }
  return all;
}

/// A rank's state as its row of [ranks, bytes]; one process has [bytes].
inline optim::ParameterSlice generator_slice(const std::string& name, const at::Tensor& state,
                                             const dist::Group& group) {
  const std::int64_t bytes = state.numel();
  if (group.size() == 1) return {name, state, {bytes}, 0};
  return {name, state, {group.size(), bytes}, group.rank() * bytes};
}

/// Goes on with this rank's generator, or, with another number of ranks, with one drawn from the saved state and the
/// rank. A generator that the checkpoint does not have stays as it is.
inline void restore_generator(const std::string& name, at::Generator generator, const dist::Group& group,
                              const checkpoint::SlicedTensors& saved) {
  if (!saved.contains(name)) return;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  at::Tensor state = at::empty({saved.shape(name).back()}, at::kByte);
  const std::int64_t ranks = saved.shape(name).size() == 1 ? 1 : saved.shape(name).front();
  if (ranks == group.size()) {
    saved.copy_range_to(name, group.rank() * state.numel(), state);
    generator.set_state(state);
  } else {
    saved.copy_range_to(name, 0, state);
    const auto hash = ::crc32_z(0, state.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(state.numel()));
    generator.set_current_seed(random_bits(hash, group.rank(), group.size()));
  }
}

inline void check_shape(const checkpoint::SlicedTensors& saved, const std::string& name,
                        const optim::ParameterSlice& slice) {
  if (saved.shape(name) == slice.shape) return;
  throw InputError(saved.path().string(), ": tensor \"", name, "\" has shape ", at::IntArrayRef(saved.shape(name)),
                   ", this model has ", at::IntArrayRef(slice.shape));
}

/// Adds a line when values of a wider type go into a narrower one.
inline void note_rounding(std::set<std::string>& notes, const char* what, at::ScalarType saved, at::ScalarType now) {
  if (c10::elementSize(saved) <= c10::elementSize(now)) return;
  notes.insert(concat(what, " of the checkpoint are ", io::torch_dtype_name(saved), ", rounded to ",
                      io::torch_dtype_name(now), " here"));
}

}  // namespace detail

/// Everything that decides how the run goes on: the parameters that have been updated, the optimizer's state, each
/// rank's random generator (dropout), the counters and the source's place. Parameters that are frozen, or have been so
/// far, come from the model folder again. `more` is stored beside it (the run's settings, the state of callbacks).
/// Tensors are the live ones: save, or copy, before the next step.
template <class Trainer>
checkpoint::Contents snapshot(Trainer& trainer, const Json& more = Json::object()) {
  checkpoint::Contents contents;
  auto &model = contents.files["model"], &optimizer = contents.files["optimizer"], &random = contents.files["random"];
  std::set<std::string> updated;
  for (const auto& [name, parameter] : trainer.optimizer().updated_parameters()) updated.insert(name);
  std::map<std::string, optim::ParameterSlice> places;
  for (const optim::ParameterSlice& slice : trainer.optimizer().slices()) {
    if (updated.contains(slice.name)) model.push_back(slice);
    places.emplace(slice.name, slice);
  }
  for (const auto& [name, part] : trainer.optimizer().state()) {
    const optim::ParameterSlice& place = places.at(name.substr(0, name.rfind('.')));
    if (part.sizes() == place.tensor.sizes()) {
      optimizer.push_back({name, part, place.shape, place.begin});
    } else {
      optimizer.push_back({name, part, part.sizes().vec(), 0});
    }
  }
  for (auto& [name, generator] : detail::generators(trainer)) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    random.push_back(detail::generator_slice(name, generator.get_state(), group_of(trainer)));
  }
  contents.state = more;
  contents.state["trainer"] = trainer.state();
  return contents;
}

/// Puts a freshly built trainer where `snapshot` was taken: this rank's slices are read from whatever slices were
/// saved. With the same ranks and dtypes the run goes on with the same bits. Other dtypes take over what there is: a
/// saved float32 master is the parameter (rounded to a narrower one), a saved float32 parameter the master; the lines
/// that are returned say what was rounded. InputError when the checkpoint is of another model, optimizer or data; then
/// the trainer must not be used.
template <class Trainer>
std::vector<std::string> restore(Trainer& trainer, const checkpoint::Loaded& checkpoint) {
  const c10::NoGradGuard no_gradient;
  const auto &model = checkpoint.file("model"), &state = checkpoint.file("optimizer");
  auto& optimizer = trainer.optimizer();
  // The file with the most precise values of a parameter, and their name there.
  const auto precise = [&](const std::string& name) {
    const std::string master = name + ".master";
    return state.contains(master) ? std::pair(&state, master) : std::pair(&model, name);
  };
  std::size_t found = 0;
  std::set<std::string> kept;
  for (const optim::ParameterSlice& slice : optimizer.slices()) {
    if (!model.contains(slice.name)) continue;
    detail::check_shape(model, slice.name, slice);
    const auto [file, name] = precise(slice.name);
    detail::check_shape(*file, name, slice);
    file->copy_range_to(name, slice.begin, at::Tensor(slice.tensor));
    kept.insert(slice.name);
    ++found;
  }
  optimizer.load_state([&](const optim::ParameterSlice& slice, const std::string& kind, const at::Tensor& target) {
    std::pair from(&state, slice.name + "." + kind);
    if (kind == "master") from = precise(slice.name);
    if (!from.first->contains(from.second)) return false;
    const bool per_element = target.sizes() == slice.tensor.sizes();
    if (per_element) detail::check_shape(*from.first, from.second, slice);
    from.first->copy_range_to(from.second, per_element ? slice.begin : 0, target);
    return true;
  });
  if (found != model.names().size() || found != optimizer.updated_parameters().size()) {
    throw InputError(model.path().string(), ": holds ", model.names().size(), " tensors, of which this run trains ",
                     found);
  }
  for (const std::string& name : state.names()) {
    if (!kept.contains(name.substr(0, name.rfind('.')))) {
      throw InputError(state.path().string(), ": optimizer state \"", name, "\" is of no parameter of this run");
    }
  }
  for (const auto& [name, generator] : detail::generators(trainer)) {
    detail::restore_generator(name, generator, group_of(trainer), checkpoint.file("random"));
  }
  trainer.restore(checkpoint.state.at("trainer"));

  std::set<std::string> notes;
  std::map<std::string, at::ScalarType> now;
  for (const auto& [name, tensor] : optimizer.updated_parameters()) now[name] = tensor.scalar_type();
  for (const auto& [name, tensor] : optimizer.state()) {
    if (name.ends_with(".master")) now[name.substr(0, name.rfind('.'))] = tensor.scalar_type();
    if (!name.ends_with(".master") && state.contains(name)) {
      detail::note_rounding(notes, "moments", state.dtype(name), tensor.scalar_type());
    }
  }
  for (const auto& [name, type] : now) {
    const auto [file, saved_name] = precise(name);
    detail::note_rounding(notes, "parameters", file->dtype(saved_name), type);
  }
  return {notes.begin(), notes.end()};
}

}  // namespace ilme::train
