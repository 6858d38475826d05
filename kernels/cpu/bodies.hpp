/// The bodies of a kernel: a struct of functions for each instruction set that the build compiles, with a name such as
/// kNameAvx2.
#pragma once

#if defined(__x86_64__)
#define ILME_DECLARE_BODIES(Rows, name) extern const Rows name##Baseline, name##Avx2, name##Avx512, name##Avx512Bf16
/// The body that this processor runs fastest; with level.hpp.
#define ILME_FASTEST_BODY(name)                     \
  (level() == Level::avx512_bf16 ? name##Avx512Bf16 \
   : level() == Level::avx512    ? name##Avx512     \
   : level() == Level::avx2      ? name##Avx2       \
                                 : name##Baseline)
#else
#define ILME_DECLARE_BODIES(Rows, name) extern const Rows name##Baseline
#define ILME_FASTEST_BODY(name) name##Baseline
#endif
