/// AdamW on the CPU: the function that goes into the table.
#pragma once

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

const char* adamw_step(const AdamWStep&);

}  // namespace ilme::kernels::cpu
