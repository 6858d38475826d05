/// What the `post_processor` of a tokenizer.json puts around the ids of a text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text {

/// Ids that come before and after those of one text.
struct SingleTemplate {
  std::vector<TokenId> before, after;
};

namespace detail {

/// Adds what a TemplateProcessing puts around what is there. `vocabulary_size` bounds the ids.
inline void add_template(JsonObject& object, std::size_t vocabulary_size, SingleTemplate& out) {
  const std::string& where = object.where();
  const Json single = object.raw("single"), special_tokens = object.raw("special_tokens");
  object.raw("pair");  // kept for the writer, as is all of it
  if (!single.is_array()) {
    throw InputError(where, ": key \"single\" is ", ilme::detail::short_dump(single), ", expected an array");
  }
  SingleTemplate parts;
  bool after = false;
  for (const Json& json : single) {
    JsonObject piece(json, where + ": single");
    if (piece.has("Sequence")) {
      const Json sequence = piece.raw("Sequence");
      if (JsonObject(sequence, piece.where()).get<std::string>("id", "") != "A" || after) {
        throw InputError(where, ": single ", ilme::detail::short_dump(single),
                         " is not supported, expected the sequence A once");
      }
      after = true;
    } else {
      const Json special = piece.raw("SpecialToken");
      const auto name = JsonObject(special, piece.where()).require<std::string>("id");
      const Json entry = JsonObject(special_tokens, where + ": special_tokens").raw(name);
      const Json ids = JsonObject(entry, where + ": special token \"" + name + "\"").raw("ids");
      if (!ids.is_array()) throw InputError(where, ": special token \"", name, "\" has no array of ids");
      for (const Json& id : ids) {
        if (!id.is_number_unsigned() || id.get<std::size_t>() >= vocabulary_size) {
          throw InputError(where, ": special token \"", name, "\" has the id ", ilme::detail::short_dump(id),
                           ", expected one of the vocabulary of ", vocabulary_size, " tokens");
        }
        (after ? parts.after : parts.before).push_back(id.get<TokenId>());
      }
    }
    piece.refuse_unknown();
  }
  if (!after) throw InputError(where, ": single has no sequence A");
  out.before.insert(out.before.begin(), parts.before.begin(), parts.before.end());
  out.after.insert(out.after.end(), parts.after.begin(), parts.after.end());
}

inline void add_post_processor(const Json& json, const std::string& where, std::size_t vocabulary_size,
                               SingleTemplate& out) {
  if (json.is_null()) return;
  JsonObject object(json, where);
  const auto type = object.require<std::string>("type");
  if (type == "Sequence") {
    const Json members = object.raw("processors");
    if (!members.is_array()) {
      throw InputError(where, ": key \"processors\" is ", ilme::detail::short_dump(members), ", expected an array");
    }
    for (const Json& member : members) add_post_processor(member, where, vocabulary_size, out);
  } else if (type == "TemplateProcessing") {
    add_template(object, vocabulary_size, out);
  } else if (type == "ByteLevel") {
    for (const char* flag : {"add_prefix_space", "trim_offsets", "use_regex"}) object.get<bool>(flag, true);
  } else {
    throw InputError(where, " ", ilme::detail::short_dump(json),
                     " is not supported, expected TemplateProcessing, ByteLevel or a Sequence");
  }
  object.refuse_unknown();
}

}  // namespace detail

/// Reads a `post_processor`: null, TemplateProcessing, ByteLevel (which is about offsets only) or a Sequence of these.
/// Throws InputError that opens with `where` on any other, and on ids that are not below `vocabulary_size`.
inline SingleTemplate read_single_template(const Json& json, std::size_t vocabulary_size,
                                           const std::string& where = "post_processor") {
  SingleTemplate out;
  detail::add_post_processor(json, where, vocabulary_size, out);
  return out;
}

}  // namespace ilme::text
