/// Collectives between the ranks of a run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ilme/core/error.hpp>

namespace ilme::dist {

/// The communicators of a group: one for tensors in main memory, one for CUDA's (none where there is no NCCL).
struct Backends {
  c10::intrusive_ptr<c10d::Backend> cpu, cuda;
};

/// Makes the backends of a group; `name` is equal on all its ranks and used once. Collective over the group's ranks.
using MakeBackends = std::function<Backends(const std::string& name, int rank, int size)>;

/// A collective under way. Until wait() returns its tensors must not be touched.
class Pending {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  /// Nothing is under way.
  Pending() = default;
  Pending(std::string what, Works works, std::function<void()> finish = {})
      : what_(std::move(what)), works_(std::move(works)), finish_(std::move(finish)) {}
  Pending(Pending&& other) noexcept { swap(other); }
  Pending& operator=(Pending&& other) noexcept {
    Pending(std::move(other)).swap(*this);
    return *this;
  }
  ~Pending() {
    try {  // the tensors may go away now, so nobody may still read or write them
      wait();
    } catch (const std::exception&) {
    }
  }

  /// Returns when the collective's output may be used. Throws RunError when it failed, because a peer is gone or did
  /// not come within the group's time-out.
  void wait() {
    const Works works = std::move(works_);
    const std::function<void()> finish = std::move(finish_);
    works_.clear();
    finish_ = nullptr;
    std::exception_ptr failure;
    for (const auto& work : works) {
      try {
        work->wait();
      } catch (const std::exception&) {
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) fail(failure);
    if (finish) finish();
  }

  /// Whether nothing is left to wait for: wait() was called, or there was nothing to do.
  bool done() const { return works_.empty() && !finish_; }

 private:
  [[noreturn]] void fail(const std::exception_ptr& failure) const {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw RunError(what_, " failed: ", text.substr(0, text.find('\n')));
    }
  }

  void swap(Pending& other) noexcept {
    std::swap(what_, other.what_);
    std::swap(works_, other.works_);
    std::swap(finish_, other.finish_);
  }

  std::string what_;
  Works works_;
  std::function<void()> finish_;
};

/// A communicator over some ranks; copies share it. All its ranks call the same collectives in the same order; several
/// may be under way. A group of one rank has no backend and finishes everything at once.
///
/// In main memory, gathering and scattering go from rank to rank directly (c10d's send and recv), into the place where
/// the data is wanted: Gloo's own all-gather goes through a second buffer of the output's size, and its reduce-scatter
/// is an all-reduce.
class Group {
 public:
  /// One rank.
  Group() : shared_(std::make_shared<Shared>()) {}

  /// Collective over the group's ranks.
  Group(MakeBackends make, std::string name, int rank, int size) : shared_(std::make_shared<Shared>()) {
    shared_->rank = rank;
    shared_->size = size;
    if (size > 1) shared_->backends = make(name, rank, size);
    shared_->make = std::move(make);
    shared_->name = std::move(name);
  }

  int rank() const { return shared_->rank; }
  int size() const { return shared_->size; }

  /// Every rank's `input` [n] in `output` [size * n], by rank; both contiguous and of one dtype. `input` may be the
  /// rank-th part of `output`.
  Pending all_gather(at::Tensor output, at::Tensor input) const {
    check(output.is_contiguous() && input.is_contiguous() && output.numel() == size() * input.numel() &&
              output.scalar_type() == input.scalar_type(),
          "all_gather", output, input);
    const c10::NoGradGuard no_gradient;
    output = output.view(-1);
    input = input.view(-1);
    const std::int64_t n = input.numel();
    if (n == 0) return {};
    if (output.is_cuda() && size() > 1) return started("all_gather", {cuda()._allgather_base(output, input)});
    at::Tensor own = output.narrow(0, rank() * n, n);
    Pending::Works works =
        exchange([&](int) { return input; }, [&](int peer) { return output.narrow(0, peer * n, n); });
    if (own.data_ptr() != input.data_ptr()) own.copy_(input);
    return started("all_gather", std::move(works));
  }

