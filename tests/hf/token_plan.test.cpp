#include "hf/small_models.hpp"

#include <ilme/hf/token_plan.hpp>

using namespace ilme;
using hf::RowSource;

namespace {

text::TokenId id_of(const text::Tokenizer& tokenizer, std::string_view token) {
  const auto id = tokenizer.token_to_id(token);
  REQUIRE(id);
  return *id;
}

/// The old tokens that the row of `token` is made of.
std::vector<std::string> origin(const hf::TokenPlan& plan, const text::Tokenizer& old_tokenizer,
                                const text::Tokenizer& new_tokenizer, std::string_view token) {
  const auto& row = plan.rows()[id_of(new_tokenizer, token)];
  std::vector<std::string> names;
  if (row.source == RowSource::averaged) {
    for (const auto piece : plan.pieces(row)) names.emplace_back(old_tokenizer.token_bytes(piece));
  } else if (row.source != RowSource::fresh) {
    names.emplace_back(old_tokenizer.token_bytes(row.from));
  }
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("token plan: equal bytes are copied, others are made of the old pieces of their bytes") {
  const text::Tokenizer before(
      test::small_tokenizer_model({"<|endoftext|>"}, {{" ", "k"}, {" k", "i"}, {"k", "i"}, {"t", "a"}}));
  const text::Tokenizer after(test::small_tokenizer_model(
      {"<|endoftext|>"},
      {{"k", "i"}, {"ki", "t"}, {" ", "ki"}, {" ki", "t"}, {"\xC9", "\x99"}, {"l", "\xC9\x99"}, {"l", "\xC9"}}));
  const auto plan = hf::TokenPlanner(before, after, 10000).plan();
  const auto from = [&](std::string_view token) { return origin(plan, before, after, token); };
  CHECK(from("ki") == Names{"ki"});
  CHECK(from("kit") == Names{"ki", "t"});
  CHECK(from(" ki") == Names{" ki"});
  CHECK(from(" kit") == Names{" ki", "t"});  // with its space, not "ki" and "t"
  CHECK(from("lə") == Names{"l", "\xC9", "\x99"});
  CHECK(from("l\xC9") == Names{"l", "\xC9"});  // no valid UTF-8
  CHECK(from("\x99") == Names{"\x99"});
  CHECK(plan.count(RowSource::copied) == 1 + 256 + 2);
  CHECK(plan.count(RowSource::averaged) == 5);
  CHECK(plan.new_id(id_of(before, "ta")) == std::nullopt);
  CHECK(plan.new_id(id_of(before, " ki")) == id_of(after, " ki"));
}

TEST_CASE("token plan: a normaliser, a prefix space and missing bytes of the old tokenizer") {
  const auto new_model = test::small_tokenizer_model({}, {{" ", "A"}, {" A", "b"}, {"A", "b"}});
  const text::Tokenizer after(new_model);
  auto model = test::small_tokenizer_model({}, {{"a", "b"}, {" ", "a"}});
  model.normalizer = text::Normalizer::from_json(
      {{"type", "Sequence"},
       {"normalizers", {{{"type", "Lowercase"}}, {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}}}},
      "test");
  {
    const text::Tokenizer before(model);
    const auto plan = hf::TokenPlanner(before, after, 10000).plan();
    CHECK(origin(plan, before, after, "Ab") == Names{"ab"});
    CHECK(origin(plan, before, after, " Ab") == Names{" ", "ab"});
    CHECK(origin(plan, before, after, " ") == Names{" "});
  }
  model = test::small_tokenizer_model({}, {{" ", "A"}});
  model.pre_tokenizer = text::PreTokenizer::from_json(
      {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}, "test");
  {
    const text::Tokenizer before(model);
    const auto plan = hf::TokenPlanner(before, after, 10000).plan();
    CHECK(origin(plan, before, after, "Ab") == Names{"A", "b"});  // no space that the token does not have
    CHECK(origin(plan, before, after, " Ab") == Names{" A", "b"});
  }
  model = test::small_tokenizer_model({}, {});
  model.tokens[1] = "";  // as SmolLM2, which has no token for some control characters
  {
    const text::Tokenizer before(model);
    const auto plan = hf::TokenPlanner(before, after, 10000).plan();
    CHECK(plan.rows()[1].source == RowSource::fresh);
    CHECK(plan.rows()[2].source == RowSource::copied);
  }
  // Old ids beyond the model's rows do not count.
  const auto cut = hf::TokenPlanner(after, after, 257).plan();
  CHECK(cut.rows()[256].source == RowSource::copied);
  CHECK(cut.rows()[258].source == RowSource::fresh);
}

TEST_CASE("token plan: special tokens by name, then by what they are for") {
  const text::Tokenizer chatml(test::small_tokenizer_model({"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>"},
                                                           {}, {{"eos_token", "<|im_end|>"}}));
  const text::Tokenizer llama(
      test::small_tokenizer_model({"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                   "<|eot_id|>", "<tool>", "<extra>", "<|finetune_right_pad_id|>"},
                                  {}, {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|eot_id|>"}}));
  {
    const auto plan = hf::TokenPlanner(chatml, llama, 10000, {.bos = 1}).plan();
    const auto from = [&](std::string_view token) { return origin(plan, chatml, llama, token); };
    CHECK(from("<|begin_of_text|>") == Names{"<|im_start|>"});  // the configuration's BOS
    CHECK(from("<|end_of_text|>") == Names{"<|endoftext|>"});   // not the declared EOS, which ends a turn
    CHECK(from("<|start_header_id|>") == Names{"<|im_start|>"});
    CHECK(from("<|end_header_id|>") == Names{"\n"});
    CHECK(from("<|eot_id|>") == Names{"<|im_end|>"});
    CHECK(from("<tool>") == Names{"<tool>"});
    CHECK(from("<extra>").empty());
    CHECK(from("<|finetune_right_pad_id|>") == Names{"<|endoftext|>"});
    CHECK(plan.count(RowSource::by_role) == 5);
    CHECK(plan.new_id(id_of(chatml, "<|im_end|>")) == id_of(llama, "<|eot_id|>"));
  }
  {
    const auto plan = hf::TokenPlanner(llama, chatml, 10000).plan();
    const auto from = [&](std::string_view token) { return origin(plan, llama, chatml, token); };
    CHECK(from("<|endoftext|>") == Names{"<|end_of_text|>"});
    CHECK(from("<|im_start|>") == Names{"<|start_header_id|>"});
    CHECK(from("<|im_end|>") == Names{"<|eot_id|>"});
  }
  // Names that nobody knows, but a declaration does.
  const text::Tokenizer own(test::small_tokenizer_model(
      {"[başla]", "[son]", "[boş]"}, {}, {{"bos_token", "[başla]"}, {"eos_token", "[son]"}, {"unk_token", "[boş]"}}));
  const text::Tokenizer base(test::small_tokenizer_model({"<s>", "</s>", "<unk>"}, {}));
  const auto plan = hf::TokenPlanner(base, own, 10000).plan();
  CHECK(origin(plan, base, own, "[başla]") == Names{"<s>"});
  CHECK(origin(plan, base, own, "[son]") == Names{"</s>"});
  CHECK(origin(plan, base, own, "[boş]") == Names{"<unk>"});
  // A control token is never taken from text of the same letters, nor text from a control token.
  auto text_model = test::small_tokenizer_model({}, {{"<", "s"}, {"<s", ">"}});
  const text::Tokenizer letters(text_model);
  CHECK(hf::TokenPlanner(letters, base, 10000).plan().rows()[0].source == RowSource::fresh);
  const auto back = hf::TokenPlanner(base, letters, 10000).plan();
  CHECK(origin(back, base, letters, "<s>") == Names{"<", "s", ">"});
}

TEST_CASE("token plan: an extension keeps every id, also of two tokens with the same bytes") {
  auto model = test::small_tokenizer_model({"<s>"}, {{"a", "b"}});
  model.tokens.push_back("ab");  // once more
  model.tokens.push_back("");    // an id without a token
  const text::Tokenizer base(model);
  model.tokens.push_back("abc");
  const text::Tokenizer extended(model);
  const auto plan = hf::TokenPlanner(base, extended, 10000).plan();
  for (text::TokenId id = 0; id < base.vocabulary_size(); ++id) {
    if (base.token_bytes(id).empty()) {
      CHECK(plan.rows()[id].source == RowSource::unused);
    } else {
      CHECK(plan.rows()[id].source == RowSource::copied);
      CHECK(plan.rows()[id].from == id);
    }
  }
  CHECK(origin(plan, base, extended, "abc") == Names{"ab", "c"});
}
