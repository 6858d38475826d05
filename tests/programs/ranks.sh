#!/bin/bash
# The small program of many ranks (tests/dist/ranks.cpp), started by each launcher and on two hosts; then ranks that die,
# stop, hang, fail or leave: all others end in time, with one line that names them. ranks.sh BIN DATA RANKS_PROGRAM
. "$(dirname "$0")/common.sh"
RANKS=$3
PYTHON=${ILME_PEERS_PYTHON:-python3}  # one with torch has torchrun
export RANKS_TIMEOUT=8

port() { echo $((20000 + RANDOM % 12000)); }

# all_came LAUNCHER SIZE LOCAL_SIZE FILE...: every rank has printed its line.
all_came() {
  local launcher=$1 size=$2 local_size=$3 rank
  shift 3
  for ((rank = 0; rank < size; ++rank)); do
    cat "$@" | grep -q "^$launcher rank $rank of $size, local $((rank % local_size)) of $local_size$" ||
      fail "$launcher: no line of rank $rank of $size: $(cat "$@")"
  done
}

# by_hand NAME SIZE ARGUMENTS...: the ranks with torchrun's variables, in the background; what they print, their exit
# codes and times go to NAME.RANK.{out,err,code,seconds}.
by_hand() {
  local name=$1 size=$2 port rank
  shift 2
  port=$(port)
  for ((rank = 0; rank < size; ++rank)); do
    (
      code=0
      start=$(date +%s%N)
      RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$size MASTER_ADDR=localhost MASTER_PORT=$port \
        timeout -s KILL 60 "$RANKS" "$@" >"$name.$rank.out" 2>"$name.$rank.err" || code=$?
      echo "$code" >"$name.$rank.code"
      echo $((($(date +%s%N) - start) / 1000000000)) >"$name.$rank.seconds"
    ) 2>/dev/null &
  done
}

# ended NAME SIZE CULPRIT TEXT: all ranks but the culprit have ended with code 1 and one line, which names it.
ended() {
  local name=$1 size=$2 culprit=$3 text=$4 rank
  for ((rank = 0; rank < size; ++rank)); do
    [ "$rank" != "$culprit" ] || continue
    [ "$(cat "$name.$rank.code")" = 1 ] || fail "$name: rank $rank: code $(cat "$name.$rank.code"): $(cat "$name.$rank.err")"
    [ "$(wc -l <"$name.$rank.err")" = 1 ] || fail "$name: rank $rank: more than one line: $(cat "$name.$rank.err")"
    grep -Eq "^error: rank $culprit \(host [^ ]+, pid [0-9]+\) $text" "$name.$rank.err" ||
      fail "$name: rank $rank says: $(cat "$name.$rank.err")"
  done
}

by_hand plain 4 5
wait
all_came torchrun 4 4 plain.*.out

if $PYTHON -c 'import torch.distributed.run' 2>/dev/null; then
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-/usr/local/cuda/lib64} $PYTHON -m torch.distributed.run --no-python \
    --standalone --nproc-per-node 2 "$RANKS" 5 >torchrun.out 2>torchrun.err || fail "torchrun: $(cat torchrun.err)"
  all_came torchrun 2 2 torchrun.out
  # With an agent that only offers an address, rank 0 serves the store.
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-/usr/local/cuda/lib64} TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 $PYTHON -m \
    torch.distributed.run --no-python --master-port "$(port)" --nproc-per-node 2 "$RANKS" 5 >torchrun.out \
    2>torchrun.err || fail "torchrun: $(cat torchrun.err)"
  all_came torchrun 2 2 torchrun.out
else
  echo "torchrun: skipped, it is not installed"
fi

if command -v mpirun >/dev/null; then
  mpirun --allow-run-as-root --oversubscribe -n 3 "$RANKS" 5 >mpirun.out 2>mpirun.err || fail "mpirun: $(cat mpirun.err)"
  all_came mpirun 3 3 mpirun.out
else
  echo "mpirun: skipped, it is not installed"
fi

