/// Stand-in for the header of this name of Gloo (https://github.com/pytorch/gloo), see ilme/dist/gloo.hpp.
#pragma once

#include <chrono>

namespace gloo {

namespace transport {
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};
}  // namespace transport

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
