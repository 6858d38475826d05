/// Cross-entropy of rows of logits on the CPU: the functions that go into the table.
#pragma once

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

const char* cross_entropy_forward(const CrossEntropy&);
const char* cross_entropy_backward(const CrossEntropy&);

}  // namespace ilme::kernels::cpu
