/// SwiGLU on the CPU: the functions that go into the table.
#pragma once

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

const char* swiglu_forward(const SwigluForward&);
const char* swiglu_backward(const SwigluBackward&);

}  // namespace ilme::kernels::cpu
