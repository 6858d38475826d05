/// Attention of new tokens to cached ones on the CPU: the function that goes into the table.
#pragma once

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

const char* cached_attention_forward(const CachedAttentionForward&);

}  // namespace ilme::kernels::cpu
