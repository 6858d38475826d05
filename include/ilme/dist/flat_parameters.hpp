/// Parameters in one flat buffer, of which every rank keeps an equal piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <ilme/dist/group.hpp>
#include <ilme/dist/sharding_options.hpp>
#include <ilme/optim/parameter_group.hpp>
#include <ilme/optim/parameter_slice.hpp>

namespace ilme::dist::detail {

/// Elements that every parameter and every shard begins at a multiple of: 64 bytes of the narrowest type.
inline constexpr std::int64_t kAlignment = 32;

inline std::int64_t aligned(std::int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

/// The memory of whole buffers, which goes from part to part. Given back to malloc in between, it would be cut up by
/// smaller tensors, and the next part's would be new memory: measured, twice what tensors hold.
class BufferPool {
 public:
  /// Puts memory for all of it into the storage of `buffer`, which has none.
  void fill(const at::Tensor& buffer) {
    c10::StorageImpl* storage = buffer.storage().unsafeGetStorageImpl();
    const std::size_t bytes = static_cast<std::size_t>(buffer.numel()) * buffer.itemsize();
    auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& piece) {
      return piece.first == bytes && piece.second.device() == buffer.device();
    });
    if (found == free_.end()) {
      storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
    } else {
      storage->set_data_ptr_noswap(std::move(found->second));
      free_.erase(found);
    }
    storage->set_nbytes(bytes);
  }
  /// Takes it out again.
  void drain(const at::Tensor& buffer) {
    c10::StorageImpl* storage = buffer.storage().unsafeGetStorageImpl();
    free_.emplace_back(storage->nbytes(), storage->set_data_ptr(c10::DataPtr(nullptr, buffer.device())));
    storage->set_nbytes(0);
  }

 private:
  std::vector<std::pair<std::size_t, c10::DataPtr>> free_;
};

/// A module's parameters of one dtype, laid end to end in a flat buffer that is cut into a shard for each rank of
/// mesh.shard. The parameters' tensors become views of the unsharded buffer; resharding takes the memory out of the
/// buffer's storage and unsharding puts new memory in, so that views, and what autograd has saved of them, see the
/// data again (autograd's version counters do not move). Reading a parameter in between is not allowed. Gradients are
/// summed in a flat buffer of their own, in float32 (float64 for float64), where operations add them in place
/// (ops/gradient_receiver.hpp), and reduced over the ranks into this rank's shard. Nothing is copied on either way.
class FlatParameters {
 public:
  /// Takes this rank's shard out of the parameters' values, or leaves zeros where they are on the meta device.
  FlatParameters(const optim::NamedParameters& parameters, const Mesh& mesh, const ShardingOptions& options,
                 BufferPool& pool)
      : mesh_(mesh), pool_(pool) {
    const c10::NoGradGuard no_gradient;
    const at::Tensor& first = parameters.front().second;
    std::int64_t total = 0;
    for (const auto& [name, tensor] : parameters) {
      entries_.push_back({name, tensor, tensor.sizes().vec(), total, tensor.numel()});
      total += aligned(tensor.numel());
    }
    shard_size_ = aligned((total + mesh.shard.size() - 1) / mesh.shard.size());
    shard_begin_ = shard_size_ * mesh.shard.rank();
    const c10::Device device = first.is_meta() ? options.device : first.device();
    const at::TensorOptions stored = first.options().device(options.cpu_offload ? c10::Device(c10::kCPU) : device);
    shard_ = at::zeros({shard_size_}, stored.requires_grad(false));
    for (const Entry& entry : entries_) {
      if (!entry.tensor.is_meta()) own_part(shard_, entry).copy_(part_of(entry.tensor.detach().flatten(), entry));
    }
    const at::ScalarType type = first.is_floating_point()
                                    ? options.mixed_precision.param_dtype.value_or(first.scalar_type())
                                    : first.scalar_type();
    resident_ = mesh.shard.size() == 1 && type == shard_.scalar_type() && shard_.device() == device;
    flat_ =
        resident_ ? shard_ : at::empty({shard_size_ * mesh.shard.size()}, shard_.options().dtype(type).device(device));
    gradient_type_ = type == at::kDouble ? at::kDouble : at::kFloat;
    reduce_type_ = options.mixed_precision.reduce_dtype.value_or(gradient_type_);
    for (const Entry& entry : entries_) put_view(entry);
    if (resident_) return;
    c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();  // memory that nothing was written to
    storage->set_data_ptr_noswap(c10::DataPtr(nullptr, device));
    storage->set_nbytes(0);
  }
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  // --- values ---

