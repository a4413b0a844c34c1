#!/usr/bin/env bash
# All that the next lease of a GPU machine is to bring home, in two calls, each part with its own limit:
#
#   train     TRL with colocated vLLM, one rank a GPU, unchanged, under dipstick run (grpo_run.sh's stages model, train)
#   check     tests/live/cuda_check.py
#   ab        seed-paired A/B, recorded and not, in turns, with all GPUs there are
#
#   crystal   crystal_rl, one rank a GPU, 2 workers and 24 completions a rank, 20 steps
#   transfer  the same for 4 steps with copies planted (--transfer): dipstick has to find them
#
#   benchmarks/gpu/session.sh first        train, check, ab      (PART… names parts instead)
#   benchmarks/gpu/session.sh second       crystal, transfer; the part train makes the model they need
#
# With what unpack.py put into $INTO (/tmp/dipstick-env). Each call's limits add up to less than $SESSION_SECONDS.
# Works with 1, 2 or 4 GPUs. A part that fails or takes too long doesn't stop the next, and no part begins that can't end
# within $SESSION_SECONDS (570: a call has 600). What each left is in $OUT when it ends, not at the end of all: a recording
# as NAME.tar.gz (packed under 500 kB, else noted), its findings as NAME.json and NAME.screen.txt, and table.txt says what
# became of each part. Rehearse on a CPU: REHEARSE=1 benchmarks/gpu/session.sh
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python3}
INTO=${INTO:-/tmp/dipstick-env}
OUT=${OUT:-$(mktemp -d)}
SESSION_SECONDS=${SESSION_SECONDS:-570}
MOST_BYTES=${MOST_BYTES:-500000}
REHEARSE=${REHEARSE:-}
started=$SECONDS
export OUT INTO PYTHON=$python PYTHONPATH="$PWD/src:$INTO/site${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=${OMP_NUM_THREADS:-4} NO_COLOR=1
export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 VLLM_NO_USAGE_STATS=1 VLLM_USE_FLASHINFER_SAMPLER=0
export VLLM_CACHE_ROOT="$INTO/vllm-cache" TORCHINDUCTOR_CACHE_DIR="$INTO/inductor"
mkdir -p "$OUT" "$INTO/runs"

gpus() { nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true; }
ranks=${RANKS:-$(gpus)}
if [ "${ranks:-0}" -lt 1 ]; then ranks=1; fi
model=${MODEL:-$INTO/smollm2}
crystal_args=(--preset gpu --prompts "$ranks" --completions 24) # 19 s a step with 32 a rank, on two H200s; its tail is kept
if ! "$python" -c 'import chgnet' 2>/dev/null; then crystal_args+=(--surrogate fake); fi # its numbers mean nothing then
train_args="--batch 32 --tokens 512" ab_args="--batch 16 --tokens 256" train_steps=28 crystal_steps=20 transfer_steps=4
if [ -n "$REHEARSE" ]; then
  crystal_args=(--preset tiny --surrogate fake)
  model=${MODEL:-$PWD/src/crystal_rl/policies/tiny}
  train_args="--cpu --generate transformers --batch 4 --tokens 16" ab_args=$train_args
  train_steps=2 crystal_steps=2 transfer_steps=2
fi
declare -A limit=([train]=${TRAIN_SECONDS:-240} [check]=${CHECK_SECONDS:-60} [ab]=${AB_SECONDS:-240} [crystal]=${CRYSTAL_SECONDS:-400} [transfer]=${TRANSFER_SECONDS:-130})
declare -A call=([first]="train check ab" [second]="crystal transfer")

left() { echo $((SESSION_SECONDS - (SECONDS - started))); }
say() { echo "== $((SECONDS - started)) s: $*"; }
# limited SECONDS COMMAND…: first asked to stop, 20 seconds later killed
limited() { timeout --signal=INT --kill-after=20 "$@"; }

