// The table of what is compiled in.
#include <ilme/kernels/abi.hpp>

#include "cpu/adamw.hpp"
#include "cpu/attention.hpp"
#include "cpu/cached_attention.hpp"
#include "cpu/cross_entropy.hpp"
#include "cpu/distillation.hpp"
#include "cpu/embedding.hpp"
#include "cpu/linear.hpp"
#include "cpu/product.hpp"
#include "cpu/rms_norm.hpp"
#include "cpu/rope.hpp"
#include "cpu/swiglu.hpp"
#if ILME_KERNELS_CUDA
#include "cuda/rms_norm.hpp"
#endif

extern "C" void ilme_kernels_fill(ilme::kernels::Table* table) {
  namespace cpu = ilme::kernels::cpu;
  table->cpu = {.rms_norm_forward = cpu::rms_norm_forward,
                .rms_norm_backward = cpu::rms_norm_backward,
                .rms_norm_backward_workspace = cpu::rms_norm_backward_workspace,
                .swiglu_forward = cpu::swiglu_forward,
                .swiglu_backward = cpu::swiglu_backward,
                .rope = cpu::rope,
                .embedding_backward = cpu::embedding_backward,
                .linear_forward = cpu::linear_forward,
                .has_matrix_product = cpu::has_matrix_product,
                .matrix_product = cpu::matrix_product,
                .cached_attention_forward = cpu::cached_attention_forward,
                .attention_forward = cpu::attention_forward,
                .attention_backward = cpu::attention_backward,
                .cross_entropy_forward = cpu::cross_entropy_forward,
                .cross_entropy_backward = cpu::cross_entropy_backward,
                .distillation = cpu::distillation,
                .adamw_step = cpu::adamw_step};
#if ILME_KERNELS_CUDA
  namespace cuda = ilme::kernels::cuda;
  table->cuda = {.rms_norm_forward = cuda::rms_norm_forward,
                 .rms_norm_backward = cuda::rms_norm_backward,
                 .rms_norm_backward_workspace = cuda::rms_norm_backward_workspace};
#endif
}
