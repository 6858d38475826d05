/// Settings of the process that computing on the CPU gains a lot from.
#pragma once

#include <cstdlib>
#include <initializer_list>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace ilme {

/// Tells glibc to keep large freed blocks for the process instead of giving them back to the kernel. ATen's CPU
/// allocator does not cache: without this every large temporary is page-faulted and zeroed anew, which costs a training
/// step up to a third of its time. The price is that memory once used stays with the process. Blocks of 512 MiB and
/// more, such as the gradient of a large head, do go back: they would seldom find their old place, cut up by smaller
/// ones, and the process would grow by their size (a step of a model with 128,256 x 2,048 in the head by 1.5 GB), while
/// their page faults are a hundredth of a step. Does nothing on other C libraries.
///
/// Also bounds what oneDNN keeps of bf16 matrix products: a plan for each shape, with memory of about the weight's
/// size. The numbers of rows differ from batch to batch, so that by default (1,024 plans) a run grows for hundreds of
/// steps (a model of 135M parameters by 0.2 GB a step). The environment variables win. Call it first in main().
inline void reuse_large_allocations() {
#if defined(__GLIBC__)
  ::mallopt(M_MMAP_THRESHOLD, 512 << 20);
  ::mallopt(M_TRIM_THRESHOLD, -1);  // never
  ::mallopt(M_TOP_PAD, 64 << 20);
#endif
  for (const char* cache : {"LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"}) {
    ::setenv(cache, "64", /*overwrite=*/0);
  }
}

}  // namespace ilme
