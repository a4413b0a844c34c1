"""The whole job on one machine, as somebody would do it: train under ``dipstick run``, explain, write report.html.

Nothing here is made up for the occasion: the commands that it runs are printed, and can be run by hand.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from math import comb
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING

import dipstick.cli
from crystal_rl import journal
from crystal_rl.errors import CrystalError
from crystal_rl.options import has_gpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dipstick.cli.output import Talk

SAMPLE = "sample:h200x2-grpo"
FOLDER = "demo-run"
MOST_SPLITS = 20_000
FEWEST_STEPS = 4
PATIENCE_S = 30.0
"""For a run that was interrupted to close its recording."""
HINT = "the lines above say why; scripts/demo --quick explains a recorded run instead"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Attributes:
        folder: Gets ``run`` (the recording), ``policy`` (history, answers, adapter) and ``report.html``.
        steps: Optimizer steps.
        model: ``smollm2`` or ``tiny``.
        engine: As in :class:`~crystal_rl.settings.Settings`.
    """

    folder: Path
    steps: int = 8
    model: str = "smollm2"
    engine: str = "auto"

    @property
    def run(self) -> Path:
        """The recording."""
        return self.folder / "run"

    @property
    def policy(self) -> Path:
        """What training leaves behind."""
        return self.folder / "policy"

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / "report.html"


def free_folder(wanted: str | None) -> Path:
    """The folder that was asked for, which must be new; without one ``demo-run``, ``demo-run-2`` and so on.

    Raises:
        CrystalError: It is there already.
    """
    if wanted is not None:
        if os.path.lexists(wanted):
            raise CrystalError("is there already", where=wanted, fix="name another folder with -o")
        return Path(wanted)
    names = itertools.chain([FOLDER], (f"{FOLDER}-{n}" for n in itertools.count(2)))
    return next(Path(name) for name in names if not os.path.lexists(name))


def training(plan: Plan) -> list[str]:
    """``crystal-rl train``: two gloo ranks, a real GNN, small."""
    preset = ["--preset", "cpu"] if plan.model == "smollm2" else ["--preset", "tiny", "--ranks", "2"]
    engine = [] if plan.engine == "auto" else ["--engine", plan.engine]
    size = ["--steps", str(plan.steps), "--save-steps", "0"]
    return ["crystal-rl", "train", *preset, *engine, *size, "--output", str(plan.policy)]


def recording(plan: Plan) -> list[str]:
    """The same under ``dipstick run``."""
    return ["dipstick", "run", "-o", str(plan.run), "--", *training(plan)]


def as_modules(words: Sequence[str]) -> list[str]:
    """Our two commands as modules of this Python, wherever it is and whatever is on PATH."""
    modules = {"dipstick": "dipstick", "crystal-rl": "crystal_rl"}
    return [
        part for word in words for part in ((sys.executable, "-m", modules[word]) if word in modules else (word,))
    ]  # fmt: skip


def demo(plan: Plan, talk: Talk) -> str:
    """Train, explain, write the page; what to say at the end.

    Raises:
        CrystalError: Training failed, or there is nothing to explain.
    """
    plan.folder.mkdir(parents=True)
    if has_gpu():
        talk.say(
            "demo: there is a GPU here; the demo leaves it alone (crystal-rl train --preset gpu uses it)"
        )
    talk.say(f"demo: 1 of 2: {plan.steps} real steps, recorded by dipstick\n$ {shlex.join(recording(plan))}")
    status = watched(as_modules(recording(plan)), quiet=talk.quiet)
    if status:
        raise CrystalError(f"the recorded training ended with status {status}", where=str(plan.folder), fix=HINT)  # fmt: skip
    talk.say(f"demo: 2 of 2: where the seconds went\n$ dipstick explain {shlex.quote(str(plan.run))}")
    explain(plan)
    return closing(plan, journal.rewards(plan.policy))


def watched(command: list[str], *, quiet: bool = False) -> int:
    """Run a command with its talk on our stderr; its exit status.

    Ctrl-C reaches it as well: it is waited for, so that the recording is closed, and only then killed.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    hushed = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen(command, stdout=hushed or sys.stderr, stderr=hushed, env=environment)  # noqa: S603 - ours
    try:
        return process.wait()
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        raise
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
            process.kill()


def explain(plan: Plan) -> None:
    """The screen on stdout, the page beside the recording.

    Raises:
        CrystalError: There is nothing to explain; dipstick has said why.
    """
    status = dipstick.cli.main(["explain", "--quiet", str(plan.run)])
    with contextlib.redirect_stdout(io.StringIO()):  # the headline again
        status = status or dipstick.cli.main(["explain", "--quiet", str(plan.run), "-o", str(plan.report)])
    if status:
        raise CrystalError("the recording could not be explained", where=str(plan.run), fix=HINT)


# --- what it proves ----------------------------------------------------------------------------------------------


def closing(plan: Plan, rewards: Sequence[float]) -> str:
    """What these steps can't prove, and where everything is; 80 columns, but for long paths."""
    return f"""
What {len(rewards)} steps can't prove
  that it learns  {trend(rewards)}
                  40 steps and more on 3 seeds show it: docs/crystal_rl_learning.md
  what GPUs do    None was used. Phases, waits and reward jobs above are real;
                  dips of utilization take a GPU, and there another phase is the
                  longest: docs/crystal_rl_h200.md
Where
  {plan.report}  the report, one file
  {plan.run}  the recording: dipstick explain, query, export
  {plan.policy}  history.jsonl, every answer with its result
      (samples.rank*.jsonl), the adapter (final/)"""


def trend(rewards: Sequence[float]) -> str:
    """The two halves of a run, and how often halves drawn at random differ as much."""
    half = len(rewards) // 2
    if half < FEWEST_STEPS // 2:
        return "So few have no halves to compare."
    first, last = fmean(rewards[:half]), fmean(rewards[-half:])
    return (
        f"Mean reward {first:.2f} in the first {half} steps, {last:.2f} in the last {half};\n"
        f"                  halves drawn at random differ as much {100 * chance(rewards):.0f} times of 100."
    )


def chance(rewards: Sequence[float]) -> float:
    """Share of the ways to pick half of the steps whose mean differs from the rest's by as much as the last half's.

    An exact permutation test, two-sided; beyond some twenty thousand ways, a seeded sample of them.

    Example: 0, 0, 1, 1: the halves differ by 1, as do 2 of the 6 ways: 1/3.
    """
    half = len(rewards) // 2
    values = [*rewards[:half], *rewards[-half:]]
    wanted = abs(sum(values[half:]) - sum(values[:half]))
    total = sum(values)
    differences = [abs(total - 2 * sum(picked)) for picked in _halves(values)]
    return fmean(difference >= wanted - 1e-9 for difference in differences)


def _halves(values: list[float]) -> Iterator[Sequence[float]]:
    half = len(values) // 2
    if comb(len(values), half) <= MOST_SPLITS:
        return itertools.combinations(values, half)
    dice = Random(0)  # noqa: S311 - reproducible, not secret
    return (dice.sample(values, half) for _ in range(MOST_SPLITS))


def next_command() -> list[str]:
    """Where the story is told on GPUs: dipstick as it is found from here."""
    beside = Path(sys.executable).parent / "dipstick"
    found = "dipstick" if shutil.which("dipstick") or not beside.exists() else os.path.relpath(beside)
    return [found, "explain", SAMPLE]
