/// Groups over NCCL for CUDA tensors: where libtorch has CUDA (ILME_CUDA=ON) and nccl.h is found.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#if defined(ILME_WITH_CUDA) && __has_include(<nccl.h>)
#define ILME_WITH_NCCL 1
#ifndef USE_C10D_NCCL
#define USE_C10D_NCCL  // without it the next header is empty
#endif
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <ilme/dist/group.hpp>

namespace ilme::dist {

/// `make`, with NCCL beside its backend for tensors in main memory; `make` itself where there is no NCCL. Each rank
/// must use a GPU of its own: its tensors' device decides. A CUDA collective that takes longer than `timeout` ends the
/// process (c10d's watchdog).
inline MakeBackends with_nccl(MakeBackends make, [[maybe_unused]] c10::intrusive_ptr<c10d::Store> store,
                              [[maybe_unused]] std::chrono::milliseconds timeout) {
#ifdef ILME_WITH_NCCL
  return [make = std::move(make), store = std::move(store), timeout](const std::string& name, int rank, int size) {
    Backends backends = make(name, rank, size);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    auto keys = c10::make_intrusive<c10d::PrefixStore>(name + "/nccl", store);
    backends.cuda = c10::make_intrusive<c10d::ProcessGroupNCCL>(keys, rank, size, options);
    return backends;
  };
#else
  return make;
#endif
}

}  // namespace ilme::dist
