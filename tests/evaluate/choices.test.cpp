#include "support/tiny_llama.hpp"

#include "data/tiny_tokenizer.hpp"

#include <ilme/core/error.hpp>
#include <ilme/evaluate/choice_scorer.hpp>
#include <ilme/evaluate/start_token.hpp>

using namespace ilme;

namespace {

evaluate::ChoiceQuestion read(const std::string& line) {
  return evaluate::read_choice_question(parse_json(line, "q.jsonl:3"), "q.jsonl:3");
}

nn::Llama<ops::Fused> byte_model() {
  auto config = test::tiny_config();
  config.vocab_size = 261;
  nn::Llama<ops::Fused> model(config);
  test::fill_by_formula(model);
  return model;
}

}  // namespace

TEST_CASE("questions are read with the answer as index or text") {
  const auto question = read(R"({"id": 7, "question": "2+2=", "choices": ["3", "4"], "answer": 1})");
  CHECK(question.prompt == "2+2=");
  CHECK(question.answer == 1);
  CHECK(question.where == "q.jsonl:3");
  const auto with_context =
      read(R"({"context": "1+1= 2\n", "question": "2+2=", "choices": ["3", "4"], "answer": "4"})");
  CHECK(with_context.prompt == "1+1= 2\n2+2=");
  CHECK(with_context.answer == 1);
}

TEST_CASE("bad questions are refused by line and key") {
  const std::pair<const char*, const char*> bad[] = {
      {R"({"choices": ["3", "4"], "answer": 1})", "\"question\""},
      {R"({"question": 5, "choices": ["3", "4"], "answer": 1})", "\"question\""},
      {R"({"question": "q", "choices": ["3"], "answer": 0})", "\"choices\""},
      {R"({"question": "q", "answer": 0})", "\"choices\""},
      {R"({"question": "q", "choices": ["3", ""], "answer": 0})", "\"choices\""},
      {R"({"question": "q", "choices": ["3", "3"], "answer": 0})", "\"choices\""},
      {R"({"question": "q", "choices": ["3", 4], "answer": 0})", "\"choices\""},
      {R"({"question": "q", "choices": ["3", "4"], "answer": 2})", "\"answer\""},
      {R"({"question": "q", "choices": ["3", "4"], "answer": -1})", "\"answer\""},
      {R"({"question": "q", "choices": ["3", "4"], "answer": "5"})", "\"answer\""},
      {R"({"question": "q", "choices": ["3", "4"]})", "\"answer\""},
      {R"({"question": "q", "context": [], "choices": ["3", "4"], "answer": 1})", "\"context\""}};
  for (const auto& [line, key] : bad) {
    CHECK_THROWS_WITH(read(line), Catch::Matchers::StartsWith("q.jsonl:3") && Catch::Matchers::ContainsSubstring(key));
  }
}

TEST_CASE("a choice's ids are those beyond the prompt's, whitespace at its end going with the choice") {
  const auto tokenizer = test::tiny_tokenizer();
  const auto plain = evaluate::encode_choice(tokenizer, 256, "ab", " ", "cd");
  CHECK(plain.ids == std::vector<std::int64_t>{256, 'a', 'b', ' ', 'c', 'd'});
  CHECK(plain.first == 3);
  const auto spaced = evaluate::encode_choice(tokenizer, 256, "ab \n", "", "c");
  CHECK(spaced.ids == std::vector<std::int64_t>{256, 'a', 'b', ' ', '\n', 'c'});
  CHECK(spaced.first == 3);
  const auto empty = evaluate::encode_choice(tokenizer, 256, "", "", "c");
  CHECK(empty.ids == std::vector<std::int64_t>{256, 'c'});
  CHECK(empty.first == 1);
}

TEST_CASE("each norm chooses by its own quotient, the first of equal ones") {
  evaluate::ChoiceQuestion question{"q", {"a", "əə", "cccc"}, 1, ""};
  evaluate::ChoiceScore score{.log_likelihoods = {-2.0, -4.0, -7.9}, .tokens = {1, 4, 2}};
  evaluate::judge(question, score);
  CHECK(score.chosen ==
        std::array<std::size_t, 4>{0, 2, 1, 1});  // characters 2 2 1.975, bytes 2 1 1.975, tokens 2 1 3.95
  CHECK(score.right == std::array<bool, 4>{false, false, true, true});
  CHECK(score.chance == Catch::Approx(1.0 / 3));
}

