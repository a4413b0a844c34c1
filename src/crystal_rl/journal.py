"""What a run leaves behind and picks up again: history, samples, checkpoints."""

from __future__ import annotations

import json
import os
from statistics import fmean
from typing import TYPE_CHECKING, Any

from crystal_rl.errors import CrystalError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HISTORY = "history.jsonl"
"""One line a step: what TRL logged."""
SETTINGS = "settings.json"
PREFIX = "checkpoint-"


def samples(output: Path, rank: int) -> Path:
    """Where a rank writes its completions."""
    return output / f"samples.rank{rank}.jsonl"


def checkpoint(output: Path, ranks: int) -> Path | None:
    """The newest checkpoint that is whole: a run killed while it saved leaves one that is not."""
    found = sorted(output.glob(f"{PREFIX}*"), key=_step, reverse=True)
    return next((folder for folder in found if _is_whole(folder, ranks)), None)


def _step(folder: Path) -> int:
    number = folder.name.removeprefix(PREFIX)
    return int(number) if number.isdecimal() else -1


def _is_whole(folder: Path, ranks: int) -> bool:
    """State is written after weights and optimizer; each rank adds its random state."""
    try:
        state = json.loads((folder / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    names = ["rng_state.pth"] if ranks == 1 else [f"rng_state_{rank}.pth" for rank in range(ranks)]
    is_there = all((folder / name).is_file() for name in ("optimizer.pt", "scheduler.pt", *names))
    return is_there and state.get("global_step") == _step(folder)


def begin(output: Path, *, resume: bool, ranks: int) -> Path | None:
    """Make the output folder ready; the checkpoint to go on from, None for a fresh start.

    Lines of steps that will be run again are dropped from history and samples.

    Raises:
        CrystalError: The folder holds another run, and it is not to be resumed.
    """
    output.mkdir(parents=True, exist_ok=True)
    if (output / SETTINGS).exists() and not resume:
        fix = "--resume goes on with it; or choose another --output"
        raise CrystalError("there is a run in this folder", where=str(output), fix=fix)
    found = checkpoint(output, ranks) if resume else None
    done = 0 if found is None else _step(found)
    keep_before(output / HISTORY, done + 1)  # a step is logged with the number it ends with
    for file in output.glob("samples.rank*.jsonl"):
        keep_before(file, done)
    return found


def keep_before(file: Path, step: int) -> None:
    """Drop the lines of this step and later ones, and a last line that is not whole."""
    if not file.exists():
        return
    kept = [json.dumps(line) + "\n" for line in read(file) if line["step"] < step]
    scratch = file.with_suffix(".new")
    scratch.write_text("".join(kept))
    os.replace(scratch, file)  # noqa: PTH105 - atomic: a kill here loses nothing


def read(file: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file, without what is cut off at its end."""
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            return
        if isinstance(value, dict) and isinstance(value.get("step"), int):
            yield value


def append(file: Path, value: dict[str, Any]) -> None:
    """Add a line, on disk when this returns."""
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(value) + "\n")
        out.flush()
        os.fsync(out.fileno())


def rewards(output: Path) -> list[float]:
    """The mean reward of each step."""
    return [
        float(line["reward"])
        for line in read(output / HISTORY)
        if isinstance(line.get("reward"), int | float)
    ]


def mean_of(history: list[dict[str, Any]], name: str) -> float | None:
    """The mean of a logged value over the steps that have it."""
    values = [line[name] for line in history if isinstance(line.get(name), int | float)]
    return fmean(values) if values else None


def quarters(output: Path) -> dict[str, Any]:
    """First and last quarter of a run: mean reward and valid share. Says less than it seems below some 40 steps."""
    history = list(read(output / HISTORY))
    size = max(1, len(history) // 4)
    ends = {"first": history[:size], "last": history[-size:]}
    return {
        "steps": len(history),
        **{
            f"{name}_{end}_quarter": mean_of(part, key)
            for name, key in (("reward", "reward"), ("valid", "crystal/valid"))
            for end, part in ends.items()
        },
        "seconds_a_step": mean_of(history, "step_time"),
        "output": str(output),
    }
