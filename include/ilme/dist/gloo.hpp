/// Groups over Gloo (https://github.com/pytorch/gloo), which libtorch holds: tensors in main memory, over TCP.
///
/// libtorch exports c10d::ProcessGroupGloo, but its package has none of the Gloo headers that the class's header
/// includes. Gloo's own (Debian: libgloo-dev) are taken when the compiler finds them, else the declarations in
/// dist/gloo_declarations, which CMake puts last on the include path; without CMake: `-idirafter` that folder. Both
/// fit: only shared pointers to Gloo's objects pass through here.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO  // without it the next header is empty
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <ilme/dist/group.hpp>

namespace ilme::dist {

/// Makes groups over Gloo for a process that listens at `address` (of this host: an IP address or a name), or on the
/// network interface `interface` if that is not empty. Peers are found through `store`. A collective that takes longer
/// than `timeout` fails.
inline MakeBackends gloo_backends(c10::intrusive_ptr<c10d::Store> store, const std::string& address,
                                  const std::string& interface, std::chrono::milliseconds timeout) {
  using c10d::ProcessGroupGloo;
  const std::shared_ptr<gloo::transport::Device> device = interface.empty()
                                                              ? ProcessGroupGloo::createDeviceForHostname(address)
                                                              : ProcessGroupGloo::createDeviceForInterface(interface);
  return [store = std::move(store), device, timeout](const std::string& name, int rank, int size) -> Backends {
    auto options = ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(device);
    auto keys = c10::make_intrusive<c10d::PrefixStore>(name, store);
    return {c10::make_intrusive<ProcessGroupGloo>(keys, rank, size, options), nullptr};
  };
}

}  // namespace ilme::dist
