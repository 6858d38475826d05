#!/usr/bin/env bash
# Fused operations, checkpointed activations and plain ATen learn the same: over 300 steps of real text in bf16 with float32
# masters, the loss of each is as near to that of plain float32 as plain bf16 is.
. "$(dirname "$0")/common.sh"
head -n 400 "$DATA/az_sample.txt" >text.txt
"$BIN/ilme-tokenizer" train --input text.txt --vocab-size 800 --output tokenizer >/dev/null 2>&1
"$BIN/ilme-prepare" --tokenizer tokenizer --input text.txt --output shards >/dev/null 2>&1
"$BIN/ilme-model" init --tokenizer tokenizer --hidden-size 64 --layers 2 --heads 4 --kv-heads 2 --seed 3 --output model \
  >/dev/null 2>&1

# curve NAME OPTIONS...: 300 losses in NAME.txt.
curve() {
  local name=$1
  shift
  "$BIN/ilme-pretrain" --model model --data shards --output "$name" --steps 300 --batch-size 4 --sequence-length 64 \
    --learning-rate 1e-3 --warmup-steps 10 --log-every 1 --seed 5 "$@" >log.txt 2>&1 || fail "$name: $(tail -n 3 log.txt)"
  losses "$name" | sed 's/.*://' >"$name.txt"
  [ "$(wc -l <"$name.txt")" = 300 ] || fail "$name: $(wc -l <"$name.txt") losses, expected 300"
}

curve exact --dtype fp32 --ops reference
curve plain --dtype bf16 --ops reference
curve fused --dtype bf16 --ops fused
curve selective --dtype bf16 --ops fused --checkpoint-activations selective
curve block --dtype bf16 --ops fused --checkpoint-activations block
curve fused32 --dtype fp32 --ops fused

# distance A B: the mean absolute difference of two curves.
distance() { paste "$1.txt" "$2.txt" | awk '{ d = $1 - $2; sum += d < 0 ? -d : d } END { printf "%.9f", sum / NR }'; }
first=$(head -n 10 exact.txt | awk '{ s += $1 } END { print s / NR }') last=$(tail -n 10 exact.txt | awk '{ s += $1 } END { print s / NR }')
awk "BEGIN { exit !($last < $first - 1) }" || fail "nothing was learnt: loss $first, then $last"
noise=$(distance plain exact)
echo "loss $first -> $last; plain bf16 is $noise away from plain float32"
for name in fused selective block; do
  found=$(distance $name exact)
  echo "$name: $found"
  awk "BEGIN { exit !($found <= 1.5 * $noise + 1e-4) }" || fail "$name is $found away from plain float32, plain bf16 $noise"
done
cmp -s fused.txt block.txt || fail "--checkpoint-activations block changes the losses"
found=$(distance fused32 exact)
echo "fused float32: $found"
awk "BEGIN { exit !($found <= 0.1 * $noise) }" || fail "fused float32 is $found away from plain float32"
