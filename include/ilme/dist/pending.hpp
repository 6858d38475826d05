/// A collective under way.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ilme/core/error.hpp>
#include <ilme/dist/observer.hpp>

namespace ilme::dist {

/// A collective under way. Until wait() returns its tensors must not be touched.
class Pending {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  /// Nothing is under way.
  Pending() = default;
  /// Begins the works that post(Works&) appends; ends when all have, and `finish` was called.
  template <class Post>
  Pending(std::shared_ptr<const Membership> group, const char* collective, Post&& post,
          std::function<void()> finish = {})
      : group_(std::move(group)), collective_(collective), finish_(std::move(finish)) {
    if (group_->observer) number_ = group_->observer->enter(group_->name, group_->ranks);
    try {
      post(works_);
    } catch (const std::exception&) {  // what was posted before still reads and writes: wait() throws it, after those
      failure_ = std::current_exception();
    }
  }
  Pending(Pending&& other) noexcept { swap(other); }
  Pending& operator=(Pending&& other) noexcept {
    Pending(std::move(other)).swap(*this);
    return *this;
  }
  ~Pending() {
    if (works_.empty()) return;
    try {  // the tensors may go away now, so nobody may still read or write them
      const Waiting waiting(*this);
      join();
    } catch (const std::exception&) {
    }
  }

  /// Returns when the collective's output may be used. Throws RunError when it failed, because a peer is gone or did
  /// not come within the group's time-out.
  void wait() {
    std::function<void()> finish = std::move(finish_);
    finish_ = nullptr;
    if (!works_.empty() || failure_) {
      const Waiting waiting(*this);  // also while the reason of a failure is found
      try {
        join();
      } catch (const std::exception& error) {
        const std::string text = error.what();
        const std::string what = concat("rank ", group_->rank, " of ", group_->size, ": ", collective_,
                                        " failed: ", text.substr(0, text.find('\n')));
        throw RunError(group_->observer ? group_->observer->explain(what) : what);
      }
    }
    if (finish) finish();
  }

  /// Whether nothing is left to wait for: wait() was called, or there was nothing to do.
  bool done() const { return works_.empty() && !finish_ && !failure_; }

 private:
  struct Waiting {
    explicit Waiting(const Pending& pending) : pending_(pending) {
      if (observer() != nullptr) observer()->waiting(group().name, pending_.number_, pending_.collective_);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
      if (observer() != nullptr) observer()->waited(group().name, pending_.number_);
    }
    const Membership& group() const { return *pending_.group_; }
    Observer* observer() const { return pending_.group_ ? group().observer.get() : nullptr; }
    const Pending& pending_;
  };

  /// Waits for all works, though some fail; throws the first failure.
  void join() {
    std::exception_ptr failure = std::exchange(failure_, nullptr);
    for (const auto& work : works_) {
      try {
        work->wait();
      } catch (const std::exception&) {
        if (!failure) failure = std::current_exception();
      }
    }
    works_.clear();
    if (failure) std::rethrow_exception(failure);
  }

  void swap(Pending& other) noexcept {
    std::swap(group_, other.group_);
    std::swap(collective_, other.collective_);
    std::swap(number_, other.number_);
    std::swap(works_, other.works_);
    std::swap(finish_, other.finish_);
    std::swap(failure_, other.failure_);
  }

  std::shared_ptr<const Membership> group_;
  const char* collective_ = "";
  std::uint64_t number_ = 0;
  Works works_;
  std::function<void()> finish_;
  std::exception_ptr failure_;
};

}  // namespace ilme::dist
