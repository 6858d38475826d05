#!/usr/bin/env bash
# Kill -9 during training, and the same command again: the loss curve is that of an uninterrupted run, digit for digit.
. "$(dirname "$0")/common.sh"
small_model
head -n 30 "$DATA/az_chat.jsonl" >chat.jsonl
PRETRAIN=("$BIN/ilme-pretrain" --model model --data shards --steps 60 --batch-size 2 --sequence-length 32
  --learning-rate 3e-3 --save-every 7 --log-every 1 --seed 5)
FINETUNE=("$BIN/ilme-finetune" --model model --data chat.jsonl --steps 40 --batch-size 2 --sequence-length 128
  --learning-rate 3e-3 --save-every 7 --log-every 1 --lora-rank 4 --lora-dropout 0.2 --seed 5)
# Embeddings first: killed before, at and after the switch. On a mixture.
cp -r shards more
PHASES=("$BIN/ilme-pretrain" --model model --data shards:2.5 more:1 --steps 36 --embedding-steps 18 --batch-size 2
  --sequence-length 32 --learning-rate 3e-3 --embedding-learning-rate 1e-2 --weight-decay-for '*embed*=0' --warmup-steps 3
  --save-every 6 --log-every 1 --seed 5)

# killed OUTPUT COMMAND...: kills the run three times at growing numbers of records, then lets it finish.
killed() {
  local output=$1 count
  shift
  for count in 9 18 30; do
    "$@" --output "$output" >log.txt 2>&1 &
    local pid=$!
    while kill -0 $pid 2>/dev/null && [ "$(cat "$output/metrics.jsonl" 2>/dev/null | wc -l)" -lt $count ]; do sleep 0.01; done
    kill -9 $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
  done
  "$@" --output "$output" >log.txt 2>&1 || fail "the run did not finish: $(tail -n 3 log.txt)"
  grep -q 'resuming from' log.txt || fail "the run did not resume: $(head -n 5 log.txt)"
}

for kind in pretrain bf16 finetune phases; do
  result=model.safetensors
  case $kind in
    pretrain) command=("${PRETRAIN[@]}") ;;
    bf16) command=("${PRETRAIN[@]}" --state bf16) ;;
    finetune) command=("${FINETUNE[@]}") result=adapter_model.safetensors ;;
    phases) command=("${PHASES[@]}") ;;
  esac
  "${command[@]}" --output whole-$kind >/dev/null 2>&1 || fail "$kind does not run"
  killed killed-$kind "${command[@]}"
  diff <(losses whole-$kind) <(losses killed-$kind) || fail "$kind: the losses differ"
  cmp whole-$kind/$result killed-$kind/$result || fail "$kind: the results differ"
done

# Updated in backward, the same curve.
"${PRETRAIN[@]}" --max-grad-norm 0 --output unclipped >/dev/null 2>&1
"${PRETRAIN[@]}" --max-grad-norm 0 --optimizer-in-backward --memory-report --output in-backward >log.txt 2>&1 ||
  fail "--optimizer-in-backward: $(tail -n 3 log.txt)"
diff <(losses unclipped) <(losses in-backward) || fail "--optimizer-in-backward changes the losses"
grep -q 'largest batch within it' log.txt || fail "--memory-report says nothing: $(cat log.txt)"
grep -q '"largest_batch_size"' in-backward/memory.json || fail "--memory-report writes no memory.json"
refuses 2 "max_grad_norm is 1" new "${PRETRAIN[@]}" --optimizer-in-backward --output new
refuses 2 "accumulate is 2" new "${PRETRAIN[@]}" --optimizer-in-backward --max-grad-norm 0 --accumulate 2 --output new

# Without masters the run is another one, that learns as much; each kind goes on from the other's checkpoints.
cmp -s whole-pretrain/model.safetensors whole-bf16/model.safetensors && fail "--state bf16 changes nothing"
paste <(losses whole-pretrain) <(losses whole-bf16) | tr -d '"los:' | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 0.1) exit 1 }' ||
  fail "--state masters and bf16 differ by more than 0.1"
for change in "--state bf16" "--dtype fp32"; do
  "${PRETRAIN[@]}" --resume whole-pretrain/checkpoints/step-00000056 $change --output changed >log.txt 2>&1 ||
    fail "$change does not go on from masters: $(tail -n 3 log.txt)"
  paste <(losses whole-pretrain | tail -n 4) <(losses changed | tail -n 4) | tr -d '"los:' |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 0.1) exit 1 }' || fail "$change: another curve: $(losses changed)"
  [ "$change" = "--dtype fp32" ] || grep -q 'note: moments of the checkpoint are float32, rounded to bfloat16' log.txt ||
    fail "$change: rounding is not said: $(cat log.txt)"
  rm -r changed
done

