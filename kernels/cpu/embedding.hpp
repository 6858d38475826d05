/// The gradient of a token embedding on the CPU: the function that goes into the table.
#pragma once

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

const char* embedding_backward(const EmbeddingBackward&);

}  // namespace ilme::kernels::cpu
