#!/usr/bin/env bash
# Records known loads on an NVIDIA GPU with `dipstick run` and prints what was captured, beside what it must be.
#
#   benchmarks/gpu_capture_check.sh [SECONDS_A_LOAD]     (7 loads; 3 s each by default)
#
# Runs without a network. Wheels in .whl/ are installed into a folder of its own first: on the lent H200 machines only
# Polars is missing (its image has numpy, pyarrow, rich, jinja2, nvidia-ml-py and torch for Python 3.12):
#   python3 -m pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
#     --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_24_x86_64 \
#     -d .whl polars==2.1.0 polars-runtime-32==2.1.0
# Everything that is printed also goes to $OUT/gpu_capture_check.txt, and the recording to $OUT as a tar file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
out=${OUT:-$(mktemp -d)}
work=$(mktemp -d)
if compgen -G '.whl/*.whl' >/dev/null; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$work/site" .whl/*.whl
  export PYTHONPATH="$work/site"
fi
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
{
  "$python" -m dipstick doctor
  echo "== recording"
  "$python" -m dipstick run -o "$work/run" -- "$python" benchmarks/gpu_load.py "${1:-3}"
  "$python" benchmarks/gpu_capture_report.py "$work/run"
  echo "== the sampler's cost with a stand-in for NVML, on this machine"
  "$python" benchmarks/sampler_cost.py --seconds 10
  echo "== explain"
  "$python" -m dipstick explain --no-color --width 100 "$work/run" || true
} 2>&1 | tee "$out/gpu_capture_check.txt"
tar -C "$work" -czf "$out/gpu_capture_run.tar.gz" run
echo "kept: $out/gpu_capture_check.txt, $out/gpu_capture_run.tar.gz"
