/// The product of few rows with a weight on the CPU: the function that goes into the table.
#pragma once

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

const char* linear_forward(const LinearForward&);

}  // namespace ilme::kernels::cpu
