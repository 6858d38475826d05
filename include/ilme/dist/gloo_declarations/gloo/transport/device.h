/// Stand-in for the header of this name of Gloo (https://github.com/pytorch/gloo), see ilme/dist/gloo.hpp.
#pragma once

namespace gloo::transport {
class Device;
}
