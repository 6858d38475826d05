#pragma once

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

bool has_matrix_product(DType dtype);
const char* matrix_product(const MatrixProduct& arguments);

}  // namespace ilme::kernels::cpu
