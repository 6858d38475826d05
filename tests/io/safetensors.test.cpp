#include "support/catch_torch.hpp"

#include <ilme/io/safetensors.hpp>

#include <cmath>
#include <cstring>

#include <ilme/core/json.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;

namespace {

double number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  return text == "inf" ? INFINITY : text == "-inf" ? -INFINITY : NAN;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

TEST_CASE("safetensors: every dtype survives a round trip") {
  test::TemporaryFolder folder;
  io::NamedTensors tensors;
  for (const auto& names : io::detail::kDtypeNames) {
    const auto bytes = torch::arange(0, 24, torch::kUInt8).remainder_(2);
    tensors.emplace_back(std::string(names.torch), bytes.view(names.type).view({-1, 1}).clone());
  }
  tensors.emplace_back("empty", torch::empty({0, 3}));
  tensors.emplace_back("scalar", torch::tensor(2.5));
  const auto path = folder / "all.safetensors";
  io::save_safetensors(path, tensors, {{"format", "pt"}, {"note", "ilmə"}});
  const io::SafetensorsFile file(path);
  CHECK(file.names().size() == tensors.size());
  CHECK(file.metadata().at("note") == "ilmə");
  for (const auto& [name, tensor] : tensors) {
    CAPTURE(name);
    CHECK(same_bits(file.tensor(name), tensor));
    CHECK(file.entry(name).begin % static_cast<std::uint64_t>(tensor.element_size()) == 0);
  }
  CHECK_THROWS_WITH(file.tensor("absent"), ContainsSubstring("all.safetensors") && ContainsSubstring("absent"));
  CHECK_THROWS_AS(io::SafetensorsFile(folder / "none.safetensors"), InputError);
}

TEST_CASE("safetensors: a tensor outlives its file object and the file") {
  test::TemporaryFolder folder;
  at::Tensor kept;
  {
    io::save_safetensors(folder / "a.safetensors", {{"a", torch::arange(1000, torch::kFloat)}});
    kept = io::SafetensorsFile(folder / "a.safetensors").tensor("a");
    std::filesystem::remove(folder / "a.safetensors");
  }
  CHECK(kept.sum().item<double>() == 499500.0);
}

TEST_CASE("safetensors: views are written as their logical values") {
  test::TemporaryFolder folder;
  const at::Tensor base = torch::arange(24, torch::kFloat).view({4, 6});
  const io::NamedTensors views{{"transposed", base.t()},
                               {"column_slice", base.slice(1, 1, 3)},
                               {"row_slice", base.slice(0, 1, 3)},
                               {"strided", base.slice(0, 0, 4, 2).slice(1, 0, 6, 3)},
                               {"expanded", base.slice(0, 0, 1).expand({3, 6})},
                               {"permuted3d", base.view({2, 2, 6}).permute({2, 0, 1})},
                               {"bf16_transposed", base.to(torch::kBFloat16).t()},
                               {"zero_rows", base.slice(0, 0, 0)},
                               {"scalar", base[2][3]},
                               {"same", base},
                               {"same_again", base}};
  const auto path = folder / "views.safetensors";
  io::save_safetensors(path, views);
  const io::SafetensorsFile file(path);
  CHECK(file.metadata().at("format") == "pt");
  std::uint64_t data = 0;
  for (const auto& [name, view] : views) {
    CAPTURE(name);
    CHECK(same_bits(file.tensor(name), view));
    data += view.nbytes();
  }
  CHECK(std::filesystem::file_size(path) < data + 2048);
  const auto expected = test::shared_path("cases/st-save-views/expected.safetensors");
  if (!expected) SKIP("cases/st-save-views is absent");
  const io::SafetensorsFile reference(*expected);
  for (const std::string& name : reference.names()) CHECK(same_bits(file.tensor(name), reference.tensor(name)));
}

TEST_CASE("safetensors: big strided tensors are written in pieces") {
  test::TemporaryFolder folder;
  const at::Tensor wide = torch::arange(20'000'000, torch::kInt).view({2, 10'000'000}).slice(1, 0, 9'999'999);
  const at::Tensor tall = torch::arange(20'000'000, torch::kInt).view({5, 4'000'000}).t();
  io::save_safetensors(folder / "big.safetensors", {{"wide", wide}, {"tall", tall}});
  const io::SafetensorsFile file(folder / "big.safetensors");
  CHECK(torch::equal(file.tensor("wide"), wide));
  CHECK(torch::equal(file.tensor("tall"), tall));
  at::Tensor copy = torch::empty(tall.sizes(), torch::kLong), row = torch::empty(wide.sizes(), torch::kInt);
  file.copy_to("tall", copy);
  file.copy_to("wide", row);
  CHECK(torch::equal(copy, tall.to(torch::kLong)));
  CHECK(torch::equal(row, wide));
  CHECK(torch::equal(file.tensor("tall"), tall));  // pages that were given back are read again
}

TEST_CASE("safetensors: any range of elements is copied, converted on the way") {
  test::TemporaryFolder folder;
  const at::Tensor wide = torch::arange(24'000'000, torch::kInt).view({3, 8'000'000});
  const at::Tensor bits = torch::arange(10, torch::kInt).remainder(2).to(torch::kBool);
  io::save_safetensors(
      folder / "a.safetensors",
      {{"wide", wide}, {"scalar", torch::tensor(2.5)}, {"none", torch::empty({0, 4})}, {"bits", bits}});
  const io::SafetensorsFile file(folder / "a.safetensors");
  for (const auto& [begin, size] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {7'999'999, 3}, {5, 16'000'001}}) {
    at::Tensor part = torch::empty({size}, torch::kDouble);
    file.copy_range_to("wide", begin, part);
    CHECK(torch::equal(part, wide.flatten().narrow(0, begin, size).to(torch::kDouble)));
  }
  at::Tensor one = torch::empty({1}), square = torch::empty({2, 2}, torch::kInt), nothing = torch::empty({0});
  file.copy_range_to("scalar", 0, one);
  CHECK(one.item<double>() == 2.5);
  file.copy_range_to("wide", 8, square);
  CHECK(torch::equal(square, torch::tensor({{8, 9}, {10, 11}}, torch::kInt)));
  file.copy_range_to("none", 0, nothing);
  file.copy_range_to("wide", 24'000'000, nothing);
  file.copy_range_to("bits", 3, square);
  CHECK(torch::equal(square, torch::tensor({{1, 0}, {1, 0}}, torch::kInt)));
  at::Tensor columns = torch::empty({8'000'000, 3}, torch::kInt).t();
  file.copy_to("wide", columns);
  CHECK(torch::equal(columns, wide));
  CHECK_THROWS_WITH(file.copy_range_to("wide", 24'000'000, one), ContainsSubstring("24000000 elements"));
  CHECK_THROWS_AS(file.copy_range_to("wide", -1, one), InputError);
  CHECK_THROWS_AS(file.copy_range_to("scalar", 1, one), InputError);
  CHECK_THROWS_WITH(file.copy_to("scalar", one), ContainsSubstring("shape"));

