// ilme-chat: talk to a model.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ilme/core/allocator.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/documents.hpp>
#include <ilme/generate/folder_defaults.hpp>
#include <ilme/generate/generate.hpp>
#include <ilme/generate/text_stream.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/lora/adapters.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/text/chat.hpp>
#include <ilme/text/chat_template.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/program.hpp"

namespace {

using namespace ilme;

struct Options {
  std::string model, adapter, prompt, input, system, dtype = "fp32";
  std::int64_t max_tokens = 256, context_length = 0;
  std::vector<std::string> stops;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k;
  std::uint64_t seed = 0;

  /// What the user gives, else what the folder says, else our defaults.
  generate::SamplingOptions sampling() const {
    auto chosen = generate::folder_sampling(model, {.temperature = 0.7, .top_p = 0.9, .seed = seed});
    chosen.temperature = temperature.value_or(chosen.temperature);
    chosen.top_k = top_k.value_or(chosen.top_k);
    chosen.top_p = top_p.value_or(chosen.top_p);
    chosen.min_p = min_p.value_or(chosen.min_p);
    chosen.repetition_penalty = repetition_penalty.value_or(chosen.repetition_penalty);
    return chosen;
  }
};

/// A model with its tokenizer, and the way from messages to a streamed answer.
class Chat {
 public:
  explicit Chat(const Options& options)
      : generation_{.sampling = options.sampling(),
                    .max_tokens = options.max_tokens,
                    .context_length = options.context_length},
        stops_(options.stops),
        tokenizer_(text::Tokenizer::load(options.model)),
        format_(text::detect_chat_format(tokenizer_)),
        default_system_(text::default_system_message(text::read_chat_template(options.model))) {
    generation_.validate();
    generate::StopStrings check(stops_);
    for (const text::TokenId id : text::stop_ids(tokenizer_, format_)) generation_.stop_ids.push_back(id);
    model_ = lora::load_with_adapter<ops::Fused>(options.model, options.adapter, hf::parse_dtype(options.dtype));
    model_->eval();
  }

  /// Prints the assistant's answer as it is made and returns it.
  std::string answer(const std::vector<text::Message>& messages) {
    const text::EncodedChat chat = text::encode_chat(
        tokenizer_, format_, text::with_system_message(messages, default_system_), /*add_generation_prompt=*/true);
    generate::TextStream stream(tokenizer_, stops_, [](const std::string& piece) { std::cout << piece << std::flush; });
    generate::GenerateOptions generation = generation_;
    generation.on_token = [&](std::int64_t id) {
      return stream.push(static_cast<text::TokenId>(id)) && std::cout.good();
    };
    const auto result =
        generate::generate(*model_, std::vector<std::int64_t>(chat.ids.begin(), chat.ids.end()), generation);
    stream.finish();
    std::cout << std::endl;
    if (!result.stopped && !stream.stopped() && std::cout.good()) {
      std::cerr << "(cut at " << result.ids.size() << " tokens)" << std::endl;
    }
    return stream.text();
  }

 private:
  generate::GenerateOptions generation_;
  std::vector<std::string> stops_;
  text::Tokenizer tokenizer_;
  text::ChatFormat format_;
  std::string default_system_;  // the template's own
  std::shared_ptr<lora::LoraLlama<ops::Fused>> model_;
};

std::vector<text::Message> opening(const Options& options) {
  if (options.system.empty()) return {};
  return {{"system", options.system}};
}

void converse(Chat& chat, const Options& options) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) std::cerr << "An empty line starts anew, Ctrl-D ends." << std::endl;
  std::vector<text::Message> messages = opening(options);
  for (std::string line; (terminal ? std::cerr << "> " << std::flush : std::cerr), std::getline(std::cin, line);) {
    if (line.empty()) {
      messages = opening(options);
      continue;
    }
    messages.push_back({"user", line});
    messages.push_back({"assistant", chat.answer(messages)});
  }
}

/// Answers the last user turn of every conversation in a file, each after its own system message.
void answer_file(Chat& chat, const Options& options) {
  data::LineReader lines(options.input);
  while (const auto line = lines.next()) {
    if (line->empty()) continue;
    auto messages =
        text::messages_from_json(parse_json(*line, lines.where()), lines.where(), /*needs_assistant=*/false);
    while (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
    if (messages.empty()) throw InputError(lines.where(), ": no user message to answer");
    std::cout << "> " << messages.back().content << "\n";
    chat.answer(messages);
  }
}

void run(const Options& options) {
  if (!options.prompt.empty() && !options.input.empty()) throw InputError("give --prompt or --input, not both");
  if (!options.system.empty() && !options.input.empty()) {
    throw InputError("--system does not go with --input: its conversations have their own");
  }
  Chat chat(options);
  if (!options.input.empty()) return answer_file(chat, options);
  if (options.prompt.empty()) return converse(chat, options);
  std::vector<text::Message> messages = opening(options);
  messages.push_back({"user", options.prompt});
  chat.answer(messages);
}

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  return ilme::run_program(
      argc, argv, "ilme-chat",
      "Chats with a model: interactively, with one --prompt, or with every conversation of a file. The answer is "
      "printed "
      "as it is made.",
      [](CLI::App& app) -> std::function<void()> {
        auto options = std::make_shared<Options>();
        app.add_option("--model", options->model, "Model folder")->type_name("DIR")->required();
        app.add_option("--adapter", options->adapter, "LoRA adapter folder (PEFT layout) to put on the model")
            ->type_name("DIR");
        app.add_option("--prompt", options->prompt, "Answer this message and end");
        app.add_option("--input", options->input, "Answer each conversation of this .jsonl file and end")
            ->type_name("FILE");
        app.add_option("--system", options->system,
                       "System message that opens the conversation; default: the one of the model's template, if any");
        app.add_option("--max-tokens", options->max_tokens, "Longest answer, in tokens")->check(CLI::PositiveNumber);
        app.add_option("--context-length", options->context_length,
                       "Most tokens of conversation and answer together; 0: the model's max_position_embeddings");
        app.add_option("--temperature", options->temperature,
                       "0: always the most likely token. This and the next four default to the folder's "
                       "generation_config.json, then to 0.7 and top-p 0.9");
        app.add_option("--top-k", options->top_k, "Sample from so many of the likeliest tokens; 0: all");
        app.add_option("--top-p", options->top_p, "Sample from the likeliest tokens with this much probability");
        app.add_option("--min-p", options->min_p, "Drop tokens less likely than this share of the likeliest");
        app.add_option("--repetition-penalty", options->repetition_penalty, "Over 1: makes what was said less likely");
        app.add_option("--stop", options->stops, "End the answer before this text; may be given several times")
            ->type_name("TEXT");
        app.add_option("--seed", options->seed, "Seed of the sampling");
        app.add_option("--dtype", options->dtype, "Compute in fp32 or bf16")->check(CLI::IsMember({"fp32", "bf16"}));
        return [options] { run(*options); };
      });
}