TEST_CASE("scores of choices equal a forward pass over each") {
  auto model = byte_model();
  const auto tokenizer = test::tiny_tokenizer();
  const auto start = evaluate::start_token(tokenizer, model.config()).id;
  CHECK(start == 256);
  const std::vector<evaluate::ChoiceQuestion> questions{{"salam", {"dost", "x"}, 0, "f:1"},
                                                        {"", {"bir", "iki", "ü"}, 2, "f:2"}};
  const at::NoGradGuard no_gradient;
  for (const std::int64_t at_once : {8, 4096}) {
    const auto scores = evaluate::score_choices(model, tokenizer, start, questions, {.tokens_at_once = at_once});
    REQUIRE(scores.size() == 2);
    for (std::size_t q = 0; q < 2; ++q) {
      REQUIRE(scores[q].log_likelihoods.size() == questions[q].choices.size());
      for (std::size_t c = 0; c < questions[q].choices.size(); ++c) {
        const auto encoded =
            evaluate::encode_choice(tokenizer, start, questions[q].prompt, " ", questions[q].choices[c]);
        const at::Tensor logits =
            at::matmul(model.hidden(test::batch_of({encoded.ids})), model.lm_head_weight().t())[0].log_softmax(-1);
        double expected = 0;
        for (auto i = static_cast<std::size_t>(encoded.first); i < encoded.ids.size(); ++i) {
          expected += logits[static_cast<std::int64_t>(i) - 1][encoded.ids[i]].item<double>();
        }
        CHECK(scores[q].log_likelihoods[c] == Catch::Approx(expected).epsilon(1e-5));
        CHECK(scores[q].tokens[c] == static_cast<std::int64_t>(questions[q].choices[c].size()) + 1);
        CHECK_FALSE(scores[q].shortened);
      }
    }
  }
}

TEST_CASE("a prompt longer than the window loses its beginning, a choice never") {
  auto model = byte_model();
  const auto tokenizer = test::tiny_tokenizer();
  const std::vector<evaluate::ChoiceQuestion> questions{{"0123456789", {"a", "b"}, 0, "f:1"}};
  const std::vector<evaluate::ChoiceQuestion> tail{{"789", {"a", "b"}, 0, "f:1"}};
  const auto cut = evaluate::score_choices(model, tokenizer, 256, questions, {.window = 4});
  CHECK(cut[0].shortened);
  const auto same = evaluate::score_choices(model, tokenizer, '6', tail, {});  // the window: "6789 " predicts "a"
  CHECK_FALSE(same[0].shortened);
  const auto kept = evaluate::score_choices(model, tokenizer, 256, questions, {.window = 5});
  CHECK(kept[0].log_likelihoods[0] == Catch::Approx(same[0].log_likelihoods[0]).epsilon(1e-5));
  const std::vector<evaluate::ChoiceQuestion> longer{{"q", {"a", "0123456789"}, 0, "f:9"}};
  CHECK_THROWS_WITH(evaluate::score_choices(model, tokenizer, 256, longer, {.window = 5}),
                    Catch::Matchers::StartsWith("f:9"));
}

TEST_CASE("a text starts with BOS, the configuration's when the tokenizer has none, else EOS") {
  auto config = test::tiny_config();
  CHECK(evaluate::start_token(test::tiny_tokenizer(), config).id == 256);
  const auto without = test::tiny_tokenizer(/*roles=*/false);
  config.bos_token_id = 7;
  CHECK(evaluate::start_token(without, config).id == 7);
  config.bos_token_id = 5000;  // beyond the vocabulary
  config.eos_token_ids = {9};
  CHECK(evaluate::start_token(without, config).id == 9);
  config.eos_token_ids = {};
  CHECK_THROWS_AS(evaluate::start_token(without, config), InputError);
}