  // Data that is not aligned to its elements.
  const std::string header = R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("y":{"dtype":"I32","shape":[3],"data_offsets":[1,13]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  write_file(folder / "odd.safetensors", bytes + header + '\0' + std::string("\1\0\0\0\2\0\0\0\3\0\0\0", 12));
  io::SafetensorsFile(folder / "odd.safetensors").copy_range_to("y", 1, one);
  CHECK(one.item<double>() == 2);
}

TEST_CASE("safetensors: what cannot be written is refused, and nothing is left") {
  test::TemporaryFolder folder;
  const auto path = folder / "x.safetensors";
  CHECK_THROWS_AS(io::save_safetensors(path, {{"c", torch::zeros({2}, torch::kComplexFloat)}}), InputError);
  CHECK_THROWS_AS(io::save_safetensors(path, {{"u", at::Tensor()}}), InputError);
  CHECK_THROWS_AS(io::save_safetensors(path, {{"m", torch::empty({2}, torch::device(torch::kMeta))}}), InputError);
  CHECK_THROWS_AS(io::save_safetensors(path, {{"a", torch::ones(1)}, {"a", torch::ones(1)}}), InputError);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("safetensors: a BOOL byte of 2 is refused") {
  test::TemporaryFolder folder;
  io::save_safetensors(folder / "b.safetensors", {{"b", torch::ones({4}, torch::kBool)}});
  std::string bytes = read_file(folder / "b.safetensors");
  bytes.back() = 2;
  write_file(folder / "b.safetensors", bytes);
  CHECK_THROWS_WITH(io::SafetensorsFile(folder / "b.safetensors").tensor("b"), ContainsSubstring("BOOL"));
}

TEST_CASE("st-headers: good files give the expected values") {
  const auto folder = test::shared_path("cases/st-headers");
  if (!folder) SKIP("cases/st-headers is absent");
  const Json expected = read_json(*folder / "expected.json");
  for (const auto& [name, tensors] : expected["good"].items()) {
    CAPTURE(name);
    const io::SafetensorsFile file(*folder / ("good_" + name + ".safetensors"));
    REQUIRE(file.names().size() == tensors.size());
    for (const auto& [tensor_name, wanted] : tensors.items()) {
      const at::Tensor tensor = file.tensor(tensor_name);
      CHECK(file.entry(tensor_name).dtype == wanted["dtype"].get<std::string>());
      CHECK(tensor.sizes().vec() == wanted["shape"].get<std::vector<std::int64_t>>());
      const at::Tensor flat = tensor.to(torch::kDouble).flatten();
      REQUIRE(flat.numel() == static_cast<std::int64_t>(wanted["values"].size()));
      for (std::int64_t i = 0; i < flat.numel(); ++i) {
        const double value = number(wanted["values"][static_cast<std::size_t>(i)]);
        const double found = flat[i].item<double>();
        CHECK((found == value || (std::isnan(found) && std::isnan(value))));
      }
    }
  }
}