  /// Begins to gather the parameters from all ranks, where that has not begun.
  void start_unshard() {
    if (resident_ || state_ != State::sharded) return;
    const c10::NoGradGuard no_gradient;
    pool_.fill(flat_);
    gathering_ = mesh_.shard.all_gather(flat_, shard_.to(flat_.options()));
    state_ = State::gathering;
  }

  /// On return the parameters can be used.
  void unshard() {
    start_unshard();
    if (state_ != State::gathering) return;
    gathering_.wait();
    state_ = State::unsharded;
  }

  /// Gives the memory of the unsharded parameters back.
  void reshard() {
    if (resident_ || state_ == State::sharded) return;
    if (state_ == State::gathering) gathering_.wait();
    pool_.drain(flat_);
    state_ = State::sharded;
  }

  // --- gradients ---

  /// The sum of parameter i's gradients, of its shape; `empty` when nothing has come yet and all is to be written.
  std::pair<at::Tensor, bool> accumulator(std::size_t i) {
    Entry& entry = entries_[i];
    if (!gradient_.defined()) {
      // With one shard what is summed here is the shard's gradient itself.
      if (mesh_.shard.size() == 1 && shard_gradient_.defined()) {
        gradient_ = shard_gradient_;
      } else {
        gradient_ = at::empty({0}, flat_.options().dtype(gradient_type_));
        gradient_.unsafeGetTensorImpl()->set_sizes_contiguous({shard_size_ * mesh_.shard.size()});
        pool_.fill(gradient_);
      }
    }
    entry.came = true;
    const bool empty = !std::exchange(entry.written, true);
    return {gradient_.narrow(0, entry.offset, entry.numel).view(entry.shape), empty};
  }

  /// Notes that all of parameter i's gradient has come in this backward; true when that is so of all that train.
  bool complete(std::size_t i) {
    entries_[i].complete = true;
    return std::all_of(entries_.begin(), entries_.end(),
                       [](const Entry& e) { return e.complete || !e.tensor.requires_grad(); });
  }

  /// Forgets what is complete.
  void begin_backward() {
    for (Entry& entry : entries_) entry.complete = false;
  }

  /// Whether there are gradients that have not been reduced.
  bool has_gradient() const { return gradient_.defined(); }
  bool has_shard_gradient() const { return shard_gradient_.defined(); }

  /// Begins to sum the gradients over the ranks; this rank's shard is added to what earlier backwards gave it.
  void start_reduce() {
    const c10::NoGradGuard no_gradient;
    for (Entry& entry : entries_) {
      const std::int64_t end = entry.offset + entry.numel;
      if (!entry.written) gradient_.narrow(0, entry.offset, entry.numel).zero_();
      gradient_.narrow(0, end, aligned(end) - end).zero_();
      entry.written = entry.complete = false;
    }
    const std::int64_t used = entries_.back().offset + aligned(entries_.back().numel);
    gradient_.narrow(0, used, gradient_.numel() - used).zero_();
    if (mesh_.shard.size() == 1) {
      shard_gradient_ = std::exchange(gradient_, {});
      for (Entry& entry : entries_) entry.written = true;  // the next backward adds
      return;
    }
    const bool here = shard_.device() == flat_.device();
    const bool add = here && shard_gradient_.defined();
    reduced_ = add ? shard_gradient_ : at::empty({shard_size_}, gradient_.options());
    reducing_ = mesh_.shard.reduce_scatter(reduced_, gradient_.to(reduce_type_), add);
    sent_ = std::exchange(gradient_, {});
    if (here) shard_gradient_ = std::exchange(reduced_, {});
  }

  /// Waits for the sum over the shard group.
  void finish_reduce() {
    reducing_.wait();
    if (sent_.defined()) pool_.drain(std::exchange(sent_, {}));
    if (!reduced_.defined()) return;
    const c10::NoGradGuard no_gradient;  // the shard is in host memory
    const at::Tensor sum = std::exchange(reduced_, {}).to(shard_.device());
    shard_gradient_ = shard_gradient_.defined() ? shard_gradient_.add_(sum) : sum;
  }

