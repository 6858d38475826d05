# ilme::torch from the folder of an unpacked wheel (ILME_TORCH_ROOT).
set(ILME_TORCH_ROOT "" CACHE PATH "The torch folder of an unpacked wheel")
add_library(ilme_torch INTERFACE)
add_library(ilme::torch ALIAS ilme_torch)
target_include_directories(ilme_torch SYSTEM INTERFACE ${ILME_TORCH_ROOT}/include ${ILME_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_libraries(ilme_torch INTERFACE ${ILME_TORCH_ROOT}/lib/libtorch_cpu.so ${ILME_TORCH_ROOT}/lib/libc10.so)
target_link_options(ilme_torch INTERFACE -Wl,-rpath,${ILME_TORCH_ROOT}/lib:/usr/local/cuda/lib64:/usr/local/cuda/lib -Wl,-rpath-link,/usr/local/cuda/lib64:/usr/local/cuda/lib)
