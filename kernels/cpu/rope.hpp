/// Rotary position embedding on the CPU: the function that goes into the table.
#pragma once

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

const char* rope(const Rope&);

}  // namespace ilme::kernels::cpu