  /// Begins to sum the shard's gradient over the copies of the model.
  void start_all_reduce() { all_reducing_ = mesh_.replicate.all_reduce(shard_gradient_); }
  void finish_all_reduce() { all_reducing_.wait(); }

  /// Parameter i's gradient in this rank's shard [n], n maybe 0; undefined when none has come since `clear_gradients`.
  at::Tensor gradient(std::size_t i) const {
    if (!shard_gradient_.defined() || !entries_[i].came) return {};
    return own_part(shard_gradient_, entries_[i]);
  }

  void clear_gradients() {
    if (gradient_.defined() && mesh_.shard.size() > 1) pool_.drain(gradient_);
    shard_gradient_.reset();
    gradient_.reset();
    for (Entry& entry : entries_) entry.came = entry.written = entry.complete = false;
  }

  // --- what there is ---

  std::size_t size() const { return entries_.size(); }
  const std::string& name(std::size_t i) const { return entries_[i].name; }
  const at::Tensor& parameter(std::size_t i) const { return entries_[i].tensor; }
  /// This rank's part of parameter i; its memory is the shard's.
  optim::ParameterSlice slice(std::size_t i) const {
    const Entry& entry = entries_[i];
    const at::Tensor part = own_part(shard_, entry);
    return {entry.name, part, entry.shape,
            part.numel() > 0 ? std::max<std::int64_t>(0, shard_begin_ - entry.offset) : 0};
  }
  std::int64_t shard_bytes() const { return static_cast<std::int64_t>(shard_.nbytes()); }
  std::int64_t unsharded_bytes() const {
    return resident_ ? 0 : flat_.numel() * static_cast<std::int64_t>(flat_.itemsize());
  }

 private:
  enum class State { sharded, gathering, unsharded };
  struct Entry {
    std::string name;
    at::Tensor tensor;
    std::vector<std::int64_t> shape;
    std::int64_t offset, numel;
    bool written = false;   // its place in the gradients holds something
    bool complete = false;  // the present backward has made all of it
    bool came = false;      // a gradient has come since the last clear
  };

  /// Elements of `entry`, counted in the flat buffer, that this rank's shard holds.
  std::pair<std::int64_t, std::int64_t> own_range(const Entry& entry) const {
    const std::int64_t begin = std::clamp(shard_begin_, entry.offset, entry.offset + entry.numel);
    return {begin, std::clamp(shard_begin_ + shard_size_, begin, entry.offset + entry.numel)};
  }
  at::Tensor own_part(const at::Tensor& shard, const Entry& entry) const {
    const auto [begin, end] = own_range(entry);
    return shard.narrow(0, end > begin ? begin - shard_begin_ : 0, end - begin);
  }
  at::Tensor part_of(const at::Tensor& values, const Entry& entry) const {
    const auto [begin, end] = own_range(entry);
    return values.narrow(0, begin - entry.offset, end - begin);
  }

  /// Makes the parameter's tensor, wherever it is held, a view of the flat buffer.
  void put_view(const Entry& entry) const {
    const at::Tensor view = flat_.narrow(0, entry.offset, entry.numel).view(entry.shape);
    // Tensor::set_data, but from the meta device as well, which it refuses.
    c10::TensorImpl* impl = entry.tensor.unsafeGetTensorImpl();
    if (entry.tensor.is_meta()) {
      impl->shallow_copy_from(view.getIntrusivePtr());
    } else {
      entry.tensor.set_data(view);
    }
  }

  Mesh mesh_;
  BufferPool& pool_;
  std::vector<Entry> entries_;
  std::int64_t shard_size_ = 0, shard_begin_ = 0;
  at::Tensor shard_, flat_;
  bool resident_ = false;  // the shard is the whole, and computed with as it is
  State state_ = State::sharded;
  Pending gathering_, reducing_, all_reducing_;
  at::ScalarType gradient_type_ = at::kFloat, reduce_type_ = at::kFloat;
  at::Tensor gradient_, sent_, shard_gradient_;  // this backward's, what is on its way, and what has come to the shard
  at::Tensor reduced_;  // what comes to the device before it is added to a shard's gradient in host memory
};

}  // namespace ilme::dist::detail
