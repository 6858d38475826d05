#!/usr/bin/env python3
"""Greedy generation by ilme and by Transformers (dynamic and static cache) on the same model and prompts, with the same number of
threads (OMP_NUM_THREADS), in turns; prints the medians of ms a step, tokens/s and GB/s of weights read, and how many ids are the
same before the first that differs (in fp32 all should be; in bf16 the sums are rounded at other places).
usage: compare_generation.py --program build/bin/ilme-benchmark-generate-speed --model DIR [--dtype bf16] [--batch 1 4 8]
A DIR that holds only config.json gets random weights, of each rival's own. All of the time after the first new token counts.
needs: torch, transformers"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.generation import LogitsProcessor


class Clock(LogitsProcessor):
    """Notes the time at which the scores of each new token are there."""

    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores):
        self.times.append(time.perf_counter())
        return scores


def transformers_run(model, prompts, tokens, cache):
    ids = torch.tensor(prompts)
    clock = Clock()
    settings = {} if cache == "dynamic" else {"cache_implementation": cache, "disable_compile": True}
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens,
                             pad_token_id=0, logits_processor=[clock], **settings)
    seconds = (clock.times[-1] - clock.times[0]) / (len(clock.times) - 1)
    return seconds, out[:, ids.shape[1]:].tolist()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", default="build/bin/ilme-benchmark-generate-speed")
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--dtype", default="bf16", choices=["bf16", "fp32"])
    arguments.add_argument("--batch", nargs="*", type=int, default=[1, 4, 8])
    arguments.add_argument("--prompt-tokens", type=int, default=32)
    arguments.add_argument("--tokens", type=int, default=64)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--caches", nargs="*", default=["dynamic", "static"])
    arguments.add_argument("--json", metavar="FILE")
    options = arguments.parse_args()
    threads = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count()))
    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    if any(name.endswith(".safetensors") for name in os.listdir(options.model)):
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
    else:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(options.model), dtype=dtype)
    model.eval()
    model.generation_config.eos_token_id = None
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    if not model.config.tie_word_embeddings:
        weights -= model.get_input_embeddings().weight.numel() * model.get_input_embeddings().weight.element_size()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for batch in options.batch:
            generator = torch.Generator().manual_seed(batch)
            prompts = torch.randint(0, min(model.config.vocab_size, 40000), (batch, options.prompt_tokens),
                                    generator=generator).tolist()
            with open(f"{folder}/prompts.json", "w") as file:
                json.dump(prompts, file)
            seconds, ids = {}, {}
            for _ in range(options.repeat):
                subprocess.run([options.program, options.model, "--dtype", options.dtype, "--prompts", f"{folder}/prompts.json",
                                "--tokens", str(options.tokens), "--repeat", "1", "--json", f"{folder}/out.json"], check=True,
                               stdout=subprocess.DEVNULL)
                out = json.load(open(f"{folder}/out.json"))
                seconds.setdefault("ilme", []).append(out["runs"][0]["milliseconds_per_step"] / 1e3)
                ids["ilme"] = out["ids"]
                for cache in options.caches:
                    name = f"transformers, {cache}"
                    measured, ids[name] = transformers_run(model, prompts, options.tokens, cache)
                    seconds.setdefault(name, []).append(measured)
            print(f"{options.model}, {options.dtype}, batch {batch}, {threads} thread(s), {options.prompt_tokens} + {options.tokens} "
                  f"tokens, medians of {options.repeat}")
            ours = statistics.median(seconds["ilme"])
            for name, values in seconds.items():
                step = statistics.median(values)
                same = min(next((i for i, (a, b) in enumerate(zip(x, y)) if a != b), len(x)) for x, y in zip(ids["ilme"], ids[name]))
                print(f"  {name:24}{step * 1e3:9.2f} ms a step{batch / step:9.1f} tokens/s{weights / step * 1e-9:7.1f} GB/s"
                      f"{step / ours:7.2f}x  {same} of {options.tokens} ids the same", flush=True)
                results.append({"name": name, "model": options.model, "dtype": options.dtype, "batch": batch, "threads": threads,
                                "seconds_per_step": step, "tokens_per_second": batch / step, "gigabytes_per_second": weights / step * 1e-9,
                                "to_ilme": step / ours, "same_ids": same, "tokens": options.tokens})
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