  /// `sum` [n] becomes the sum of the rank-th parts of every rank's `input` [size * n], or gets it added if `add`. The
  /// input's dtype is what goes over the wire: float32, float64 or 16-bit; the parts are added in the sum's dtype and
  /// in the order of ranks, so that the result does not depend on timing (over NCCL: in the input's dtype, and in
  /// NCCL's order). Both contiguous.
  Pending reduce_scatter(at::Tensor sum, at::Tensor input, bool add) const {
    check(sum.is_contiguous() && input.is_contiguous() && input.numel() == size() * sum.numel(), "reduce_scatter", sum,
          input);
    const c10::NoGradGuard no_gradient;
    sum = sum.view(-1);
    input = input.view(-1);
    const std::int64_t n = sum.numel();
    if (n == 0) return {};
    std::vector<at::Tensor> parts(size());
    if (input.is_cuda() && size() > 1) {
      parts = {at::empty({n}, input.options())};
      Pending::Works works = {cuda()._reduce_scatter_base(parts[0], input)};
      return started("reduce_scatter", std::move(works), [sum, parts, add] { add_parts(sum, parts, add); });
    }
    parts[rank()] = input.narrow(0, rank() * n, n);
    Pending::Works works = exchange([&](int peer) { return input.narrow(0, peer * n, n); },
                                    [&](int peer) { return parts[peer] = at::empty({n}, input.options()); });
    return started("reduce_scatter", std::move(works), [sum, parts, add] { add_parts(sum, parts, add); });
  }

  /// Sums `tensor` over the ranks in place, to the same bits on all of them; contiguous.
  Pending all_reduce(at::Tensor tensor) const { return all_reduce(tensor, c10d::ReduceOp::SUM, "all_reduce"); }

  /// The largest of every rank's elements, in place; contiguous.
  Pending all_reduce_max(at::Tensor tensor) const { return all_reduce(tensor, c10d::ReduceOp::MAX, "all_reduce_max"); }

  /// Every rank's `tensor` becomes that of rank `root`; contiguous, of one shape and dtype.
  void broadcast(at::Tensor tensor, int root) const {
    check(tensor.is_contiguous() && root >= 0 && root < size(), "broadcast", tensor, tensor);
    const c10::NoGradGuard no_gradient;
    if (size() == 1 || tensor.numel() == 0) return;
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    started("broadcast", {backend(tensor).broadcast(tensors, options)}).wait();
  }

  /// Returns when every rank has called it.
  void barrier() const {
    if (size() > 1) all_reduce(at::zeros({1})).wait();
  }

  /// Every rank's text, by rank.
  std::vector<std::string> all_gather_text(const std::string& text) const {
    at::Tensor lengths = at::empty({size()}, at::kLong);
    all_gather(lengths, at::tensor({static_cast<std::int64_t>(text.size())}, at::kLong)).wait();
    const auto longest = lengths.max().item<std::int64_t>();
    at::Tensor all = at::zeros({size(), longest}, at::kByte);
    if (!text.empty()) std::memcpy(all[rank()].mutable_data_ptr(), text.data(), text.size());
    all_gather(all, all[rank()]).wait();
    std::vector<std::string> texts;
    for (int i = 0; i < size(); ++i) {
      texts.emplace_back(static_cast<const char*>(all.const_data_ptr()) + i * longest, lengths[i].item<std::int64_t>());
    }
    return texts;
  }

  /// A communicator of its own over the same ranks, for another thread's collectives. Collective.
  Group duplicate() const { return Group(shared_->make, concat(shared_->name, "/", shared_->made++), rank(), size()); }

