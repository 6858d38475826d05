/// The stage that makes batches ahead of time on threads of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/concepts.hpp>
#include <ilme/data/document_sources.hpp>

namespace ilme::data {

/// A BatchSource that keeps up to `ahead` batches of its upstream ready. Order and content are the upstream's for any
/// number of threads (more than one needs a ParallelBatchSource). The state is the position after the batches that
/// `next()` gave, not after those read ahead. An exception of the upstream comes out of the `next()` whose batch it
/// hit. The threads start with the first `next()` and end with the object, whatever they are at.
template <BatchSource Upstream>
class Prefetched {
 public:
  Prefetched(Upstream upstream, std::size_t ahead, std::size_t threads = 1)
      : batches_per_epoch_(upstream.batches_per_epoch()),
        accumulate_(batches_per_step(upstream)),
        document_sources_(data::document_sources(upstream)),
        state_(upstream.state()),
        reader_(std::make_unique<Reader>(std::move(upstream), ahead, threads)) {
    if (ahead == 0) throw InputError("prefetched: 0 batches ahead, expected at least 1");
    if (threads == 0) throw InputError("prefetched: 0 threads, expected at least 1");
    if (threads > 1 && !ParallelBatchSource<Upstream>) {
      throw InputError("prefetched: ", threads, " threads, but the batches can only be made one after the other");
    }
  }

  std::optional<PackedBatch> next() {
    auto [batch, state] = reader_->take();
    state_ = std::move(state);
    return std::move(batch);
  }

  Json state() const { return state_; }

  void restore(const Json& state) { state_ = reader_->restore(state, state_); }

  std::int64_t batches_per_epoch() const noexcept { return batches_per_epoch_; }
  std::int64_t accumulate() const noexcept requires StepBatchSource<Upstream> { return accumulate_; }
  const std::vector<DocumentSource>& document_sources() const noexcept { return document_sources_; }

 private:
  struct Slot {
    std::optional<PackedBatch> batch;
    Json state;  // after this batch
    std::exception_ptr failure;
    bool ready = false;
  };

  /// What the threads share; it stays where it is when the stage moves.
  class Reader {
   public:
    Reader(Upstream upstream, std::size_t ahead, std::size_t threads)
        : upstream_(std::move(upstream)), ahead_(ahead), threads_(threads) {}
    ~Reader() { stop(); }

    std::pair<std::optional<PackedBatch>, Json> take() {
      std::unique_lock lock(mutex_);
      if (workers_.empty()) {
        for (std::size_t i = 0; i < threads_; ++i) workers_.emplace_back([this] { work(); });
      }
      changed_.wait(lock, [&] { return !slots_.empty() && slots_.front()->ready; });
      Slot& front = *slots_.front();
      if (front.failure) std::rethrow_exception(front.failure);  // it stays: every later call throws it too
      if (!front.batch) return {std::nullopt, front.state};      // the end stays too
      std::pair<std::optional<PackedBatch>, Json> result{std::move(front.batch), std::move(front.state)};
      slots_.pop_front();
      lock.unlock();
      changed_.notify_all();
      return result;
    }

    /// Throws what the upstream's restore throws; then the position is `current` again.
    Json restore(const Json& state, const Json& current) {
      stop();
      try {
        upstream_.restore(state);
      } catch (...) {
        upstream_.restore(current);
        throw;
      }
      return upstream_.state();
    }

   private:
    void stop() {
      {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
      }
      changed_.notify_all();
      workers_.clear();  // joins
      slots_.clear();
      ended_ = stopping_ = false;
    }

    void work() {
      for (;;) {
        // One thread at a time moves the upstream on, so the slots' order is the batches'; making them is parallel.
        std::unique_lock turn(turn_);
        Slot* slot = nullptr;
        {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [&] { return stopping_ || (!ended_ && slots_.size() < ahead_); });
          if (stopping_) return;
          slot = slots_.emplace_back(std::make_unique<Slot>()).get();
        }
        try {
          if constexpr (ParallelBatchSource<Upstream>) {
            auto claim = upstream_.claim();
            slot->state = upstream_.state();
            turn.unlock();
            if (claim) slot->batch = (*claim)();
          } else {
            slot->batch = upstream_.next();
            slot->state = upstream_.state();
          }
        } catch (...) {
          slot->failure = std::current_exception();
        }
        {
          const std::lock_guard lock(mutex_);
          if (!slot->batch) ended_ = true;
          slot->ready = true;
        }
        changed_.notify_all();
      }
    }

    Upstream upstream_;
    std::size_t ahead_, threads_;
    std::mutex turn_;   // whoever holds it may use upstream_; taken before mutex_
    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::deque<std::unique_ptr<Slot>> slots_;  // in the order of the batches; an unready one is being made
    bool stopping_ = false, ended_ = false;
    std::vector<std::jthread> workers_;
  };

  std::int64_t batches_per_epoch_, accumulate_;
  std::vector<DocumentSource> document_sources_;
  Json state_;
  std::unique_ptr<Reader> reader_;
};

struct PrefetchStage {
  std::size_t ahead, threads;
};

/// `batches | prefetched(4)`: up to 4 batches are made ahead, by one thread or several.
inline PrefetchStage prefetched(std::size_t ahead, std::size_t threads = 1) { return {ahead, threads}; }

template <BatchSource Upstream>
Prefetched<Upstream> operator|(Upstream upstream, const PrefetchStage& stage) {
  return Prefetched<Upstream>(std::move(upstream), stage.ahead, stage.threads);
}

}  // namespace ilme::data
