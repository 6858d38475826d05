/// Collectives between the ranks of a run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
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

#include <ilme/core/error.hpp>
#include <ilme/dist/observer.hpp>
#include <ilme/dist/pending.hpp>

namespace ilme::dist {

/// The communicators of a group: one for tensors in main memory, one for CUDA's (none where there is no NCCL).
struct Backends {
  c10::intrusive_ptr<c10d::Backend> cpu, cuda;
};

/// Makes the backends of a group; `name` is equal on all its ranks and used once. Collective over the group's ranks.
using MakeBackends = std::function<Backends(const std::string& name, int rank, int size)>;

/// A communicator over some ranks; copies share it. All its ranks call the same collectives in the same order; several
/// may be under way. A group of one rank has no backend and finishes everything at once.
///
/// In main memory, gathering and scattering go from rank to rank directly (c10d's send and recv), into the place where
/// the data is wanted: Gloo's own all-gather goes through a second buffer of the output's size, and its reduce-scatter
/// is an all-reduce.
class Group {
 public:
  /// One rank.
  Group() : shared_(std::make_shared<Shared>()) { shared_->ranks = {0}; }

  /// Collective over the group's ranks.
  Group(MakeBackends make, Membership membership) : shared_(std::make_shared<Shared>()) {
    static_cast<Membership&>(*shared_) = std::move(membership);
    if (size() > 1) {  // like a collective, the group's first: whoever does not come is found in the same way
      Pending(shared_, "making a group", [&](Pending::Works&) {
        if (shared_->observer) shared_->observer->waiting(shared_->name, 1, "making a group");
        shared_->backends = make(shared_->name, rank(), size());
        if (shared_->observer) shared_->observer->waited(shared_->name, 1);
      }).wait();
    }
    shared_->make = std::move(make);
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
    if (output.is_cuda() && size() > 1) {
      return start("all_gather",
                   [&](Pending::Works& works) { works.push_back(cuda()._allgather_base(output, input)); });
    }
    const at::Tensor own = output.narrow(0, rank() * n, n);
    if (own.data_ptr() != input.data_ptr()) own.copy_(input);
    return exchange(
        "all_gather", [&](int) { return input; }, [&](int peer) { return output.narrow(0, peer * n, n); });
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
    std::vector<at::Tensor> parts(input.is_cuda() && size() > 1 ? 1 : size());
    if (parts.size() < static_cast<std::size_t>(size())) {
      parts[0] = at::empty({n}, input.options());
      return start(
          "reduce_scatter",
          [&](Pending::Works& works) { works.push_back(cuda()._reduce_scatter_base(parts[0], input)); },
          [sum, parts, add] { add_parts(sum, parts, add); });
    }
    for (int i = 0; i < size(); ++i) {
      parts[i] = i == rank() ? input.narrow(0, i * n, n) : at::empty({n}, input.options());
    }
    return exchange(
        "reduce_scatter", [&](int peer) { return input.narrow(0, peer * n, n); }, [&](int peer) { return parts[peer]; },
        [sum, parts, add] { add_parts(sum, parts, add); });
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
    start("broadcast", [&](Pending::Works& works) {
      works.push_back(backend(tensor).broadcast(tensors, options));
    }).wait();
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
  Group duplicate() const { return member(concat(shared_->name, "/", shared_->made++), rank(), shared_->ranks); }

  /// {shard, replicate}: this rank's group of `ranks_per_group` consecutive ranks, and the group of the ranks that are
  /// at its position in theirs. Collective.
  std::pair<Group, Group> split(int ranks_per_group) const {
    if (ranks_per_group < 1 || size() % ranks_per_group != 0) {
      throw InputError(size(), " ranks cannot be split into groups of ", ranks_per_group,
                       ": that does not divide them");
    }
    const int position = rank() % ranks_per_group, group = rank() / ranks_per_group;
    const std::string name = concat(shared_->name, "/", shared_->made++);
    std::vector<int> together, across;
    for (int i = 0; i < size(); ++i) {
      if (i / ranks_per_group == group) together.push_back(shared_->ranks[i]);
      if (i % ranks_per_group == position) across.push_back(shared_->ranks[i]);
    }
    return {member(concat(name, "/shard", group), position, std::move(together)),
            member(concat(name, "/replicate", position), group, std::move(across))};
  }

 private:
  struct Shared : Membership {
    Backends backends;
    MakeBackends make;
    std::atomic<int> made = 0;  // groups over these ranks
    std::atomic<std::uint32_t> exchanges = 0;
  };

  /// Sends send(peer) to every other rank and receives receive(peer).
  template <class Send, class Receive>
  Pending exchange(const char* name, Send send, Receive receive, std::function<void()> finish = {}) const {
    if (size() == 1) {
      if (finish) finish();
      return {};
    }
    constexpr std::uint32_t kTags = 1u << 30;  // c10d wants them in an int; two collectives with one tag are far apart
    const int tag = static_cast<int>(shared_->exchanges++ % kTags);
    return start(
        name,
        [&](Pending::Works& works) {
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
        },
        std::move(finish));
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
    return start(name, [&](Pending::Works& works) { works.push_back(backend(tensor).allreduce(tensors, options)); });
  }

  Group member(std::string name, int rank, std::vector<int> ranks) const {
    const int size = static_cast<int>(ranks.size());
    return Group(shared_->make, {rank, size, std::move(name), std::move(ranks), shared_->observer});
  }

  template <class Post>
  Pending start(const char* name, Post&& post, std::function<void()> finish = {}) const {
    return Pending(shared_, name, post, std::move(finish));
  }

  c10d::Backend& cpu() const { return *shared_->backends.cpu; }
  c10d::Backend& cuda() const {
    if (!shared_->backends.cuda) throw RunError("a collective on CUDA tensors needs NCCL, which this group lacks");
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
