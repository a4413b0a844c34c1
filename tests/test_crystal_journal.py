"""What a run leaves behind, and what a resumed one takes up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from crystal_rl import journal
from crystal_rl.errors import CrystalError

if TYPE_CHECKING:
    from pathlib import Path


def write(file: Path, *steps: int, **more: Any) -> None:
    file.write_text("".join(json.dumps({"step": step, **more}) + "\n" for step in steps))


def save(output: Path, step: int, ranks: int = 1, *, without: str = "") -> None:
    """A checkpoint, whole but for one file."""
    folder = output / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    random_states = ["rng_state.pth"] if ranks == 1 else [f"rng_state_{rank}.pth" for rank in range(ranks)]
    for name in {"optimizer.pt", "scheduler.pt", *random_states} - {without}:
        (folder / name).touch()
    if without != "trainer_state.json":
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))


def steps_of(file: Path) -> list[int]:
    return [line["step"] for line in journal.read(file)]


def test_the_newest_checkpoint_counts(tmp_path: Path) -> None:
    """By number, not by name: 10 comes after 5."""
    save(tmp_path, 5)
    save(tmp_path, 10)
    assert journal.checkpoint(tmp_path, 1) == tmp_path / "checkpoint-10"


@pytest.mark.parametrize("missing", ["trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state_1.pth"])
def test_a_checkpoint_that_a_kill_cut_short_is_passed_over(tmp_path: Path, missing: str) -> None:
    """The one before it is whole."""
    save(tmp_path, 5, ranks=2)
    save(tmp_path, 10, ranks=2, without=missing)
    assert journal.checkpoint(tmp_path, 2) == tmp_path / "checkpoint-5"


def test_a_half_written_state_is_no_checkpoint(tmp_path: Path) -> None:
    """Neither is one of another step, or of another number of ranks."""
    save(tmp_path, 5)
    (tmp_path / "checkpoint-5" / "trainer_state.json").write_text('{"global_st')
    assert journal.checkpoint(tmp_path, 1) is None
    save(tmp_path, 6)
    assert journal.checkpoint(tmp_path, 2) is None


def test_a_resumed_run_drops_what_it_will_do_again(tmp_path: Path) -> None:
    """Killed in step 8 with a checkpoint at 5: the history ends with step 5, the samples with those made in it."""
    save(tmp_path, 5)
    write(tmp_path / journal.HISTORY, *range(1, 9))
    write(journal.samples(tmp_path, 0), 0, 0, 4, 4, 5, 5, 7)
    assert journal.begin(tmp_path, resume=True, ranks=1) == tmp_path / "checkpoint-5"
    assert steps_of(tmp_path / journal.HISTORY) == [1, 2, 3, 4, 5]
    assert steps_of(journal.samples(tmp_path, 0)) == [0, 0, 4, 4]


def test_without_a_checkpoint_a_resumed_run_starts_over(tmp_path: Path) -> None:
    """Its history as well."""
    write(tmp_path / journal.HISTORY, 1, 2)
    assert journal.begin(tmp_path, resume=True, ranks=1) is None
    assert steps_of(tmp_path / journal.HISTORY) == []


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    """Unless it is resumed."""
    assert journal.begin(tmp_path / "new", resume=False, ranks=1) is None
    (tmp_path / "new" / journal.SETTINGS).touch()
    with pytest.raises(CrystalError, match="there is a run in this folder"):
        journal.begin(tmp_path / "new", resume=False, ranks=1)


def test_a_line_cut_off_by_a_kill_is_no_line(tmp_path: Path) -> None:
    """What was written before it counts."""
    file = tmp_path / "h.jsonl"
    write(file, 1, 2)
    with file.open("a") as out:
        out.write('{"step": 3, "rew')
    assert steps_of(file) == [1, 2]
    journal.keep_before(file, 9)
    journal.append(file, {"step": 3})
    assert steps_of(file) == [1, 2, 3]


def test_quarters_compare_the_ends_of_a_run(tmp_path: Path) -> None:
    """Eight steps: the first two against the last two. A value that was never logged is None."""
    rows = [{"step": i + 1, "reward": i / 10, "step_time": 2.0} for i in range(8)]
    (tmp_path / journal.HISTORY).write_text("".join(json.dumps(row) + "\n" for row in rows))
    ends = journal.quarters(tmp_path)
    assert ends["reward_first_quarter"] == pytest.approx(0.05)
    assert ends["reward_last_quarter"] == pytest.approx(0.65)
    assert (ends["steps"], ends["seconds_a_step"], ends["valid_last_quarter"]) == (8, 2.0, None)


def test_quarters_of_nothing(tmp_path: Path) -> None:
    """A run that never logged a step."""
    assert journal.quarters(tmp_path)["reward_last_quarter"] is None
