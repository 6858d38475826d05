#!/usr/bin/env python3
"""Races training steps of one Llama shape: ilme's (bin/ilme-benchmark-train-step) against Hugging Face Transformers eager and
compiled, in turns, each in a fresh process. Prints a table: tokens/s, ratios, peak memory, memory above the model's state (weights,
gradients, optimizer), and with --memory-limit the largest batch that fits; writes the same as JSON and as a page with charts.

usage: compare_train_step.py --bin build/bin [--layers 2] [--hidden 2048] [--vocab 128256] [--batch 1] [--sequence 2048]
                             [--dtype bf16] [--threads N] [--steps 3] [--repeat 2] [--variants NAME...] [--memory-limit 16GB]
                             [--json FILE] [--html FILE]

Both sides: random weights and tokens, AdamW, clipping at norm 1. Transformers keeps weights, gradients and moments in the dtype, as
people run it. ilme keeps float32 gradient sums, and beside bf16 weights float32 masters and moments ("ilme") or no masters and a bf16
first moment ("ilme, bf16 state"). "large blocks kept" is Transformers with glibc told to keep freed memory
(MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_), which ilme does by itself.
"""
import argparse
import html
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

RIVAL = """
import json, resource, sys, time
import torch
from transformers import LlamaConfig, LlamaForCausalLM
a = json.loads(sys.argv[1])
torch.set_num_threads(a["threads"])
torch.manual_seed(1)
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
heads = max(1, a["hidden"] // 64)
config = LlamaConfig(vocab_size=a["vocab"], hidden_size=a["hidden"], intermediate_size=4 * a["hidden"], num_hidden_layers=a["layers"],
                     num_attention_heads=heads, num_key_value_heads=max(1, heads // 4), rope_theta=500000.0, tie_word_embeddings=True,
                     max_position_embeddings=a["sequence"], use_cache=False)
torch.set_default_dtype({"bf16": torch.bfloat16, "fp32": torch.float32}[a["dtype"]])
model = LlamaForCausalLM(config)
model.train()
if a["checkpointing"]:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
step_model = torch.compile(model) if a["compiled"] else model
seconds = []
for step in range(a["warmup"] + a["steps"]):
    rows = torch.randint(0, a["vocab"], (a["batch"], a["sequence"]))
    start = time.perf_counter()
    loss = step_model(input_ids=rows, labels=rows).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    loss.item()
    if step >= a["warmup"]:
        seconds.append(time.perf_counter() - start)
weights = sum(p.numel() * p.element_size() for p in model.parameters())
state = sum(t.numel() * t.element_size() for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"step_seconds": sorted(seconds)[len(seconds) // 2], "peak_memory_bytes": peak, "library_memory_bytes": base,
                  "model_state_bytes": 2 * weights + state, "above_model_state_bytes": peak - base - 2 * weights - state}))
"""
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 62)}
ILME = {"ilme": [], "ilme, bf16 state": ["--state", "bf16"], "ilme, selective": ["--checkpoint-activations", "selective"],
        "ilme, blocks checkpointed": ["--checkpoint-activations", "block"], "ilme reference": ["--variant", "reference"]}
TRANSFORMERS = {"transformers": (False, False, {}), "transformers, large blocks kept": (False, False, KEEP),
                "transformers compiled": (True, False, {}), "transformers compiled, large blocks kept": (True, False, KEEP),
                "transformers, blocks checkpointed": (False, True, {})}
DEFAULT = ["ilme", "ilme, bf16 state", "transformers", "transformers, large blocks kept"]


def size(text):
    for suffix, factor in (("GB", 10**9), ("GiB", 2**30), ("MB", 10**6), ("MiB", 2**20)):
        if text.endswith(suffix):
            return int(float(text[:-len(suffix)]) * factor)
    return int(text)


def run(args, name, batch, steps, warmup):
    shape = {"layers": args.layers, "hidden": args.hidden, "vocab": args.vocab, "batch": batch, "sequence": args.sequence}
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        if name in ILME:
            command = [str(pathlib.Path(args.bin) / "ilme-benchmark-train-step"), "--json", str(result), "--dtype", args.dtype,
                       "--steps", str(steps), "--warmup", str(warmup), *ILME[name]]
            for key, value in shape.items():
                command += ["--" + key, str(value)]
        else:
            compiled, checkpointing, extra = TRANSFORMERS[name]
            environment.update(extra)
            command = [sys.executable, "-c", RIVAL, json.dumps({**shape, "dtype": args.dtype, "threads": args.threads, "steps": steps,
                                                                "warmup": warmup, "compiled": compiled,
                                                                "checkpointing": checkpointing})]
        done = subprocess.run(command, env=environment, text=True, capture_output=True)
        if done.returncode != 0:
            return {"error": (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1][:200]}
        figures = json.loads(result.read_text()) if name in ILME else json.loads(done.stdout.splitlines()[-1])
    figures["tokens_per_second"] = batch * args.sequence / figures["step_seconds"]
    return figures


