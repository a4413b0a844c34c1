"""TRL with vLLM colocated, on a CPU, under the probe: what the engine's hooks see. Run by `nox -s live_vllm`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from probed import Probed, environment, read

SCRIPT = Path(__file__).with_name("grpo_tiny.py")


def test_the_engine_in_the_trainers_process(tmp_path: Path) -> None:
    """Weight sync, generation with its tokens, the running batch until it has drained; the process is both."""
    run = tmp_path / "run"
    run.mkdir()
    quiet = {
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "out")], capture_output=True, text=True, check=False, timeout=900,
        env=environment(run, LIVE_VLLM="1", PATH=os.environ["PATH"], **quiet), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    main = Probed(0, done.stdout, done.stderr, read(run)).main
    generate = [row for row in main.of("span") if row["n"].endswith("vLLM.generate")]
    syncs = [row for row in main.of("span") if row["n"].endswith("sync_weights")]
    assert [(row["x"]["prompts"], row["x"]["completions"], row["x"]["tokens_in"]) for row in generate] == [
        (8, 8, 40)
    ] * 2
    assert all(0 < row["x"]["longest"] <= row["x"]["tokens_out"] for row in generate)
    assert (len(syncs), main.events().count("weight_sync")) == (2, 2)
    running = [row["v"] for row in main.of("scalar") if row["n"] == "vllm/running"]
    assert (max(running) > 0, running[-1]) == (True, 0)
    assert main.of("meta")[-1]["role"] == "trainer+engine"
