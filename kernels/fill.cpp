// The table of what is compiled in.
#include <ilme/kernels/abi.hpp>

#include "cpu/cached_attention.hpp"
#include "cpu/linear.hpp"
#include "cpu/rms_norm.hpp"
#if ILME_KERNELS_CUDA
#include "cuda/rms_norm.hpp"
#endif

extern "C" void ilme_kernels_fill(ilme::kernels::Table* table) {
  namespace cpu = ilme::kernels::cpu;
  table->cpu = {cpu::rms_norm_forward, cpu::rms_norm_backward, cpu::rms_norm_backward_workspace, cpu::linear_forward,
                cpu::cached_attention_forward};
#if ILME_KERNELS_CUDA
  namespace cuda = ilme::kernels::cuda;
  table->cuda = {cuda::rms_norm_forward, cuda::rms_norm_backward, cuda::rms_norm_backward_workspace, nullptr, nullptr};
#endif
}
