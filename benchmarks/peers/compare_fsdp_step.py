#!/usr/bin/env python3
"""Races training steps of one Llama over several ranks: ilme's FullySharded (bin/ilme-benchmark-fsdp-step) against PyTorch's FSDP2
(fully_shard on every layer and the model) with Hugging Face Transformers, both over Gloo on CPUs and started by torchrun, in turns, each
run in fresh processes. Prints a table for each number of ranks: step time, ratio, a rank's parameters, gradients and optimizer state, the
process's peak memory, and for ilme the share of the communication that hides behind the computation; writes the same as JSON.

usage: compare_fsdp_step.py --bin build/bin [--ranks 1 2 4] [--layers 4] [--hidden 1024] [--vocab 32000] [--batch 1] [--sequence 512]
                            [--dtype fp32|bf16] [--steps 5] [--repeat 2] [--json FILE]

Both sides: random weights and tokens, other rows on each rank, AdamW, clipping at norm 1, resharding after the forward. fp32 is all
float32. bf16: ilme keeps bf16 weights with float32 masters, sums and sends gradients in float32; FSDP2 keeps float32 weights and computes in
bf16 (MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32)). "large blocks kept" is FSDP2 with glibc told to keep freed memory
(MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_), which ilme does by itself. On one rank both run without a group.
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
import json, os, resource, sys, time
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM
a = json.loads(sys.argv[1])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(a["threads"])
torch.manual_seed(1)
heads = max(1, a["hidden"] // 64)
config = LlamaConfig(vocab_size=a["vocab"], hidden_size=a["hidden"], intermediate_size=4 * a["hidden"], num_hidden_layers=a["layers"],
                     num_attention_heads=heads, num_key_value_heads=max(1, heads // 4), rope_theta=500000.0, tie_word_embeddings=True,
                     max_position_embeddings=a["sequence"], use_cache=False)
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
if world > 1:
    dist.init_process_group("gloo")
    mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if a["dtype"] == "bf16" else MixedPrecisionPolicy()
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cpu")
    model.tie_weights()
    # what is no parameter was on the meta device too
    fresh = type(model.model.rotary_emb)(config)
    model.model.rotary_emb.inv_freq = fresh.inv_freq
    model.model.rotary_emb.original_inv_freq = fresh.inv_freq
else:
    model = LlamaForCausalLM(config)
    if a["dtype"] == "bf16":
        model = model.to(torch.bfloat16)
with torch.no_grad():
    for p in model.parameters():
        local = p.to_local() if hasattr(p, "to_local") else p
        local.fill_(1.0) if p.dim() == 1 else local.normal_(0.0, 0.02)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
generator = torch.Generator().manual_seed(100 + rank)
seconds = []
for step in range(a["warmup"] + a["steps"]):
    rows = torch.randint(0, a["vocab"], (a["batch"], a["sequence"]), generator=generator)
    if world > 1:
        dist.barrier()
    start = time.perf_counter()
    loss = model(input_ids=rows, labels=rows).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if step == 0:
        local = lambda t: t.to_local() if hasattr(t, "to_local") else t
        gradients = sum(local(p.grad).numel() * local(p.grad).element_size() for p in model.parameters())
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    loss.item()
    if step >= a["warmup"]:
        seconds.append(time.perf_counter() - start)
parameters = sum(local(p).numel() * local(p).element_size() for p in model.parameters())
state = sum(local(t).numel() * local(t).element_size() for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
if rank == 0:
    result = {"step_seconds": sorted(seconds)[len(seconds) // 2], "loss": loss.item(), "peak_memory_bytes": peak, "library_memory_bytes": base,
              "memory": {"parameter_bytes": parameters, "gradient_bytes": gradients, "optimizer_bytes": state}}
    open(a["result"], "w").write(json.dumps(result))
if world > 1:
    dist.destroy_process_group()
"""
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 62)}
VARIANTS = {"ilme": None, "FSDP2": {}, "FSDP2, large blocks kept": KEEP}


