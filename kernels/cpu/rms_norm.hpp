/// RMSNorm on the CPU: the functions that go into the table.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

const char* rms_norm_forward(const RmsNormForward&);
const char* rms_norm_backward(const RmsNormBackward&);
std::int64_t rms_norm_backward_workspace(std::int64_t rows, std::int64_t size);

}  // namespace ilme::kernels::cpu
