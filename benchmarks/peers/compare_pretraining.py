#!/usr/bin/env python3
"""Continues the pre-training of one model folder with ilme-pretrain and with Hugging Face Transformers on the same rows, in
turns, each in a fresh process, and prints tokens/s (median step without the first) and peak memory of the whole process.

usage: compare_pretraining.py --bin build/bin --model DIR --data SHARDS [--batch 4] [--sequence 512] [--steps 6] [--repeat 2]
                              [--threads N] [--dtype bf16] [--json FILE]

Transformers keeps weights and AdamW's moments in the dtype (bf16 has no masters, as people run it) and takes every row as one
document with full causal attention (SDPA); ilme keeps float32 masters and moments and attends within documents. The rival also
runs with glibc told to keep large blocks (MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_), which is what ilme does itself.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

RIVAL = """
import json, resource, sys, time
import numpy, torch
from transformers import AutoModelForCausalLM
a = json.loads(sys.argv[1])
torch.set_num_threads(a["threads"])
dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[a["dtype"]]
model = AutoModelForCausalLM.from_pretrained(a["model"], dtype=dtype)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
ids = torch.from_numpy(numpy.fromfile(a["tokens"], dtype=a["type"]).astype(numpy.int64))
seconds = []
for step in range(a["steps"]):
    start = time.perf_counter()
    count = a["batch"] * a["sequence"]
    rows = ids[step * count:(step + 1) * count].view(a["batch"], a["sequence"])
    loss = model(input_ids=rows, labels=rows).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    seconds.append(time.perf_counter() - start)
print(json.dumps({"seconds": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "loss": loss.item()}))
"""

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name in ("bin", "model", "data"):
    parser.add_argument("--" + name, required=True)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--sequence", type=int, default=512)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--repeat", type=int, default=2)
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp32"))
parser.add_argument("--json")
args = parser.parse_args()
count = args.batch * args.sequence


def run(command, environment):
    command = [str(part) for part in command]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": str(args.threads), **environment}, text=True,
                          capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)[:200]}\n{done.stderr[-2000:]}")
    return done


def ilme():
    with tempfile.TemporaryDirectory() as folder:
        log = run([sys.executable, "-c", """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)""",
                   pathlib.Path(args.bin) / "ilme-pretrain", "--model", args.model, "--data", args.data, "--output", folder,
                   "--steps", args.steps, "--batch-size", args.batch, "--sequence-length", args.sequence,
                   "--learning-rate", "1e-5", "--log-every", "1", "--dtype", args.dtype], {})
        lines = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
        speeds = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
        return {"seconds": [count / speed for speed in speeds], "memory": int(log.stdout)}


def transformers(environment):
    with tempfile.NamedTemporaryFile() as tokens:
        bits = int(json.loads((pathlib.Path(args.data) / "index.json").read_text())["token_type"][1:])
        tokens.write(sorted(pathlib.Path(args.data).glob("shard-*.bin"))[0].read_bytes()[:bits // 8 * count * args.steps])
        tokens.flush()
        settings = {"model": args.model, "tokens": tokens.name, "type": f"uint{bits}", "threads": args.threads, "dtype": args.dtype,
                    "steps": args.steps, "batch": args.batch, "sequence": args.sequence}
        return json.loads(run([sys.executable, "-c", RIVAL, json.dumps(settings)], environment).stdout)


keep = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 62)}
runners = {"ilme": ilme, "transformers": lambda: transformers({}), "transformers, large blocks kept": lambda: transformers(keep)}
results = {name: {"tokens_per_second": [], "memory": []} for name in runners}
for _ in range(args.repeat):
    for name, runner in runners.items():
        result = runner()
        results[name]["tokens_per_second"].append(count / statistics.median(result["seconds"][1:]))
        results[name]["memory"].append(result["memory"])
base = statistics.median(results["transformers"]["tokens_per_second"])
print(f"{args.model}: {args.batch} x {args.sequence}, {args.dtype}, {args.threads} threads")
print(f"{'':<34}{'tokens/s':>10}{'ratio':>8}{'peak memory':>14}")
for name, result in results.items():
    result["median"] = statistics.median(result["tokens_per_second"])
    print(f"{name:<34}{result['median']:>10.0f}{result['median'] / base:>8.2f}{max(result['memory']) / 1e9:>11.2f} GB")
if args.json:
    pathlib.Path(args.json).write_text(json.dumps({"arguments": vars(args), "results": results}, indent=1))
