#include <catch2/catch_all.hpp>

#include <filesystem>
#include <string>

#include "support/process.hpp"
#include "support/temporary.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;
using ilme::test::ProcessResult;
using ilme::test::TemporaryFolder;

namespace {

ProcessResult sample(const std::string& arguments,
                     const std::string& environment = "SM_INPUT_CONFIG_DIR=/nonexistent") {
  return ilme::test::run_process(std::string(ILME_SAMPLE) + " " + arguments, environment);
}

std::string job(const TemporaryFolder& folder, const std::string& hyperparameters) {
  ilme::write_file(folder / "hyperparameters.json", hyperparameters);
  return ilme::concat("SM_INPUT_CONFIG_DIR=", folder.path().string(), " SM_OUTPUT_DIR=", (folder / "output").string());
}

}  // namespace

TEST_CASE("a program reports success, usage errors and failures by its exit code and one line") {
  CHECK(sample("show --epochs 3").exit_code == 0);
  CHECK_THAT(sample("show --epochs 3").out, StartsWith("epochs=3 warmup=5"));
  struct Case {
    std::string arguments;
    int exit_code;
    std::string line;
  };
  const Case cases[] = {
      {"", 2, "A subcommand is required"},
      {"shw", 2, "unknown command shw; did you mean show?"},
      {"show --epoch 3", 2, "unknown option --epoch; did you mean --epochs?"},
      {"show --learning_rate=3", 2, "unknown option --learning_rate; did you mean --learning-rate?"},
      {"other --ouput x", 2, "unknown option --ouput; did you mean --output?"},
      {"show stray", 2, "unexpected argument stray; see --help"},
      {"other", 2, "--output is required"},
      {"show --epochs three", 2, "Could not convert: --epochs = three"},
      {"show --learning-rate nan", 2, "--learning-rate: expected a finite number, found nan"},
      {"show --learning-rate 1e999", 2, ""},
      {"show --config /nonexistent.json", 2, "/nonexistent.json: cannot open: No such file or directory"},
      {"show --fail input", 2, "file.txt: bad input"},
      {"show --fail run", 1, "disk is full"},
      {"show --fail other", 1, "first line"},
      {"show --fail memory", 1, "out of memory"},
  };
  for (const Case& c : cases) {
    const ProcessResult result = sample(c.arguments);
    INFO(c.arguments << " -> " << result.err);
    CHECK(result.exit_code == c.exit_code);
    CHECK(result.out.empty());
    if (!c.line.empty()) CHECK_THAT(result.err, Equals("ilme-sample: error: " + c.line + "\n"));
  }
}

TEST_CASE("help shows defaults in 100 columns, version the version") {
  const ProcessResult version = sample("--version");
  CHECK(version.exit_code == 0);
  CHECK_THAT(version.out, StartsWith("ilme-sample 0."));
  const ProcessResult help = sample("show --help");
  CHECK(help.exit_code == 0);
  CHECK_THAT(help.out, ContainsSubstring("--warmup N") && ContainsSubstring("Steps of warm-up (default 5)"));
  CHECK_THAT(help.out, ContainsSubstring("(default 0.001)"));
  CHECK_THAT(sample("other --help").out, ContainsSubstring("A file (required)"));
  std::size_t longest = 0, begin = 0;
  for (std::size_t end; (end = help.out.find('\n', begin)) != std::string::npos; begin = end + 1) {
    longest = std::max(longest, end - begin);
  }
  CHECK(longest <= 100);
}

TEST_CASE("a closed or full standard output is no crash") {
  CHECK(sample("show --repeat 200000 | head -n 1").out == "line 0\n");
  const std::string redirected = "show --repeat 200000 ";
  CHECK(sample(redirected + ">&-").exit_code == 0);
  if (std::filesystem::exists("/dev/full")) {
    const ProcessResult full = sample(redirected + "> /dev/full");
    CHECK(full.exit_code == 1);
    CHECK_THAT(full.err, ContainsSubstring("standard output: cannot write"));
  }
}