def largest_batch(args, name):
    """The largest batch whose peak memory is within the limit: foretold by the peaks of batches 1 and 2, then tried."""
    peaks = [run(args, name, batch, 1, 1).get("peak_memory_bytes") for batch in (1, 2)]
    if None in peaks or peaks[0] > args.memory_limit:
        return 0
    batch = max(1, int(1 + (args.memory_limit - peaks[0]) / max(1, peaks[1] - peaks[0])))
    while batch > 1:
        peak = run(args, name, batch, 1, 1).get("peak_memory_bytes")
        if peak is not None and peak <= args.memory_limit:
            break
        batch -= max(1, batch // 16)
    return batch


def chart(title, unit, values):
    """Horizontal bars as SVG; ours in another colour."""
    most, rows = max(value for _, value in values) or 1, []
    for i, (name, value) in enumerate(values):
        y, width = 34 + i * 30, 330 * value / most
        rows.append(f'<text x="250" y="{y + 15}" text-anchor="end">{html.escape(name)}</text>'
                    f'<rect x="258" y="{y}" width="{width:.1f}" height="20" fill="{"#1f6feb" if name.startswith("ilme") else "#9aa4b2"}"/>'
                    f'<text x="{264 + width:.1f}" y="{y + 15}">{value:,.4g} {unit}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{44 + 30 * len(values)}" font-family="sans-serif" '
            f'font-size="13"><text x="8" y="20" font-weight="bold">{html.escape(title)}</text>{"".join(rows)}</svg>')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of ilme's binaries")
    for name, value in (("layers", 2), ("hidden", 2048), ("vocab", 128256), ("batch", 1), ("sequence", 2048), ("steps", 3),
                        ("warmup", 1), ("repeat", 2), ("threads", os.cpu_count())):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp32"))
    parser.add_argument("--variants", nargs="*", default=DEFAULT, choices=[*ILME, *TRANSFORMERS], metavar="NAME",
                        help="of: " + "; ".join([*ILME, *TRANSFORMERS]))
    parser.add_argument("--memory-limit", type=size, help="also find the largest batch within so much, such as 16GB")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--html", metavar="FILE")
    args = parser.parse_args()
    runs = {name: [] for name in args.variants}
    for _ in range(args.repeat):
        for name in args.variants:
            runs[name].append(run(args, name, args.batch, args.steps, args.warmup))
            print(f"{name}: {runs[name][-1].get('tokens_per_second', runs[name][-1].get('error'))}", file=sys.stderr)
    rows = {}
    for name, results in runs.items():
        good = [result for result in results if "error" not in result]
        rows[name] = {"error": results[0].get("error")} if not good else {
            **good[0], "tokens_per_second": statistics.median(r["tokens_per_second"] for r in good),
            "all_tokens_per_second": [r["tokens_per_second"] for r in good],
            **{key: max(r[key] for r in good) for key in ("peak_memory_bytes", "above_model_state_bytes")}}
        if good and args.memory_limit:
            rows[name]["largest_batch"] = largest_batch(args, name)
    base = rows.get("transformers", {}).get("tokens_per_second")
    title = (f"{args.layers} layers, hidden {args.hidden}, vocabulary {args.vocab}, {args.batch} x {args.sequence} tokens, {args.dtype}, "
             f"{args.threads} threads")
    print(f"{title}, medians of {args.repeat}")
    print(f"{'':<42}{'tokens/s':>9}{'ratio':>7}{'of matmul':>10}{'peak':>10}{'above state':>13}"
          + (f"{'largest batch':>15}" if args.memory_limit else ""))
    for name, row in rows.items():
        if row.get("error"):
            print(f"{name:<42}  {row['error']}")
            continue
        share = f"{100 * row['matmul_share']:.0f} %" if "matmul_share" in row else ""
        ratio = f"{row['tokens_per_second'] / base:.2f}" if base else ""
        print(f"{name:<42}{row['tokens_per_second']:>9.1f}{ratio:>7}{share:>10}{row['peak_memory_bytes'] / 1e9:>7.2f} GB"
              f"{row['above_model_state_bytes'] / 1e9:>10.2f} GB" + (f"{row['largest_batch']:>15}" if args.memory_limit else ""))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"title": title, "rows": rows}, indent=1))
    if args.html:
        good = {name: row for name, row in rows.items() if not row.get("error")}
        charts = [chart("Throughput", "tokens/s", [(n, r["tokens_per_second"]) for n, r in good.items()]),
                  chart("Peak memory", "GB", [(n, r["peak_memory_bytes"] / 1e9) for n, r in good.items()]),
                  chart("Memory above the model's state", "GB", [(n, r["above_model_state_bytes"] / 1e9) for n, r in good.items()])]
        if args.memory_limit:
            charts.append(chart(f"Largest batch in {args.memory_limit / 1e9:g} GB", "rows",
                                [(n, r["largest_batch"]) for n, r in good.items()]))
        pathlib.Path(args.html).write_text(f"<!doctype html><meta charset='utf-8'><title>Training step</title><body style='font-family:"
                                           f"sans-serif'><h1>Training step</h1><p>{html.escape(title)}</p>{'<br>'.join(charts)}")


if __name__ == "__main__":
    main()
