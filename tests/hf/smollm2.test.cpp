// A real model, when ILME_SMOLLM2 names its folder (made by ../shared/data/models/smollm2_from_pypi.py).
#include "support/tiny_llama.hpp"

#include <cstdio>
#include <cstdlib>

#include "support/temporary.hpp"

#include <ilme/core/json.hpp>
#include <ilme/generate/generate.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/text/tokenizer.hpp>

using namespace ilme;

TEST_CASE("SmolLM2's log-likelihoods are those of the reference, and Paris is the capital of France") {
  const char* folder = std::getenv("ILME_SMOLLM2");
  const auto reference = test::shared_path("data/models/smollm2_reference.json");
  if (folder == nullptr || !reference) SKIP("ILME_SMOLLM2 is not set, or smollm2_reference.json is absent");
  const at::NoGradGuard no_gradient;
  const auto model = hf::load_model<nn::Llama<ops::Fused>>(folder, at::kFloat);
  const text::Tokenizer tokenizer = text::Tokenizer::load(folder);
  const Json expected = read_json(*reference);
  for (const Json& entry : expected["cases"]) {
    CAPTURE(entry["name"].get<std::string>());
    const auto ids = entry["ids"].get<std::vector<std::int64_t>>();
    const at::Tensor hidden = model->hidden(test::batch_of({ids}))[0];
    const at::Tensor scores = at::log_softmax(at::matmul(hidden, model->lm_head_weight().t()), -1);
    double largest = 0;
    for (std::size_t i = 0; i < entry["nll"].size(); ++i) {
      const double nll = -scores[static_cast<std::int64_t>(i)][ids[i + 1]].item<double>();
      largest = std::max(largest, std::abs(nll - entry["nll"][i].get<double>()));
    }
    CHECK(largest < 1e-4);
    std::printf("%s: largest difference of a log-likelihood %.2e\n", entry["name"].get<std::string>().c_str(), largest);
  }
  const auto encoded = tokenizer.encode("The capital of France is");
  const std::vector<std::int64_t> prompt(encoded.begin(), encoded.end());
  const auto generation = generate::generate(*model, prompt, {.max_tokens = 8});
  const std::vector<text::TokenId> ids(generation.ids.begin(), generation.ids.end());
  const std::string text = tokenizer.decode(ids);
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("Paris"));
}
