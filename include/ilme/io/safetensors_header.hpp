/// The header of a safetensors file, parsed strictly and without torch.
///
/// Format (https://github.com/huggingface/safetensors#format): 8 bytes little-endian length N, N bytes of JSON
/// `{"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {"key": "text"}}`,
/// then the data, which the offsets must cover without holes or overlaps.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>

namespace ilme::io {

/// A longer header is refused, as the reference library does.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Name in the file and bytes per element of each data type that we read and write.
struct SafetensorsDtype {
  std::string_view name;
  std::uint64_t size;
};
inline constexpr std::array<SafetensorsDtype, 15> kSafetensorsDtypes{{{"F64", 8},
                                                                      {"F32", 4},
                                                                      {"F16", 2},
                                                                      {"BF16", 2},
                                                                      {"I64", 8},
                                                                      {"I32", 4},
                                                                      {"I16", 2},
                                                                      {"I8", 1},
                                                                      {"U8", 1},
                                                                      {"BOOL", 1},
                                                                      {"U16", 2},
                                                                      {"U32", 4},
                                                                      {"U64", 8},
                                                                      {"F8_E4M3", 1},
                                                                      {"F8_E5M2", 1}}};

/// Bytes per element; nothing for a name that is not in kSafetensorsDtypes.
inline std::optional<std::uint64_t> safetensors_dtype_size(std::string_view name) {
  for (const auto& dtype : kSafetensorsDtypes) {
    if (dtype.name == name) return dtype.size;
  }
  return std::nullopt;
}

/// One tensor: bytes [begin, end) of the data, counted from the end of the header, row-major.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;        ///< in the order of their data
  std::map<std::string, std::string> metadata;  ///< of "__metadata__"
  std::uint64_t data_begin = 0;                 ///< where the data starts in the file
};

/// A tensor's name as it may stand in a one-line error: quoted, escaped, shortened.
inline std::string quoted_name(const std::string& name) { return ilme::detail::short_dump(Json(name)); }

