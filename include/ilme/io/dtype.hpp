/// Names of data types: safetensors' ("BF16") and PyTorch's ("bfloat16").
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

#include <ilme/core/error.hpp>

namespace ilme::io {

namespace detail {

struct DtypeNames {
  at::ScalarType type;
  std::string_view safetensors, torch;
};

inline constexpr std::array<DtypeNames, 15> kDtypeNames{{{at::ScalarType::Double, "F64", "float64"},
                                                         {at::ScalarType::Float, "F32", "float32"},
                                                         {at::ScalarType::Half, "F16", "float16"},
                                                         {at::ScalarType::BFloat16, "BF16", "bfloat16"},
                                                         {at::ScalarType::Long, "I64", "int64"},
                                                         {at::ScalarType::Int, "I32", "int32"},
                                                         {at::ScalarType::Short, "I16", "int16"},
                                                         {at::ScalarType::Char, "I8", "int8"},
                                                         {at::ScalarType::Byte, "U8", "uint8"},
                                                         {at::ScalarType::Bool, "BOOL", "bool"},
                                                         {at::ScalarType::UInt16, "U16", "uint16"},
                                                         {at::ScalarType::UInt32, "U32", "uint32"},
                                                         {at::ScalarType::UInt64, "U64", "uint64"},
                                                         {at::ScalarType::Float8_e4m3fn, "F8_E4M3", "float8_e4m3fn"},
                                                         {at::ScalarType::Float8_e5m2, "F8_E5M2", "float8_e5m2"}}};

}  // namespace detail

/// "BF16" for at::kBFloat16; "" for a type that safetensors files do not hold.
inline std::string_view safetensors_dtype_name(at::ScalarType type) {
  for (const auto& names : detail::kDtypeNames) {
    if (names.type == type) return names.safetensors;
  }
  return {};
}

/// at::kBFloat16 for "BF16". Throws InputError for a name that is none.
inline at::ScalarType scalar_type_of_safetensors(std::string_view name) {
  for (const auto& names : detail::kDtypeNames) {
    if (names.safetensors == name) return names.type;
  }
  throw InputError("unknown safetensors dtype \"", name, "\"");
}

/// "bfloat16" for at::kBFloat16, as PyTorch and config.json write it.
inline std::string torch_dtype_name(at::ScalarType type) {
  for (const auto& names : detail::kDtypeNames) {
    if (names.type == type) return std::string(names.torch);
  }
  return c10::toString(type);
}

}  // namespace ilme::io