for rank in 0 1 2; do
  SLURM_PROCID=$rank SLURM_NTASKS=3 SLURM_LOCALID=$((rank % 2)) SLURM_NODEID=$((rank / 2)) SLURM_JOB_ID=$$ \
    SLURM_STEP_NODELIST=localhost,node7 SLURM_STEP_TASKS_PER_NODE=2,1 timeout 60 "$RANKS" 5 >slurm.$rank 2>&1 &
done
wait
for line in "0 of 3, local 0 of 2" "1 of 3, local 1 of 2" "2 of 3, local 0 of 1"; do
  grep -qx "slurm rank $line" slurm.? || fail "SLURM: no line $line: $(cat slurm.?)"
done

mkdir config
for host in localhost algo-2; do
  echo "{\"current_host\": \"$host\", \"hosts\": [\"localhost\", \"algo-2\"]}" >config/$host.json
  mkdir config/$host
  mv config/$host.json config/$host/resourceconfig.json
  SM_INPUT_CONFIG_DIR=config/$host SM_NUM_GPUS=0 MASTER_PORT=$((20000 + $$ % 12000)) timeout 60 "$RANKS" 5 \
    >sagemaker.$host 2>&1 &
done
wait
all_came sagemaker 2 1 sagemaker.*

# Two hosts: network namespaces, whose processes do not see each other either.
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && ip netns add "ilme-a-$$" 2>/dev/null; then
  A=ilme-a-$$ B=ilme-b-$$
  trap 'ip netns del "$A"; ip netns del "$B"; rm -rf "$WORK"' EXIT
  ip netns add "$B"
  ip link add veth0 netns "$A" type veth peer name veth0 netns "$B"
  ip -n "$A" addr add 10.77.0.1/24 dev veth0
  ip -n "$B" addr add 10.77.0.2/24 dev veth0
  for host in "$A" "$B"; do
    ip -n "$host" link set lo up
    ip -n "$host" link set veth0 up
  done
  on_two_hosts() { # NAME ARGUMENTS...
    local name=$1 rank host
    shift
    for rank in 0 1 2 3; do
      host=$([ $rank -lt 2 ] && echo "$A" || echo "$B")
      (
        code=0
        RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29400 \
          timeout -s KILL 60 ip netns exec "$host" unshare --pid --fork --mount-proc --kill-child \
          sh -c '"$@"; exit $?' sh "$RANKS" "$@" \
          >"$name.$rank.out" 2>"$name.$rank.err" || code=$?
        echo $code >"$name.$rank.code"
      ) &
    done
    wait
  }
  on_two_hosts hosts 5
  all_came torchrun 4 2 hosts.*.out
  on_two_hosts hosts-die 200 die 2 20
  ended hosts-die 4 2 "has shown no sign of life"
  on_two_hosts hosts-first 200 die 0 20
  ended hosts-first 4 0 "is gone: its store"
else
  echo "two hosts: skipped, this needs root and ip netns"
fi

# end_stopped NAME: when the others have ended, ends the process that they name.
end_stopped() {
  while [ "$(cat "$1".?.code 2>/dev/null | wc -l)" -lt 2 ]; do sleep 0.2; done
  kill -KILL "$(sed -n 's/.*pid \([0-9]*\)).*/\1/p' "$1".?.err | head -n 1)"
}

# Rank 1 and rank 0, which serves the store.
for culprit in 0 1; do
  for event in die stop hang fail leave; do
    by_hand $event-$culprit 3 300 $event $culprit 20
  done
  end_stopped stop-$culprit
  wait
  ended die-$culprit 3 $culprit "has died$"
  ended hang-$culprit 3 $culprit "hangs, or works for too long: rank [0-9] has waited"
  ended fail-$culprit 3 $culprit "has ended with an error$"
  ended leave-$culprit 3 $culprit "has ended: rank [0-9] has waited"
done
ended stop-0 3 0 "is stopped: its store has not answered"
ended stop-1 3 1 "has shown no sign of life for [0-9.]* s: it is stopped$"
echo "ranks: all as expected; seconds from start to end: $(cat ./*-[01].?.seconds | sort -n | uniq -c | tr '\n' ';')"
