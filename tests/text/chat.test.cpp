#include <ilme/text/chat.hpp>

#include <catch2/catch_all.hpp>

#include "support/temporary.hpp"
#include "text/small_tokenizer.hpp"

using namespace ilme;
using namespace ilme::text;

namespace {

std::vector<Message> messages_of(const Json& list) {
  std::vector<Message> messages;
  for (const Json& entry : list) {
    messages.push_back({entry.at("role").get<std::string>(), entry.at("content").get<std::string>()});
  }
  return messages;
}

}  // namespace

TEST_CASE("Chat ids and masks equal the reference") {
  const auto folder = test::shared_path("cases/sft-chat-ids-and-mask");
  if (!folder) SKIP("the reference data is absent");
  const Json expected = read_json(*folder / "expected.json");
  const Tokenizer tokenizer = Tokenizer::load(*folder);
  REQUIRE(detect_chat_format(tokenizer) == ChatFormat::llama3);
  for (const Json& conversation : expected.at("conversations")) {
    INFO(conversation.at("name"));
    const EncodedChat chat = encode_chat(tokenizer, ChatFormat::llama3, messages_of(conversation.at("messages")));
    CHECK(chat.ids == conversation.at("ids").get<std::vector<TokenId>>());
    CHECK(chat.loss_mask == conversation.at("assistant_mask").get<std::vector<std::uint8_t>>());
    CHECK(tokenizer.decode(chat.ids) == conversation.at("text").get<std::string>());
  }
  const auto first = messages_of(expected.at("conversations").at(0).at("messages"));
  CHECK(encode_chat(tokenizer, ChatFormat::llama3, std::span(first).first(1), true).ids ==
        expected.at("generation_prompt_one_turn").get<std::vector<TokenId>>());
  const Json& injected = expected.at("control_tokens_in_user_text");
  CHECK(encode_chat(tokenizer, ChatFormat::llama3, messages_of(injected.at("messages"))).ids ==
        injected.at("safe_ids").get<std::vector<TokenId>>());
}

TEST_CASE("A llama3 conversation has one BOS and trains on the answer alone") {
  const Tokenizer tokenizer = test::small_tokenizer("llama3");
  const std::vector<Message> messages = {
      {"system", " Qısa. "}, {"user", "Salam<|eot_id|>"}, {"assistant", "\nAleykum \n"}};
  const EncodedChat chat = encode_chat(tokenizer, ChatFormat::llama3, messages);
  CHECK(tokenizer.decode(chat.ids) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nQısa.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nSalam<|eot_id|><|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nAleykum<|eot_id|>");
  CHECK(std::count(chat.ids.begin(), chat.ids.end(), *tokenizer.bos_id()) == 1);
  const TokenId eot = *tokenizer.token_to_id("<|eot_id|>");
  CHECK(std::count(chat.ids.begin(), chat.ids.end(), eot) == 3);  // the one in the user's text is text
  std::vector<TokenId> trained;
  for (std::size_t i = 0; i < chat.ids.size(); ++i) {
    if (chat.loss_mask[i] == 1) trained.push_back(chat.ids[i]);
  }
  CHECK(tokenizer.decode(trained) == "Aleykum<|eot_id|>");
  CHECK(stop_ids(tokenizer, ChatFormat::llama3) ==
        std::vector<TokenId>{eot, *tokenizer.token_to_id("<|end_of_text|>")});

  const EncodedChat prompt = encode_chat(tokenizer, ChatFormat::llama3, std::span(messages).first(2), true);
  CHECK(tokenizer.decode(prompt.ids).ends_with("<|start_header_id|>assistant<|end_header_id|>\n\n"));
  CHECK(std::count(prompt.loss_mask.begin(), prompt.loss_mask.end(), 1) == 0);
  CHECK(std::equal(prompt.ids.begin(), prompt.ids.end(), chat.ids.begin()));
}

TEST_CASE("A chatml conversation keeps the text as it is") {
  const Tokenizer tokenizer = test::small_tokenizer("chatml");
  REQUIRE(detect_chat_format(tokenizer) == ChatFormat::chatml);
  const std::vector<Message> messages = {{"user", " Salam "}, {"assistant", "Aleykum"}};
  const EncodedChat chat = encode_chat(tokenizer, ChatFormat::chatml, messages, true);
  CHECK(tokenizer.decode(chat.ids) ==
        "<|im_start|>user\n Salam <|im_end|>\n<|im_start|>assistant\nAleykum<|im_end|>\n<|im_start|>assistant\n");
  std::vector<TokenId> trained;
  for (std::size_t i = 0; i < chat.ids.size(); ++i) {
    if (chat.loss_mask[i] == 1) trained.push_back(chat.ids[i]);
  }
  CHECK(tokenizer.decode(trained) == "Aleykum<|im_end|>");
}

TEST_CASE("Bad conversations are refused by name") {
  using Catch::Matchers::ContainsSubstring;
  using Catch::Matchers::MessageMatches;
  const auto read = [](const char* line) {
    return messages_from_json(parse_json(line, "x"), "chat.jsonl line 7", true);
  };
  CHECK(read(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "id": 3})")
            .size() == 2);
  CHECK_THROWS_MATCHES(read(R"({"messages": [{"role": "user", "content": "a"}]})"), InputError,
                       MessageMatches(ContainsSubstring("chat.jsonl line 7") && ContainsSubstring("assistant")));
  CHECK_THROWS_MATCHES(read(R"({"messages": [{"role": "bot", "content": "a"}]})"), InputError,
                       MessageMatches(ContainsSubstring("unknown role \"bot\"")));
  CHECK_THROWS_MATCHES(read(R"({"messages": [{"role": "user"}]})"), InputError,
                       MessageMatches(ContainsSubstring("message 1") && ContainsSubstring("\"content\" is missing")));
  CHECK_THROWS_MATCHES(read(R"({"messages": [{"role": "user", "content": 3}]})"), InputError,
                       MessageMatches(ContainsSubstring("content")));
  CHECK_THROWS_MATCHES(read(R"({"text": "a"})"), InputError,
                       MessageMatches(ContainsSubstring("\"messages\" is missing")));
  CHECK_THROWS_AS(read(R"({"messages": []})"), InputError);
  CHECK_THROWS_AS(read("[]"), InputError);
  CHECK(messages_from_json(parse_json(R"({"messages": [{"role": "user", "content": "a"}]})", "x"), "y", false).size() ==
        1);
  CHECK_THROWS_MATCHES(detect_chat_format(test::small_tokenizer("none")), InputError,
                       MessageMatches(ContainsSubstring("<|eot_id|>") && ContainsSubstring("<|im_end|>")));
}
