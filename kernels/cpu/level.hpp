/// The instruction sets that the CPU kernels are compiled for, and the one that this processor runs best.
#pragma once

namespace ilme::kernels::cpu {

enum class Level { baseline, avx2, avx512, avx512_bf16 };

inline Level level() {
#if defined(__x86_64__)
  static const Level kLevel = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      return __builtin_cpu_supports("avx512bf16") ? Level::avx512_bf16 : Level::avx512;
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")
               ? Level::avx2
               : Level::baseline;
  }();
  return kLevel;
#else
  return Level::baseline;
#endif
}

}  // namespace ilme::kernels::cpu
