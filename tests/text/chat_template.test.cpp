#include <catch2/catch_all.hpp>

#include <vector>

#include <ilme/text/chat_template.hpp>
#include <ilme/text/special_tokens.hpp>

using namespace ilme;

TEST_CASE("a template's own system message is found in its literal and opens conversations without one") {
  // SmolLM2's template, with line breaks as such, and the form of Qwen2.5's, with \n.
  CHECK(
      text::default_system_message(
          "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
          "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}") ==
      "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  CHECK(text::default_system_message(
            "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + "
            "'<|im_end|>\\n' }}{%- else %}{{- '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' }}{%- endif %}") ==
        "You are Qwen.");
  CHECK(text::default_system_message(text::kChatmlChatTemplate).empty());
  CHECK(text::default_system_message(text::kLlama3ChatTemplate).empty());
  CHECK(text::default_system_message("").empty());

  const std::vector<text::Message> plain{{"user", "hi"}}, own{{"system", "be brief"}, {"user", "hi"}};
  CHECK(text::with_system_message(plain, "be kind").front().content == "be kind");
  CHECK(text::with_system_message(plain, "be kind").size() == 2);
  CHECK(text::with_system_message(own, "be kind").front().content == "be brief");
  CHECK(text::with_system_message(plain, "").size() == 1);
}
