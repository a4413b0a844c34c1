"""The task runner: lint, types, tests. `scripts/test` makes .venv and calls it; those three need no other environment.

`nox -s crystal` runs the tests of crystal_rl with torch, CHGNet and TRL, in an environment of its own (1.9 GB; CI runs it).
`nox -s live` runs the probe in real training on a CPU: each of four TRL versions in an environment of its own (2 GB and
4 to 8 minutes each, mostly downloads; deleted again with .nox). `nox -s live_vllm` adds a colocated vLLM. Neither is part
of `scripts/test`; run them after a change to src/dipstick/probe. See docs/probe.md.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.stop_on_first_error = False


def _python(session: nox.Session, *arguments: str) -> None:
    session.run(sys.executable, "-m", *arguments, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: every rule, and the formatter's opinion."""
    _python(session, "ruff", "check", ".")
    _python(session, "ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict, over source, tests, benchmarks and scripts."""
    _python(session, "mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Pytest; arguments after ``--`` go to it."""
    _python(session, "pytest", *session.posargs)


@nox.session(venv_backend="venv")
def crystal(session: nox.Session) -> None:
    """Crystal_rl with its real surrogate and TRL without vLLM; arguments after ``--`` go to pytest."""
    # --no-deps: CHGNet asks for an NVML binding that would overwrite ours. See requirements/crystal.txt.
    session.install("--no-deps", "-r", "requirements/crystal.txt")
    session.install("pytest>=8.3", "hypothesis>=6.100", *LIVE["1.16"])
    # the demo's own tests explain a recording: they need dipstick's packages, not these, and run in the session tests
    own = {"tests/test_crystal_demo.py"}
    files = sorted({str(path) for path in Path("tests").glob("test_crystal_*.py")} - own)
    environment = {"PYTHONPATH": "src", "OMP_NUM_THREADS": "1"}
    session.run("python", "-m", "pytest", *(session.posargs or ()), *files, env=environment)


TORCH = ("torch==2.13.0", "numpy==2.3.5", "pytest>=8.3")
"""torch 2.13 is a CPU build where pip is set up for one; elsewhere: PIP_INDEX_URL=https://download.pytorch.org/whl/cpu."""
LIVE = {
    "0.18": ("trl==0.18.2", "transformers==4.52.4", "accelerate==1.7.0", "datasets==3.6.0"),
    "0.24": ("trl==0.24.0", "transformers==4.57.1", "accelerate==1.11.0", "datasets==4.3.0"),
    "1.2": ("trl==1.2.0", "transformers==5.5.0", "accelerate==1.13.0", "datasets==4.8.0"),
    "1.16": ("trl==1.16.0", "transformers==5.17.0", "accelerate==1.15.0", "datasets==5.2.0", "peft==0.21.2"),
}
POOLS = ("pebble==5.2.3", "joblib==1.6.0", "loky==3.7.0")


def _live(session: nox.Session, *files: str) -> None:
    """Pytest without our own conftest and configuration: that environment has neither dipstick nor hypothesis."""
    plain = ("--noconftest", "-c", os.devnull, "-p", "no:cacheprovider", "-s")
    session.run("python", "-m", "pytest", *plain, *(f"tests/live/{file}" for file in files), *session.posargs)


@nox.session(venv_backend="venv")
@nox.parametrize("trl", list(LIVE))
def live(session: nox.Session, trl: str) -> None:
    """The probe in real training: TRL, torch and (with the newest) the pools."""
    is_newest = trl == list(LIVE)[-1]
    session.install(*TORCH)
    session.install(*LIVE[trl], *(POOLS if is_newest else ()))
    _live(session, "live_trl.py", *(("live_torch.py", "live_pools.py") if is_newest else ()))


@nox.session(venv_backend="venv")
def live_vllm(session: nox.Session) -> None:
    """The probe in TRL with a colocated vLLM, CPU build (x86 with AVX2)."""
    session.install(*TORCH)
    session.install(*LIVE["1.16"])
    session.install("--no-deps", "-r", "tests/live/vllm.txt")
    _live(session, "live_vllm.py")


@nox.session(venv_backend="venv")
def crystal_train(session: nox.Session) -> None:
    """Crystal_rl's training: two gloo ranks, resume after a kill, vLLM's CPU build colocated (x86 with AVX2)."""
    session.install("--no-deps", "-r", "requirements/crystal-train.txt")
    session.install("pytest>=8.3", "hypothesis>=6.100", "polars>=1.30", "nvidia-ml-py>=12.560", "rich>=13.9")
    environment = {"PYTHONPATH": "src", "OMP_NUM_THREADS": "1"}
    pytest = ("python", "-m", "pytest", "-p", "no:cacheprovider", *session.posargs)
    session.run(*pytest, "tests/test_crystal_training.py", "tests/test_crystal_trainer.py", env=environment)
    live = ("tests/live/live_crystal_vllm.py", "tests/live/live_crystal_dips.py")
    session.run(*pytest, "--noconftest", *live, env=environment)
