/// Distillation of rows of logits on the CPU: the function that goes into the table.
#pragma once

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

const char* distillation(const Distillation&);

}  // namespace ilme::kernels::cpu