# bring_home NAME RUN: the small copy and what dipstick makes of it, into $OUT now
bring_home() {
  local kept="$INTO/runs/$1/kept" size
  mkdir -p "$INTO/runs/$1"
  limited 60 "$python" scripts/keep_recording.py "$2" "$kept" --source "$1, $ranks ranks (benchmarks/gpu/session.sh)" || return
  tar -C "$INTO/runs" -czf "$OUT/$1.tar.gz" "$1/kept"
  size=$(wc -c <"$OUT/$1.tar.gz")
  if [ "$size" -gt "$MOST_BYTES" ]; then say "$1.tar.gz: $size bytes are more than $MOST_BYTES"; fi
  limited 60 "$python" -m dipstick explain --force -o "$OUT/$1.json" "$2"
  limited 60 "$python" -m dipstick explain -q --width 100 "$2" >"$OUT/$1.screen.txt"
  cat "$OUT/$1.screen.txt"
}

# recorded NAME SECONDS COMMAND…: records it; what there is by then is brought home also if it failed
recorded() {
  local run="$INTO/runs/$1/run" status
  mkdir -p "$INTO/runs/$1"
  limited "$2" "$python" -m dipstick run --hz 10 --force -o "$run" -- "${@:3}" >"$INTO/runs/$1/log" 2>&1
  status=$?
  grep -v -e 'it/s\]' -e 's/it\]' -e INFO "$INTO/runs/$1/log" | tail -n 40 | cut -c1-300
  bring_home "$1" "$run"
  return $status
}

crystal_rl() {
  if [ -z "$REHEARSE" ] && [ -d "$model" ]; then crystal_args+=(--model "$model"); fi # made by the part train
  recorded "$1" "$2" "$python" -m crystal_rl train "${crystal_args[@]}" --ranks "$ranks" --workers 2 --output "$INTO/$1-out" "${@:3}"
}

train() {
  local began=$SECONDS
  if [ -z "$REHEARSE" ] && [ ! -d "$model" ]; then OUT="$INTO/model-out" benchmarks/gpu/grpo_run.sh model; fi
  local launch=("$python")
  if [ "$ranks" -gt 1 ]; then launch=("$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks"); fi
  # shellcheck disable=SC2086
  recorded train $(($1 - (SECONDS - began))) "${launch[@]}" examples/trl_grpo/train.py --model "$model" --output "$INTO/train-out" --steps $train_steps $train_args
}
crystal() { crystal_rl crystal "$1" --steps $crystal_steps; }
transfer() { crystal_rl transfer "$1" --steps $transfer_steps --transfer 4096; }
check() { limited "$1" "$python" tests/live/cuda_check.py >"$OUT/cuda_check.txt" 2>&1; local status=$?; cat "$OUT/cuda_check.txt"; return $status; }
ab() {
  local launch=("$python")
  if [ "$ranks" -gt 1 ]; then launch=("$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks"); fi
  # shellcheck disable=SC2086
  limited "$1" "$python" benchmarks/gpu/ab.py --pairs 3 --until $(($1 - 15)) --work "$INTO/ab" --json "$OUT/ab.json" -- \
    "${launch[@]}" examples/trl_grpo/train.py --model "$model" --steps 8 $ab_args
}

{
  say "$ranks ranks, $(gpus) GPUs"
  for part in "${@:-first}"; do
    for one in ${call[$part]:-$part}; do
      seconds=${limit[$one]:-}
      if [ -z "$seconds" ]; then echo "$one: no such part" | tee -a "$OUT/table.txt"; continue; fi
      rest=$(($(left) - 20))
      if [ "$rest" -lt "$seconds" ]; then seconds=$rest; fi
      if [ "$seconds" -lt 30 ]; then echo "$one: not begun, $rest s left" | tee -a "$OUT/table.txt"; continue; fi
      say "$one, at most $seconds s"
      began=$SECONDS
      "$one" "$seconds"
      echo "$one: exit status $? after $((SECONDS - began)) s" | tee -a "$OUT/table.txt"
    done
  done
  say done
} 2>&1 | tee "$OUT/log.txt"