namespace detail {

/// Follows the JSON events of a header; anything unexpected ends the parse with a text in `fault`.
class HeaderEvents final : public nlohmann::json_sax<Json> {
 public:
  SafetensorsHeader header;
  std::string fault;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return unexpected(concat("the negative number ", value)); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + text.substr(0, 40));
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::shape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return fail("a dimension of " + std::to_string(value) + " is too large");
      }
      entry().shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (state_ == State::offsets && offset_count_ < 2) {
      (offset_count_++ == 0 ? entry().begin : entry().end) = value;
      return true;
    }
    return unexpected(state_ == State::offsets ? "a third offset" : concat("the number ", value));
  }

  bool string(string_t& value) override {
    if (state_ == State::dtype) {
      if (!safetensors_dtype_size(value)) return fail("unknown dtype " + quoted_name(value));
      entry().dtype = std::move(value);
      state_ = State::entry;
      return true;
    }
    if (state_ == State::metadata_text) {
      header.metadata.emplace(metadata_key_, std::move(value));
      state_ = State::metadata;
      return true;
    }
    return unexpected("the text " + quoted_name(value));
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::start:
        state_ = State::root;
        return true;
      case State::metadata_value:
        state_ = State::metadata;
        return true;
      case State::entry_value:
        state_ = State::entry;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(string_t& value) override {
    if (state_ == State::root) {
      if (!names_.insert(value).second) return fail("the name " + quoted_name(value) + " appears twice");
      if (value == "__metadata__") {
        state_ = State::metadata_value;
      } else {
        header.tensors.emplace_back().name = std::move(value);
        has_dtype_ = has_shape_ = has_offsets_ = false;
        state_ = State::entry_value;
      }
      return true;
    }
    if (state_ == State::metadata) {
      if (header.metadata.contains(value)) return fail("the metadata key " + quoted_name(value) + " appears twice");
      metadata_key_ = std::move(value);
      state_ = State::metadata_text;
      return true;
    }
    if (value == "dtype") return field(has_dtype_, value, State::dtype);
    if (value == "shape") return field(has_shape_, value, State::shape_value);
    if (value == "data_offsets") return field(has_offsets_, value, State::offsets_value);
    return fail("unknown key " + quoted_name(value));
  }

  bool end_object() override {
    if (state_ == State::entry) {
      if (!has_dtype_) return fail("dtype is missing");
      if (!has_shape_) return fail("shape is missing");
      if (!has_offsets_) return fail("data_offsets is missing");
      state_ = State::root;
    } else {
      state_ = state_ == State::metadata ? State::root : State::end;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::shape_value) {
      state_ = State::shape;
      return true;
    }
    if (state_ == State::offsets_value) {
      state_ = State::offsets;
      offset_count_ = 0;
      return true;
    }
    return unexpected("an array");
  }

  bool end_array() override {
    if (state_ == State::offsets && offset_count_ != 2) return fail("data_offsets must hold two numbers");
    state_ = State::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    if (fault.empty()) fault = concat("the header is not valid JSON near byte ", position);
    return false;
  }

 private:
  enum class State {
    start,
    root,
    metadata_value,
    metadata,
    metadata_text,
    entry_value,
    entry,
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    end
  };

  SafetensorsEntry& entry() { return header.tensors.back(); }

  bool field(bool& seen, const std::string& name, State next) {
    if (std::exchange(seen, true)) return fail(name + " appears twice");
    state_ = next;
    return true;
  }

  bool unexpected(const std::string& found) {
    switch (state_) {
      case State::start:
        return fail("the header must be a JSON object, found " + found);
      case State::metadata_value:
        return fail("__metadata__ must be an object, found " + found);
      case State::metadata_text:
        return fail("__metadata__ key " + quoted_name(metadata_key_) + " must hold text, found " + found);
      case State::entry_value:
        return fail("expected an object, found " + found);
      case State::dtype:
        return fail("dtype must be text, found " + found);
      case State::shape_value:
      case State::shape:
        return fail("shape must be a list of whole numbers, found " + found);
      default:
        return fail("data_offsets must be two whole numbers, found " + found);
    }
  }

  bool fail(const std::string& what) {
    const bool in_tensor = state_ >= State::entry_value && state_ != State::end;
    fault = in_tensor ? concat("tensor ", quoted_name(entry().name), ": ", what) : what;
    return false;
  }

  State state_ = State::start;
  std::unordered_set<std::string> names_;
  std::string metadata_key_;
  int offset_count_ = 0;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
};

/// Bytes of a tensor of this shape; nothing on overflow.
inline std::optional<std::uint64_t> byte_count(const std::vector<std::int64_t>& shape, std::uint64_t element_size) {
  std::uint64_t bytes = element_size;
  for (const std::int64_t extent : shape) {
    // Strides of a tensor with a zero dimension count the others too, so these must not overflow either.
    if (extent > 0 && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) return std::nullopt;
  }
  if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return std::find(shape.begin(), shape.end(), 0) == shape.end() ? bytes : 0;
}

}  // namespace detail

