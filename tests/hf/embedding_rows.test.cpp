#include "hf/small_models.hpp"

#include <cmath>

#include <ilme/hf/embedding_rows.hpp>

#include "support/gradients.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Old: <s>, the bytes, "ki". New: <s>, <new>, the bytes, "ki", "kit", "lə".
struct Tokenizers {
  text::Tokenizer before{test::small_tokenizer_model({"<s>"}, {{"k", "i"}})};
  text::Tokenizer after{
      test::small_tokenizer_model({"<s>", "<new>"}, {{"k", "i"}, {"ki", "t"}, {"\xC9", "\x99"}, {"l", "\xC9\x99"}})};
  hf::TokenPlan plan = hf::TokenPlanner(before, after, 300).plan();
};

std::vector<bool> text_of(const text::Tokenizer& tokenizer) {
  std::vector<bool> is_text(tokenizer.vocabulary_size());
  for (text::TokenId id = 0; id < is_text.size(); ++id) is_text[id] = !tokenizer.is_special(id);
  return is_text;
}

/// 300 rows for 258 tokens: the rest is padding, which nothing must read.
at::Tensor table(at::ScalarType dtype = at::kFloat) {
  at::Tensor rows = test::random({300, 8}, at::kDouble);
  rows += 0.5;
  rows.narrow(0, 258, 42).fill_(1000.0);
  rows[0].fill_(500.0);  // <s>
  return rows.to(dtype);
}

}  // namespace

TEST_CASE("embedding rows: mean, by the plan, in fp32, bf16 and fp16") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const Tokenizers t;
  const at::Tensor old = table(dtype);
  const hf::TrainedRows rows(old, text_of(t.before), "test");
  CHECK(rows.count() == 257);
  CHECK(test::max_difference(rows.mean(), old.narrow(0, 1, 257).to(at::kFloat).mean(0)) < 1e-6);
  const at::Tensor moved = hf::move_rows(rows, t.plan, 320, hf::RowMethod::mean, 3);
  CHECK(moved.scalar_type() == dtype);
  CHECK(moved.size(0) == 320);
  const auto old_row = [&](std::string_view token) { return old[*t.before.token_to_id(token)]; };
  const auto new_row = [&](std::string_view token) { return moved[*t.after.token_to_id(token)]; };
  for (const char* token : {"<s>", "ki", "k", "l", "\x99"}) CHECK(at::equal(new_row(token), old_row(token)));
  const at::Tensor kit = (old_row("ki").to(at::kFloat) + old_row("t").to(at::kFloat)) / 2;
  CHECK(at::equal(new_row("kit"), kit.to(dtype)));
  const at::Tensor le =
      (old_row("l").to(at::kFloat) + old_row("\xC9").to(at::kFloat) + old_row("\x99").to(at::kFloat)) / 3;
  CHECK(test::max_difference(new_row("lə"), le) < (dtype == at::kFloat ? 1e-6 : 1e-2));
  for (std::int64_t id = t.after.vocabulary_size(); id < 320; ++id) {
    REQUIRE(at::equal(moved[id], rows.mean().to(dtype)));
  }
  CHECK(new_row("<new>").norm().item<double>() < 20);  // drawn around the text's rows, not the padding's
  CHECK(at::equal(moved, hf::move_rows(rows, t.plan, 320, hf::RowMethod::mean, 3)));
  CHECK_FALSE(at::equal(moved, hf::move_rows(rows, t.plan, 320, hf::RowMethod::mean, 4)));
}

TEST_CASE("embedding rows: an untrained piece is left out of a mean, and a row of none but those is drawn") {
  const Tokenizers t;
  at::Tensor old = table();
  for (const char* token : {"t", "\xC9", "\x99", "l"}) old[*t.before.token_to_id(token)].fill_(1e-4);
  const hf::TrainedRows rows(old, text_of(t.before), "test");
  CHECK(rows.count() == 253);
  const at::Tensor moved = hf::move_rows(rows, t.plan, 262, hf::RowMethod::mean, 3);
  CHECK(at::equal(moved[*t.after.token_to_id("kit")], old[*t.before.token_to_id("ki")]));
  CHECK(moved[*t.after.token_to_id("lə")].norm().item<double>() > 0.1);
  CHECK(at::equal(moved[*t.after.token_to_id("l")], old[*t.before.token_to_id("l")]));  // copies are copies
}

TEST_CASE("embedding rows: normal has the old rows' mean and covariance, copy their mean") {
  // Correlated columns, and 4,000 new tokens to measure.
  std::vector<std::pair<std::string, std::string>> none;
  const text::Tokenizer before(test::small_tokenizer_model({}, none));
  auto model = test::small_tokenizer_model({}, none);
  for (int i = 0; i < 4000; ++i) model.tokens.push_back(concat("token", i));
  const text::Tokenizer after(model);
  const auto plan = hf::TokenPlanner(before, after, 256).plan();
  const at::Tensor old = (at::mm(test::random({256, 4}), test::random({4, 4}, at::kDouble, 2)) + 0.5).to(at::kFloat);
  const hf::TrainedRows rows(old, text_of(before), "test");
  const auto covariance = [](const at::Tensor& x) {
    const at::Tensor centred = x - x.mean(0);
    return at::mm(centred.t(), centred) / static_cast<double>(x.size(0));
  };
  CHECK(test::relative_error(at::mm(rows.covariance_factor(), rows.covariance_factor().t()), covariance(old)) < 1e-4);
  const at::Tensor normal = hf::move_rows(rows, plan, 4256, hf::RowMethod::normal, 1).narrow(0, 256, 4000);
  CHECK(test::relative_error(normal.mean(0), old.mean(0)) < 0.2);
  CHECK(test::relative_error(covariance(normal), covariance(old)) < 0.1);
  const at::Tensor copy = hf::move_rows(rows, plan, 4256, hf::RowMethod::copy, 1).narrow(0, 256, 4000);
  CHECK(at::equal(copy, rows.mean().expand_as(copy)));

  // Fewer rows than columns: the covariance is singular, the draws stay in what the rows span.
  const hf::TrainedRows few(test::random({256, 600}, at::kFloat), text_of(before), "test");
  CHECK(at::isfinite(few.covariance_factor()).all().item<bool>());
}

TEST_CASE("embedding rows: values that are not finite and tables without text are refused") {
  const Tokenizers t;
  at::Tensor old = table();
  old[70][3] = std::nan("");
  CHECK_THROWS_WITH(hf::TrainedRows(old, text_of(t.before), "x"), ContainsSubstring("x: row 70"));
  CHECK_THROWS_WITH(hf::TrainedRows(table(), {}, "x"), ContainsSubstring("no row"));
  CHECK_THROWS_WITH(hf::TrainedRows(at::zeros({300, 8}), text_of(t.before), "x"), ContainsSubstring("zero"));
  CHECK_THROWS_AS(hf::parse_row_method("average"), InputError);
}