  /// {shard, replicate}: this rank's group of `ranks_per_group` consecutive ranks, and the group of the ranks that are
  /// at its position in theirs. Collective.
  std::pair<Group, Group> split(int ranks_per_group) const {
    if (ranks_per_group < 1 || size() % ranks_per_group != 0) {
      throw InputError(size(), " ranks cannot be split into groups of ", ranks_per_group,
                       ": that does not divide them");
    }
    const int position = rank() % ranks_per_group, group = rank() / ranks_per_group;
    const std::string name = concat(shared_->name, "/", shared_->made++);
    return {Group(shared_->make, concat(name, "/shard", group), position, ranks_per_group),
            Group(shared_->make, concat(name, "/replicate", position), group, size() / ranks_per_group)};
  }

 private:
  struct Shared {
    int rank = 0, size = 1;
    Backends backends;
    MakeBackends make;
    std::string name;
    std::atomic<int> made = 0;  // groups over these ranks
    std::atomic<std::uint32_t> exchanges = 0;
  };

  /// Sends send(peer) to every other rank and receives receive(peer).
  template <class Send, class Receive>
  Pending::Works exchange(Send send, Receive receive) const {
    constexpr std::uint32_t kTags = 1u << 30;  // c10d wants them in an int; two collectives with one tag are far apart
    const int tag = static_cast<int>(shared_->exchanges++ % kTags);
    Pending::Works works;
    for (int i = 1; i < size(); ++i) {
      const int from = (rank() + size() - i) % size();
      std::vector<at::Tensor> received = {receive(from)};
      works.push_back(cpu().recv(received, from, tag));
    }
    for (int i = 1; i < size(); ++i) {
      const int to = (rank() + i) % size();
      std::vector<at::Tensor> sent = {send(to)};
      works.push_back(cpu().send(sent, to, tag));
    }
    return works;
  }

  /// Adds a piece at a time: it stays in the cache while every part is added to it, and conversions of 16-bit parts
  /// need no memory to speak of.
  static void add_parts(const at::Tensor& sum, const std::vector<at::Tensor>& parts, bool add) {
    const c10::NoGradGuard no_gradient;
    constexpr std::int64_t kPiece = std::int64_t{1} << 18;
    for (std::int64_t begin = 0; begin < sum.numel(); begin += kPiece) {
      const std::int64_t length = std::min(kPiece, sum.numel() - begin);
      at::Tensor piece = sum.narrow(0, begin, length);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const at::Tensor part = parts[i].narrow(0, begin, length);
        if (i == 0 && !add) {
          piece.copy_(part);
        } else {
          piece.add_(part);
        }
      }
    }
  }

  Pending all_reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType operation, const char* name) const {
    check(tensor.is_contiguous(), name, tensor, tensor);
    if (size() == 1 || tensor.numel() == 0) return {};
    std::vector<at::Tensor> tensors = {tensor.detach()};
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    return started(name, {backend(tensor).allreduce(tensors, options)});
  }

  Pending started(const char* name, Pending::Works works, std::function<void()> finish = {}) const {
    return {concat("rank ", rank(), " of ", size(), ": ", name), std::move(works), std::move(finish)};
  }

  c10d::Backend& cpu() const { return *shared_->backends.cpu; }
  c10d::Backend& cuda() const {
    if (!shared_->backends.cuda)
      throw RunError("a collective on CUDA tensors needs NCCL, which this group does not have");
    return *shared_->backends.cuda;
  }
  c10d::Backend& backend(const at::Tensor& tensor) const { return tensor.is_cuda() ? cuda() : cpu(); }

  void check(bool fits, const char* name, const at::Tensor& output, const at::Tensor& input) const {
    TORCH_CHECK_VALUE(fits, "ilme::dist::Group::", name, " over ", size(), " ranks: ", output.sizes(), " ",
                      output.dtype(), " and ", input.sizes(), " ", input.dtype(), " do not fit, or are not contiguous");
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace ilme::dist
