"""Ranks: where their workers run, how they are started, and that none outlives the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from crystal_rl import environment, launch, rank
from crystal_rl.errors import CrystalError
from crystal_rl.settings import Settings, merged
from crystal_rl.worker import Tail

if TYPE_CHECKING:
    from pathlib import Path

FOREVER = "import time; time.sleep(3600)"


def process(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code])


def test_the_status_of_the_ranks() -> None:
    """Zero if all are well."""
    assert launch.wait([process("pass"), process("pass")], look_every_s=0.01) == 0


def test_one_bad_rank_ends_the_others() -> None:
    """Else they would wait for it at the next collective."""
    ranks = [process("raise SystemExit(3)"), process(FOREVER)]
    assert launch.wait(ranks, look_every_s=0.01) == 3
    assert ranks[1].returncode == -signal.SIGTERM


def test_a_rank_that_is_deaf_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some patience."""
    monkeypatch.setattr(launch, "PATIENCE_S", 0.5)
    code = "import signal, sys; signal.signal(15, signal.SIG_IGN); print(flush=True); " + FOREVER
    deaf = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    with deaf.stdout as out:
        out.readline()
    assert launch.wait([deaf, process("raise SystemExit(4)")], look_every_s=0.01) == 4
    assert deaf.returncode == -signal.SIGKILL


def test_ranks_know_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank, size, a common port, and the launcher whose end is theirs."""
    monkeypatch.setattr(launch, "has_gpu", lambda: False)
    code = (
        "import os, pathlib; e = os.environ; pathlib.Path(e['OUT'], e['RANK']).write_text(' '.join("
        "e[n] for n in ('WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'CRYSTAL_RL_LAUNCHER', 'OMP_NUM_THREADS')))"
    )
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    ranks = launch.start(2, [sys.executable, "-c", code], Settings(ranks=2), {"OUT": str(tmp_path)})
    assert launch.wait(ranks, look_every_s=0.01) == 0
    assert [(tmp_path / n).read_text() for n in "01"] == [f"2 {n} 127.0.0.1 {os.getpid()} 1" for n in "01"]


def test_a_process_ends_with_the_one_it_hangs_on() -> None:
    """However that one ended: here by kill -9."""
    other = process(FOREVER)
    code = f"from crystal_rl.lifeline import end_with; end_with({other.pid}); print(flush=True); {FOREVER}"
    mine = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=_env())
    assert mine.stdout is not None
    with mine.stdout as out:
        out.readline()
    other.kill()
    other.wait()
    assert mine.wait(30) == 1


def test_a_process_whose_other_is_gone_ends_at_once() -> None:
    """It was too late to watch it."""
    gone = process("pass")
    gone.wait()
    code = f"from crystal_rl.lifeline import end_with; end_with({gone.pid}); {FOREVER}"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30, env=_env()).returncode == 1


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


# --- where workers run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "ranks", "local_rank", "gpus", "device"),
    [
        ("auto", 2, 1, 0, "cpu"),
        ("auto", 2, 1, 2, "cuda:1"),
        ("cpu", 2, 1, 2, "cpu"),
        ("shared-gpu", 4, 3, 4, "cuda:3"),
        ("own-gpu", 2, 0, 4, "cuda:2"),
        ("own-gpu", 2, 1, 4, "cuda:3"),
        ("own-gpu", 2, 1, 3, "cuda:2"),
    ],
)
def test_placement(placement: Any, ranks: int, local_rank: int, gpus: int, device: str) -> None:
    """On the rank's own device, on the CPU, or on GPUs that no rank has."""
    settings = merged({"placement": placement, "ranks": ranks})
    assert rank.device(settings, local_rank, gpus) == device


@pytest.mark.parametrize(
    ("placement", "gpus", "why"), [("shared-gpu", 0, "no GPU here"), ("own-gpu", 2, "none is left")]
)
def test_a_placement_that_is_not_there(placement: Any, gpus: int, why: str) -> None:
    """Said before anything is started."""
    with pytest.raises(CrystalError, match=why):
        rank.device(merged({"placement": placement, "ranks": 2}), 0, gpus)


def test_the_straggler_is_planted_in_one_rank() -> None:
    """The tail in all of them."""
    settings = Settings(straggler="1:0.5", tail="0.1:3", ranks=2, placement="cpu", surrogate="fake")
    plans = [rank.plan(settings, n) for n in (0, 1)]
    assert [plan.straggler_s for plan in plans] == [0.0, 0.5]
    assert [plan.tail for plan in plans] == [Tail(0.1, 3.0)] * 2


def test_ranks_that_did_not_find_each_other_are_an_error() -> None:
    """Some launchers start one process and say nothing."""
    rank.check_world(2, 2)
    with pytest.raises(CrystalError, match="2 ranks are wanted and 1 found each other"):
        rank.check_world(1, 2)


# --- the environment ---------------------------------------------------------------------------------------------


def test_variables_that_are_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own value wins; a model on the hub needs the hub."""
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    on_cpu = environment.variables(has_gpu=False, is_local=False)
    assert on_cpu["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert {"OMP_NUM_THREADS", "HF_HUB_OFFLINE"} & on_cpu.keys() == set()
    assert "TORCH_COMPILE_DISABLE" not in environment.variables(has_gpu=True, is_local=True)


def test_what_is_not_installed_is_named() -> None:
    """Before anything is started, with what to do."""
    with pytest.raises(CrystalError, match="no_such_package: not installed here"):
        environment.check_packages(("json", "no_such_package"))


def test_without_vllm_the_fallback_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """``auto`` falls back to transformers; ``vllm`` is an error."""
    said: list[str] = []
    monkeypatch.setattr("importlib.util.find_spec", dict[str, str]().get)
    assert environment.engine_of(Settings(), said.append) == "transformers"
    assert "vLLM is not installed" in said[0]
    with pytest.raises(CrystalError, match="vLLM is not installed here"):
        environment.engine_of(Settings(engine="vllm"), said.append)


def test_with_vllm_auto_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is asked for is taken without a word."""
    said: list[str] = []
    monkeypatch.setattr("importlib.util.find_spec", str)
    assert environment.engine_of(Settings(), said.append) == "vllm"
    assert environment.engine_of(Settings(engine="transformers"), said.append) == "transformers"
    assert said == []
