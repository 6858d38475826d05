#include "support/catch_torch.hpp"

#include "support/gradients.hpp"

#include <algorithm>

#include <catch2/matchers/catch_matchers_string.hpp>

#include <ilme/core/error.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/parameter_group.hpp>

using namespace ilme::optim;
using ilme::test::leaf;
using ilme::test::max_difference;
using ilme::test::random;

TEST_CASE("patterns match whole names, dots being ordinary characters") {
  CHECK(matches("model.embed_tokens.*", "model.embed_tokens.weight"));
  CHECK(matches("*norm*", "model.layers.11.input_layernorm.weight"));
  CHECK(matches("model.layers.[01].*", "model.layers.1.mlp.up_proj.weight"));
  CHECK_FALSE(matches("model.layers.[01].*", "model.layers.10.mlp.up_proj.weight"));
  CHECK_FALSE(matches("embed_tokens", "model.embed_tokens.weight"));
  CHECK_FALSE(matches("model.norm", "model.norm.weight"));
}

TEST_CASE("a pattern that matches nothing is refused with what names there are") {
  const at::Tensor w = leaf(at::ones({2, 2}), at::kFloat);
  const NamedParameters parameters{{"model.embed_tokens.weight", w},
                                   {"model.layers.0.mlp.up_proj.weight", w},
                                   {"model.layers.17.mlp.up_proj.weight", w}};
  CHECK_THROWS_WITH(AdamW(parameters, {.groups = {{.pattern = "*nrom*", .weight_decay = 0.0}}}),
                    Catch::Matchers::ContainsSubstring("\"*nrom*\"") &&
                        Catch::Matchers::EndsWith("model.embed_tokens.weight, model.layers.*.mlp.up_proj.weight"));
}

TEST_CASE("groups give a rate and a decay of their own; the first that sets a value counts") {
  const at::Tensor start = random({5, 3});
  at::Tensor a = leaf(start, at::kFloat), b = leaf(start, at::kFloat), c = leaf(start[0], at::kFloat);
  AdamW ours({{"x.embed", a}, {"x.other", b}, {"x.norm", c}}, {.weight_decay = 0.1,
                                                               .groups = {{.pattern = "x.e*", .learning_rate_scale = 3},
                                                                          {.pattern = "x.e*", .weight_decay = 0.5},
                                                                          {.pattern = "*", .learning_rate_scale = 0.5},
                                                                          {.pattern = "*norm", .weight_decay = 0.2}}});
  struct Peer {
    at::Tensor tensor;
    double rate, decay;
  };
  std::vector<Peer> peers{{leaf(start, at::kFloat), 0.03, 0.5},
                          {leaf(start, at::kFloat), 0.005, 0.1},
                          {leaf(start[0], at::kFloat), 0.005, 0.2}};
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const Peer& peer : peers) {
    groups.emplace_back(std::vector<at::Tensor>{peer.tensor},
                        std::make_unique<torch::optim::AdamWOptions>(
                            torch::optim::AdamWOptions(peer.rate).betas({0.9, 0.95}).weight_decay(peer.decay)));
  }
  torch::optim::AdamW theirs(groups);
  for (std::uint64_t step = 0; step < 4; ++step) {
    std::vector<at::Tensor> gradients{random({5, 3}, at::kFloat, 10 + step), random({5, 3}, at::kFloat, 20 + step),
                                      random({3}, at::kFloat, 30 + step)};
    for (std::size_t i = 0; i < 3; ++i) peers[i].tensor.mutable_grad() = gradients[i].clone();
    theirs.step();
    ours.step(gradients, 0.01);
  }
  CHECK(max_difference(a, peers[0].tensor) < 1e-6);
  CHECK(max_difference(b, peers[1].tensor) < 1e-6);
  CHECK(max_difference(c, peers[2].tensor) < 1e-6);
}

TEST_CASE("learning rates are told by group, of what trains now") {
  at::Tensor a = leaf(at::ones({2}), at::kFloat), b = leaf(at::ones({2}), at::kFloat);
  const AdamW optimizer({{"embed", a}, {"other", b}}, {.groups = {{.pattern = "embed", .learning_rate_scale = 5},
                                                                  {.pattern = "other", .weight_decay = 0.0}}});
  using Rates = std::vector<std::pair<std::string, double>>;
  CHECK(optimizer.learning_rates(2) == Rates{{"", 2}, {"embed", 10}});
  b.set_requires_grad(false);
  CHECK(optimizer.learning_rates(2) == Rates{{"embed", 10}});
}

TEST_CASE("state is made by a parameter's first update, and bias correction counts from there") {
  const at::Tensor start = random({4, 4});
  at::Tensor early = leaf(start, at::kBFloat16), late = leaf(start, at::kBFloat16), alone = leaf(start, at::kBFloat16);
  AdamW optimizer({{"early", early}, {"late", late}}), fresh({{"late", alone}});
  CHECK(optimizer.state().empty());
  CHECK(optimizer.updated_parameters().empty());
  for (std::uint64_t step = 0; step < 3; ++step) {
    std::vector<at::Tensor> gradients{random({4, 4}, at::kFloat, step), at::Tensor()};
    optimizer.step(gradients, 0.1);
  }
  CHECK(at::equal(late, alone));
  for (const auto& [name, tensor] : optimizer.state()) CHECK(name.starts_with("early."));
  CHECK(optimizer.state().size() == 4);
  for (std::uint64_t step = 0; step < 3; ++step) {
    std::vector<at::Tensor> both{random({4, 4}, at::kFloat, 7 + step), random({4, 4}, at::kFloat, 9 + step)};
    std::vector<at::Tensor> one{both[1].clone()};
    optimizer.step(both, 0.1);
    fresh.step(one, 0.1);
  }
  CHECK(at::equal(late, alone));
  CHECK(optimizer.updated_parameters().size() == 2);

  // Loading what an optimizer had in its first phase forgets the rest.
  at::Tensor a = leaf(start, at::kBFloat16), b = leaf(start, at::kBFloat16);
  AdamW first({{"early", a}, {"late", b}});
  std::vector<at::Tensor> gradients{random({4, 4}, at::kFloat, 1), at::Tensor()};
  first.step(gradients, 0.1);
  optimizer.load_state([saved = first.state()](const auto& slice, const std::string& kind, const at::Tensor& target) {
    for (const auto& [name, tensor] : saved) {
      if (name == slice.name + "." + kind) return target.copy_(tensor).defined();
    }
    return false;
  });
  CHECK(optimizer.updated_parameters().size() == 1);
  CHECK(at::equal(early, a));
}