/// Parses the header of a whole file `bytes`. `where` (the file's name) opens every error. Throws InputError unless the
/// header is exact: known dtypes, sizes equal to shape times element, data covered once and to the last byte, no name
/// twice. Allocates nothing that the file's own size does not bound.
inline SafetensorsHeader parse_safetensors_header(std::string_view bytes, const std::string& where) {
  if (bytes.starts_with("version https://git-lfs")) {
    throw InputError(where, ": is a Git LFS pointer, not a safetensors file; fetch it with git lfs pull");
  }
  if (bytes.size() < 8) {
    throw InputError(where, ": not a safetensors file: ", bytes.size(), " bytes, expected at least 8 for the length");
  }
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  if (length > kMaxSafetensorsHeader) {
    throw InputError(where, ": not a safetensors file: header length ", length, " is above the limit of ",
                     kMaxSafetensorsHeader);
  }
  if (length > bytes.size() - 8) {
    throw InputError(where, ": the file is cut off: the header needs ", length, " bytes, the file has ",
                     bytes.size() - 8, " after the length");
  }
  const std::string_view json = bytes.substr(8, length);
  if (!json.starts_with('{')) throw InputError(where, ": not a safetensors file: the header does not start with '{'");
  if (json.find('\0') != std::string_view::npos) throw InputError(where, ": the header holds a zero byte");

  detail::HeaderEvents events;
  if (!Json::sax_parse(json.begin(), json.end(), &events)) throw InputError(where, ": ", events.fault);
  SafetensorsHeader header = std::move(events.header);
  header.data_begin = 8 + length;

  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  const std::uint64_t data_size = bytes.size() - header.data_begin;
  std::uint64_t position = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    const std::string name = "tensor " + quoted_name(entry.name);
    if (entry.end < entry.begin) throw InputError(where, ": ", name, ": its data ends before it begins");
    if (entry.begin != position) {
      throw InputError(where, ": ", name, ": data begins at ", entry.begin, ", expected ", position,
                       entry.begin < position ? " (overlaps another tensor)" : " (a hole before it)");
    }
    const auto expected = detail::byte_count(entry.shape, *safetensors_dtype_size(entry.dtype));
    if (!expected) throw InputError(where, ": ", name, ": the shape is too large to count its bytes");
    if (entry.end - entry.begin != *expected) {
      throw InputError(where, ": ", name, ": has ", entry.end - entry.begin, " bytes, its shape and dtype need ",
                       *expected);
    }
    position = entry.end;
    if (position > data_size) {
      throw InputError(where, ": the file is cut off: ", name, " ends at ", position, " of ", data_size, " data bytes");
    }
  }
  if (position != data_size) {
    throw InputError(where, ": ", data_size - position, " bytes after the last tensor belong to none");
  }
  return header;
}

/// Puts tensors (dtype and shape set) in the order of their data, by element size, largest first, so that each is
/// aligned, and by the given order within a size; and sets their offsets.
inline void lay_out_safetensors(std::vector<SafetensorsEntry>& tensors) {
  const auto size = [](const SafetensorsEntry& entry) { return safetensors_dtype_size(entry.dtype).value_or(0); };
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](const SafetensorsEntry& a, const SafetensorsEntry& b) { return size(a) > size(b); });
  std::uint64_t position = 0;
  for (SafetensorsEntry& entry : tensors) {
    entry.begin = position;
    position += detail::byte_count(entry.shape, size(entry)).value_or(0);
    entry.end = position;
  }
}

/// The length and the JSON for `tensors` (with their offsets set) and `metadata`, padded with spaces so that the data
/// starts at a multiple of 8. Throws InputError for a name that is not valid UTF-8, given twice, or "__metadata__".
inline std::string write_safetensors_header(const std::vector<SafetensorsEntry>& tensors,
                                            const std::map<std::string, std::string>& metadata,
                                            const std::string& where) {
  // A plain string is far quicker than one big ordered_json, whose insertion searches all keys.
  const auto text = [&](const std::string& value) {
    try {
      return Json(value).dump();
    } catch (const Json::exception&) {
      throw InputError(where, ": the name ", quoted_name(value), " is not valid UTF-8");
    }
  };
  std::unordered_set<std::string_view> names{"__metadata__"};
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) json += text(key) + ":" + text(value) + ",";
    json.back() = '}';
    json += ',';
  }
  for (const SafetensorsEntry& entry : tensors) {
    if (!names.insert(entry.name).second) {
      throw InputError(where, ": the tensor name ", quoted_name(entry.name), " is taken");
    }
    json += text(entry.name) + ":{\"dtype\":\"" + entry.dtype + "\",\"shape\":" + Json(entry.shape).dump() +
            ",\"data_offsets\":[" + std::to_string(entry.begin) + "," + std::to_string(entry.end) + "]},";
  }
  if (json.back() == ',') json.pop_back();
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxSafetensorsHeader) {
    throw InputError(where, ": the header would have ", json.size(), " bytes, above the limit of ",
                     kMaxSafetensorsHeader);
  }
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return out + json;
}

}  // namespace ilme::io
