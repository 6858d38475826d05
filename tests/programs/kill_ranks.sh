#!/usr/bin/env bash
# Kill -9 of one of two ranks at random moments of training and saving, and the same command again, KILLS times (3; the
# long form is 50): the other rank ends with a line that names the dead one, no checkpoint is lost, and the losses are
# those of an uninterrupted run: to the bit with two ranks, within 1e-5 with one or four. kill_ranks.sh BIN DATA [KILLS]
. "$(dirname "$0")/common.sh"
KILLS=${3:-3}
small_model
STEPS=120
PRETRAIN=("$BIN/ilme-pretrain" --model model --data shards --steps $STEPS --sequence-length 32 --learning-rate 1e-3
  --dtype fp32 --shard full --save-every 3 --log-every 1 --seed 5)

# launch SIZE COMMAND...: starts the ranks; their ids go to PIDS, what they print to rank.N.txt.
launch() {
  local size=$1 port=$((20000 + RANDOM % 12000)) rank
  shift
  PIDS=()
  rm -f rank.*.txt # or one of them could be read before its rank has emptied it
  for ((rank = 0; rank < size; ++rank)); do
    RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$size MASTER_ADDR=localhost MASTER_PORT=$port \
      "$@" >rank.$rank.txt 2>&1 &
    PIDS+=($!)
  done
}

# finished: waits for the ranks; all must end well.
finished() {
  local pid
  for pid in "${PIDS[@]}"; do
    wait "$pid" || fail "a rank ended with code $?: $(tail -n 3 rank.*.txt)"
  done
}

newest() { { ls "$1/checkpoints" 2>/dev/null | grep '^step-' || true; } | tail -n 1; }
records() { { cat "$1/metrics.jsonl" 2>/dev/null || true; } | wc -l; }

writing() { compgen -G "$1/checkpoints/.*step-*" || true; } # unfinished checkpoints
running() { kill -0 "${PIDS[0]}" 2>/dev/null; }

# close A B FIRST: losses of two runs, from the FIRST step and 50 steps on, differ by at most 1e-5.
close() {
  paste <(losses "$1" | tail -n +"$3" | head -n 50) <(losses "$2" | tail -n +"$3" | head -n 50) | tr -d '"los:' |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d } END { print NR " losses, largest difference " most
           exit !(NR > 0 && most <= 1e-5) }'
}

launch 2 "${PRETRAIN[@]}" --batch-size 2 --output whole
finished
[ "$(losses whole | wc -l)" = $STEPS ] || fail "the uninterrupted run has $(losses whole | wc -l) losses"

# completed: lets the run go to its end, and compares it.
completed() {
  launch 2 "${PRETRAIN[@]}" --batch-size 2 --output killed
  finished
  grep -q 'resuming from' rank.0.txt || fail "the last run did not resume: $(head -n 5 rank.0.txt)"
  diff <(losses whole) <(losses killed) || fail "the losses differ"
  cmp whole/model.safetensors killed/model.safetensors || fail "the models differ"
}

while_saving=0 runs=1 copied=
for ((kill = 1; kill <= KILLS; ++kill)); do
  from=$(newest killed)
  if [ $((10#0${from#step-})) -gt $((STEPS - 50)) ]; then # too near to the end for another kill
    completed
    rm -r killed
    from= runs=$((runs + 1))
  fi
  launch 2 "${PRETRAIN[@]}" --batch-size 2 --output killed
  # The moment: some steps after the newest checkpoint's, at least one, and some milliseconds more; every other time when
  # the next checkpoint is being written.
  goal=$((10#0${from#step-} + RANDOM % 9))
  while running && { ! grep -qs '^step=' rank.0.txt || [ "$(records killed)" -lt $goal ]; }; do sleep 0.005; done
  if [ $((kill % 2)) = 0 ]; then
    while running && [ -z "$(writing killed)" ]; do :; done
    sleep "0.00$((RANDOM % 10))"
  else
    sleep "0.0$((RANDOM % 50 + 10))"
  fi
  victim=$((RANDOM % 2))
  { kill -KILL "${PIDS[victim]}" && wait "${PIDS[victim]}"; } 2>/dev/null || true
  code=0
  wait "${PIDS[1 - victim]}" || code=$?
  [ $code = 1 ] || fail "kill $kill: the other rank ended with code $code: $(tail -n 3 rank.$((1 - victim)).txt)"
  [ "$(grep -c 'error: ' rank.$((1 - victim)).txt)" = 1 ] &&
    grep -Eq "error: rank $victim \(host [^ ]+, pid ${PIDS[victim]}\) (has died|is gone)" rank.$((1 - victim)).txt ||
    fail "kill $kill: the other rank says $(tail -n 3 rank.$((1 - victim)).txt)"
  if [ -n "$from" ]; then
    grep -q "resuming from .*$from" rank.0.txt || fail "kill $kill: $from was not resumed: $(head -n 5 rank.0.txt)"
  fi
  [[ ! "$(newest killed)" < "$from" ]] || fail "kill $kill: checkpoint $from is lost, $(newest killed) is the newest"
  [ -z "$(writing killed)" ] || while_saving=$((while_saving + 1))
  if [ -z "$copied" ] && [ -n "$(newest killed)" ] && [ $((kill * 2)) -ge "$KILLS" ]; then
    copied=$(newest killed)
    cp -r killed copy1
    cp -r killed copy4
  fi
done
completed
echo "killed $KILLS times in $runs runs, $while_saving times while a checkpoint was written: the losses and the model are the same"

[ -n "$copied" ] || fail "no checkpoint was left to continue from"
"${PRETRAIN[@]}" --batch-size 2 --accumulate 2 --output copy1 >rank.0.txt 2>&1 || fail "one rank: $(tail -n 3 rank.0.txt)"
grep -q "resuming from .*$copied" rank.0.txt || fail "one rank did not resume: $(head -n 5 rank.0.txt)"
launch 4 "${PRETRAIN[@]}" --batch-size 1 --output copy4
finished
grep -q "resuming from .*$copied" rank.0.txt || fail "four ranks did not resume: $(head -n 5 rank.0.txt)"
first=$((10#${copied#step-} + 1))
for ranks in 1 4; do
  echo "from $copied on with $ranks ranks: $(close whole copy$ranks $first)" || fail "$ranks ranks: another curve"
done
