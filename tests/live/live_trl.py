"""Real TRL under the probe, on a CPU: which phases it sees, and that training does not notice.

Run by `nox -s live` in an environment of its own (torch and one TRL version); pytest does not collect it by itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from probed import Probed, environment, read

SCRIPT = Path(__file__).with_name("grpo_tiny.py")
TRL = tuple(map(int, version("trl").split(".")[:2]))
QUIET = {"OMP_NUM_THREADS": "1", "LIVE_ASYNC_REWARD": "1" if TRL >= (0, 27) else ""}


def train(folder: Path, *, recorded: bool) -> tuple[list[dict[str, Any]], Probed]:
    """Two steps; returns what was logged and what was recorded."""
    run = folder / "run"
    run.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder / "out")], capture_output=True, text=True, check=False, timeout=900,
        env=environment(run if recorded else None, **QUIET), cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    history = json.loads(done.stdout.strip().splitlines()[-1])
    return history, Probed(done.returncode, done.stdout, done.stderr, read(run) if recorded else [])


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Probed]:
    """One recorded run and one that is not."""
    folder = tmp_path_factory.mktemp("live")
    history, done = train(folder / "recorded", recorded=True)
    bare, _ = train(folder / "bare", recorded=False)
    return history, bare, done


def short(name: str) -> str:
    return name.partition("Trainer.")[2] or name


def test_losses_and_rewards_are_bit_identical(runs: Any) -> None:
    """The same seed, recorded and not: every number the Trainer logs (but times) is the same float."""
    recorded, bare, _ = runs
    assert recorded == bare
    assert any("loss" in row for row in recorded)


def test_every_phase_is_there(runs: Any) -> None:
    """In both steps: generation, both rewards, log-probabilities, forward, backward, optimizer; then the checkpoint."""
    done: Probed = runs[2]
    assert done.troubles() == []
    logps = "_get_per_token_logps" if TRL < (0, 20) else "_get_per_token_logps_and_entropies"
    wanted = {
        "step", "training_step", "_prepare_inputs", "_generate_and_score_completions", "transformers.generate", "pool_reward",
        "length_reward", logps, "compute_loss", "backward", "optimizer", "clip_grad_norm_", "gather", "log",
    }  # fmt: skip
    wanted -= {"transformers.generate"} if TRL < (0, 20) else set()
    wanted |= {"_calculate_rewards"} if TRL >= (0, 19) else set()
    wanted |= {"async_reward"} if TRL >= (0, 27) else set()
    for step in (0, 1):
        seen = {short(row["n"]) for row in done.main.of("span") if row.get("step") == step}
        assert wanted - seen == set()
    assert "_save_checkpoint" in {row["n"] for row in done.main.of("span") if row.get("step") == 1}
    assert "checkpoint" in done.main.events()


def test_the_time_of_a_step_adds_up(runs: Any) -> None:
    """Spans of the main thread nest, and what lies in no phase is less than a tenth of the step."""
    done: Probed = runs[2]
    for row in (r for r in done.main.of("span") if r["n"] == "step"):
        inner = [
            r
            for r in done.main.of("span")
            if row["a"] <= r["a"]
            and r["b"] <= row["b"]
            and r["n"] in ("training_step", "optimizer", "clip_grad_norm_")
        ]
        covered = sum(r["b"] - r["a"] for r in inner)
        assert covered >= 0.9 * (row["b"] - row["a"])


def test_jobs_and_hand_overs(runs: Any) -> None:
    """Eight completions a step go through the pool: text and a number, by pickle, on the host; from the reward's own line."""
    done: Probed = runs[2]
    jobs = done.jobs().values()
    assert [sum(job["step"] == step for job in jobs) for step in (0, 1)] == [8, 8]
    assert {(job["payload_types"], job["pid"] != done.main.pid) for job in jobs} == {("str, int", True)}
    rows = [row for row in done.main.of("handoff") if row["to"] == "workers"]
    assert {(row["from"], row["transport"], row["device"], Path(row["f"]).name) for row in rows} == {
        ("reward", "pickle", "host", SCRIPT.name)
    }
    assert sum(row["count"] for row in rows) == 16


def test_only_what_this_version_lacks_is_unbound(runs: Any) -> None:
    """Every hook is bound or is absent from this TRL; none has another signature than it was written for."""
    done: Probed = runs[2]
    why = {target: hook["why"] for target, hook in done.main.hooks().items() if not hook["bound"]}
    assert set(why.values()) <= {"absent", "no OnlineDPOTrainer", "no RLOOTrainer"}
    print(f"trl {version('trl')}, transformers {version('transformers')}: not bound: {sorted(why)}")
    assert done.main.hooks()["trl.trainer.grpo_trainer:GRPOTrainer.compute_loss"]["version"].startswith(
        version("trl")
    )


def test_the_probe_costs_little(runs: Any) -> None:
    """By its own account, from start to end: spans, hooks and the writer's thread took less than 0.5 % of the process's life."""
    done: Probed = runs[2]
    first, last = (done.main.of("anchor")[i] for i in (0, -1))
    spans = len(done.main.of("span"))
    cost, life = spans * last["span_ns"] + last["hook_ns"] + last["writer_ns"], last["m"] - first["m"]
    print(
        f"probe {cost / 1e6:.1f} ms of {life / 1e9:.1f} s ({cost / life:.3%}), {spans} spans, {last['rows']} rows"
    )
    assert cost < 0.005 * life