TEST_CASE("options come from a config file, and the command line wins") {
  const TemporaryFolder folder;
  const std::string file = (folder / "config.json").string();
  const auto write = [&](const std::string& text) { ilme::write_file(file, text); };
  write(R"({"epochs": 7, "warmup": null, "learning_rate": 0.5, "use-bf16": true, "target-modules": ["a", "b"]})");
  CHECK_THAT(sample("show --config " + file).out, StartsWith("epochs=7 warmup=5") &&
                                                      ContainsSubstring("learning_rate=0.5 use_bf16=1") &&
                                                      ContainsSubstring("modules=a|b"));
  CHECK_THAT(sample("--config=" + file + " show --epochs 2 --target-modules c").out,
             StartsWith("epochs=2 warmup=5") && ContainsSubstring("modules=c"));
  CHECK_THAT(sample("show -e2 --config " + file).out, StartsWith("epochs=2"));
  write(R"({"show": {"epochs": 4, "max-steps": -1}, "other": {"output": "x"}})");
  CHECK_THAT(sample("show --config " + file).out, StartsWith("epochs=4 warmup=5 max_steps=-1"));
  CHECK(sample("other --config " + file).exit_code == 0);  // a required option may come from the file
  write(R"({"epoch": 4})");
  CHECK_THAT(sample("show --config " + file).err,
             Equals("ilme-sample: error: " + file + ": unknown key \"epoch\"; did you mean \"epochs\"?\n"));
  write(R"({"epochs": {"a": 1}})");
  CHECK(sample("show --config " + file).exit_code == 2);
  write(R"([1])");
  CHECK(sample("show --config " + file).exit_code == 2);
}

TEST_CASE("options come from the hyperparameters of a SageMaker job") {
  const TemporaryFolder folder;
  SECTION("every value is a string, encoded as JSON or not") {
    const std::string environment = job(folder, R"({
      "epochs": "3", "learning_rate": "3e-4", "warmup": "0", "use_bf16": "true", "use_lora": "True",
      "run_name": "az-llama", "run_name_json": "\"az-llama\"", "target_modules": "[\"q_proj\", \"v_proj\"]",
      "target_modules_plain": "q_proj,v_proj", "seed": "007", "max_steps": "-1", "path": "\"s3://bucket/ön/şəkil\"",
      "empty": "", "big": "9007199254740993", "text_number": "\"12\"", "sagemaker_program": "\"train.py\"",
      "nan": "null"})");
    CHECK(sample("show", environment).out ==
          "epochs=3 warmup=0 max_steps=-1 big=9007199254740993 seed=7 text_number=12 learning_rate=0.0003 use_bf16=1 "
          "use_lora=1 run_name=az-llama run_name_json=az-llama empty=[] path=s3://bucket/ön/şəkil "
          "modules=q_proj|v_proj plain=q_proj|v_proj\n");
    CHECK_THAT(sample("show --epochs 9", environment).out, StartsWith("epochs=9 warmup=0"));
    CHECK(!std::filesystem::exists(folder / "output"));
  }
  SECTION("plain JSON values, and none, work too") {
    CHECK_THAT(sample("show", job(folder, R"({"epochs": 3, "use_bf16": true})")).out, StartsWith("epochs=3"));
    CHECK_THAT(sample("show", job(folder, "{}")).out, StartsWith("epochs=1"));
  }
  SECTION("errors name the file and leave the reason for the service") {
    const std::string file = (folder / "hyperparameters.json").string();
    for (const std::string text : {R"({"epochs": "3",)", R"({"epochz": "3"})", R"({"nan": "NaN"})"}) {
      std::filesystem::remove_all(folder / "output");
      const ProcessResult result = sample("show", job(folder, text));
      INFO(result.err);
      CHECK(result.exit_code == 2);
      if (text.find("NaN") == std::string::npos) CHECK_THAT(result.err, StartsWith("ilme-sample: error: " + file));
      CHECK(std::filesystem::exists(folder / "output/failure"));
    }
  }
}