"${PHASES[@]}" --resume never --output phases 2>&1 >/dev/null | grep '^phase' >phases.txt
diff phases.txt - <<'EOF' || fail "the phases are not said: $(cat phases.txt)"
phase 1 of 2 from step 1: embeddings and head (12.8k parameters train)
phase 2 of 2 from step 19: everything (37.5k parameters train)
EOF
grep -q '"learning_rate":0.003[0-9]*,"learning_rate/model.embed_tokens.weight":0.01' phases/metrics.jsonl ||
  fail "learning rates by group are not logged: $(sed -n 21p phases/metrics.jsonl)"

# The end of time is an end like any other: the model is there, and no step follows.
TIMED=("$BIN/ilme-pretrain" --model model --data shards --steps 1000000 --max-hours 0.0004 --batch-size 2
  --sequence-length 32 --output timed)
for run in first again; do
  "${TIMED[@]}" >log.txt 2>&1 || fail "--max-hours: $(tail -n 3 log.txt)"
  grep -q -- '--max-hours reached at step' log.txt || fail "--max-hours is not said: $(cat log.txt)"
  [ -s timed/model.safetensors ] || fail "--max-hours: no model"
done
grep -q '^0 steps' log.txt || fail "a run without time left took steps: $(cat log.txt)"

# Another split of the same global batch goes on from any checkpoint, with the same curve.
SPLIT=("$BIN/ilme-pretrain" --model model --data shards --steps 60 --sequence-length 32 --learning-rate 1e-3 --dtype fp32
  --save-every 28 --keep 0 --log-every 1 --seed 5)
"${SPLIT[@]}" --batch-size 4 --output rows4 >/dev/null 2>&1
"${SPLIT[@]}" --batch-size 1 --accumulate 4 --resume rows4/checkpoints/step-00000028 --output rows1 >log.txt 2>&1 ||
  fail "another accumulation of the same global batch: $(tail -n 3 log.txt)"
[ "$(losses rows1 | wc -l)" = 32 ] || fail "another accumulation: $(losses rows1 | wc -l) steps, expected 32"
paste <(losses rows4 | tail -n 32) <(losses rows1) | tr -d '"los:' | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5) exit 1 }' ||
  fail "another accumulation of the same global batch changes the losses"
refuses 2 "global_batch_size is 4, this run's is 2" - "${SPLIT[@]}" --batch-size 2 \
  --resume rows4/checkpoints/step-00000028 --output rows2

# A loss that leaps, at a line like no other, takes the run back to a checkpoint and past that line.
for ((i = 0; i < 100; ++i)); do head -n 1 text.txt; done >same.txt
echo 'k8Tq/zR+3vWx0LmB7dYpQ2sJ9hUcE5nGfA1oX4iVtKb6' >>same.txt
"$BIN/ilme-prepare" --tokenizer tokenizer --input same.txt --output same >/dev/null 2>&1
"$BIN/ilme-pretrain" --model model --data same --steps 125 --batch-size 2 --sequence-length 32 --learning-rate 1e-2 \
  --save-every 10 --keep 0 --log-every 1 --seed 3 --rewind-on-spike 2 --output spiky >log.txt 2>&1 ||
  fail "--rewind-on-spike: $(tail -n 3 log.txt)"
grep -q 'times the median .*same: documents [^)]*100.*; back to step' log.txt || fail "no spike is said: $(tail -n 3 log.txt)"
grep -q '"rewinds":1' spiky/metrics.jsonl || fail "no rewind in the metrics"

# Steps that teach nothing are said with their documents, and too many end the run.
refuses 1 "3 steps in a row taught nothing.*shards: document" - "${PRETRAIN[@]}" --learning-rate-for '*=1e38' \
  --max-bad-steps 3 --output nothing
grep -q '^step [0-9]* skipped: .*not finite (shards: document' err.txt || fail "skipped steps are not said: $(cat err.txt)"
grep -q '"skipped":"the loss' nothing/metrics.jsonl || fail "skipped steps are not in metrics.jsonl"
grep -q '"data_share":' nothing/metrics.jsonl || fail "no data_share in metrics.jsonl"

# SIGTERM: a checkpoint, a clean end, and the rest later.
"${PRETRAIN[@]}" --output stopped >log.txt 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && [ "$(cat stopped/metrics.jsonl 2>/dev/null | wc -l)" -lt 5 ]; do sleep 0.01; done
kill -TERM $pid
wait $pid || fail "SIGTERM: exit code $?"
grep -q 'stopped at step' log.txt || fail "SIGTERM: $(tail -n 3 log.txt)"
"${PRETRAIN[@]}" --output stopped >log.txt 2>&1
diff <(losses whole-pretrain) <(losses stopped) || fail "SIGTERM: the losses differ"

# The fused and the plain operations learn the same.
"${PRETRAIN[@]}" --dtype fp32 --output fused >/dev/null 2>&1
"${PRETRAIN[@]}" --dtype fp32 --ops reference --output plain >/dev/null 2>&1
paste <(losses fused) <(losses plain) | tr -d '"los:' | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-3) exit 1 }' ||
  fail "fused and reference losses differ by more than 1e-3"
echo "every run continued exactly"