def run(args, name, ranks, port):
    shape = {"layers": args.layers, "hidden": args.hidden, "vocab": args.vocab, "batch": args.batch, "sequence": args.sequence}
    threads = max(1, (os.cpu_count() or 1) // ranks)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryDirectory() as folder:
        result, script = pathlib.Path(folder) / "result.json", pathlib.Path(folder) / "rival.py"
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(port)]
        if name == "ilme":
            command += ["--no-python", str(pathlib.Path(args.bin) / "ilme-benchmark-fsdp-step"), "--json", str(result), "--dtype", args.dtype,
                        "--steps", str(args.steps), "--warmup", str(args.warmup)]
            for key, value in shape.items():
                command += ["--" + key, str(value)]
        else:
            environment.update(VARIANTS[name])
            script.write_text(RIVAL)
            command += [str(script), json.dumps({**shape, "dtype": args.dtype, "threads": threads, "steps": args.steps, "warmup": args.warmup,
                                                 "result": str(result)})]
        done = subprocess.run(command, env=environment, text=True, capture_output=True)
        if done.returncode != 0 or not result.exists():
            lines = [line for line in done.stderr.splitlines() if "Error" in line or "error" in line]
            return {"error": (lines or done.stderr.splitlines() or [f"status {done.returncode}"])[0][:300]}
        return json.loads(result.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of ilme's binaries")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    for name, value in (("layers", 4), ("hidden", 1024), ("vocab", 32000), ("batch", 1), ("sequence", 512), ("steps", 5), ("warmup", 2),
                        ("repeat", 2), ("port", 29731)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--dtype", default="fp32", choices=("bf16", "fp32"))
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS), metavar="NAME")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    title = (f"{args.layers} layers, hidden {args.hidden}, vocabulary {args.vocab}, {args.batch} x {args.sequence} tokens a rank, {args.dtype}, "
             f"{os.cpu_count()} cores, medians of {args.repeat}")
    print(title)
    everything = {}
    for ranks in args.ranks:
        runs = {name: [] for name in args.variants}
        for i in range(args.repeat):
            for name in args.variants:
                runs[name].append(run(args, name, ranks, args.port + i))
                print(f"{ranks} ranks, {name}: {runs[name][-1].get('step_seconds', runs[name][-1].get('error'))}", file=sys.stderr)
        rows = {}
        for name, results in runs.items():
            good = [result for result in results if "error" not in result]
            rows[name] = {"error": results[0]["error"]} if not good else {
                **good[0], "step_seconds": statistics.median(r["step_seconds"] for r in good),
                "all_step_seconds": [r["step_seconds"] for r in good], "peak_memory_bytes": max(r["peak_memory_bytes"] for r in good)}
        everything[ranks] = rows
        base = rows.get("FSDP2", {}).get("step_seconds")
        print(f"\n{ranks} rank{'s' if ranks > 1 else ''}\n{'':<28}{'s a step':>9}{'ratio':>7}{'weights':>10}{'gradients':>11}{'optimizer':>11}"
              f"{'peak':>10}{'hidden':>9}")
        for name, row in rows.items():
            if row.get("error"):
                print(f"{name:<28}  {row['error']}")
                continue
            gigabytes = [f"{row['memory'][key + '_bytes'] / 1e9:.3f} GB" for key in ("parameter", "gradient", "optimizer")]
            hidden = f"{100 * row['communication_hidden']:.0f} %" if ranks > 1 and "communication_hidden" in row else ""
            ratio = f"{base / row['step_seconds']:.2f}" if base else ""
            print(f"{name:<28}{row['step_seconds']:>9.3f}{ratio:>7}{gigabytes[0]:>10}{gigabytes[1]:>11}{gigabytes[2]:>11}"
                  f"{row['peak_memory_bytes'] / 1e9:>7.2f} GB{hidden:>9}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"title": title, "ranks": everything}, indent=1))


if __name__ == "__main__":
    main()
