/// Packed causal attention on the CPU (see kernels/abi.hpp).
#pragma once

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

const char* attention_forward(const AttentionForward& a);
const char* attention_backward(const AttentionBackward& a);

}  // namespace ilme::kernels::cpu
