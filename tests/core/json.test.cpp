#include <ilme/core/json.hpp>

#include <catch2/catch_all.hpp>

#include <ilme/core/parallel.hpp>

using Catch::Matchers::ContainsSubstring;
using ilme::JsonObject;

TEST_CASE("a JSON object gives typed values, and names what does not fit") {
  const ilme::Json value =
      ilme::parse_json(R"({"steps": 3, "rate": 0.5, "name": "x", "none": null, "on": true, "less": -1})", "run.json");
  JsonObject object(value, "run.json");
  CHECK(object.require<std::int64_t>("steps") == 3);
  CHECK(object.require<double>("steps") == 3.0);
  CHECK(object.get<double>("rate", 1.0) == 0.5);
  CHECK(object.get<std::string>("none", "fallback") == "fallback");
  CHECK(object.get<int>("absent", 7) == 7);
  CHECK(object.require<bool>("on"));
  CHECK_THROWS_WITH(object.require<std::int64_t>("rate"),
                    ContainsSubstring("run.json") && ContainsSubstring("\"rate\""));
  CHECK_THROWS_WITH(object.require<std::uint64_t>("less"), ContainsSubstring("\"less\""));
  CHECK_THROWS_WITH(object.require<bool>("name"), ContainsSubstring("\"name\""));
  CHECK_THROWS_WITH(object.require<int>("absent"), ContainsSubstring("missing"));
  CHECK_NOTHROW(object.refuse_unknown());
}

TEST_CASE("an unknown key is refused with the nearest known one") {
  const ilme::Json value{{"stepz", 3}};
  JsonObject object(value, "run.json");
  object.get<int>("steps", 0);
  CHECK_THROWS_WITH(object.refuse_unknown(), ContainsSubstring("did you mean \"steps\""));
  CHECK_THROWS_AS(JsonObject(ilme::Json::array(), "x"), ilme::InputError);
  CHECK_THROWS_WITH(ilme::parse_json("{\"a\": ", "x.json"), ContainsSubstring("x.json: not valid JSON"));
}

TEST_CASE("parallel_for visits every index once and passes on the first exception") {
  std::vector<int> visits(1000, 0);
  ilme::parallel_for(visits.size(), 4, [&](std::size_t i) { ++visits[i]; });
  CHECK(visits == std::vector<int>(1000, 1));
  CHECK_THROWS_AS(ilme::parallel_for(100, 3,
                                     [](std::size_t i) {
                                       if (i == 50) throw ilme::InputError("fifty");
                                     }),
                  ilme::InputError);
}
