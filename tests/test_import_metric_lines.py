"""What people write a line a step, besides verl's and prime-rl's own files: HF's and TRL's numbers with any time, or none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.errors import ImportFormatError
from dipstick.importers import read_path, sniff
from dipstick.importers.files import import_files

if TYPE_CHECKING:
    from pathlib import Path

T_S = 1_764_547_200
S = 1_000_000_000


def lines(folder: Path, rows: list[dict[str, Any]], name: str = "log.jsonl") -> Path:
    """A file of these rows."""
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def spans(path: Path) -> list[tuple[str, int, float, float]]:
    """Name, step, start and end in seconds."""
    table = read_path(path).tables["spans"]
    columns = (table[c].to_list() for c in ("name", "step", "t0_ns", "t1_ns"))
    return [(name, step, t0 / S, t1 / S) for name, step, t0, t1 in zip(*columns, strict=True)]


@pytest.mark.parametrize("key", ["time", "timestamp", "_timestamp"])
@pytest.mark.parametrize("stamp", [T_S + 12.5, "2025-12-01T00:00:12.500000+00:00", "2025-12-01T00:00:12.5"])
def test_a_row_has_its_time_under_any_usual_name(tmp_path: Path, key: str, stamp: float | str) -> None:
    """A number of Unix seconds or ISO 8601; the step ended then."""
    path = lines(tmp_path, [{"step": 3, "loss": 0.1, "step_time": 2.5, key: stamp}])

    assert spans(path) == [("step", 3, T_S + 10.0, T_S + 12.5)]
    assert read_path(path).account.clock == "unix"


def test_without_times_the_steps_seconds_are_the_clock(tmp_path: Path) -> None:
    """As in trainer_state.json."""
    path = lines(tmp_path, [{"step": k, "loss": 0.1, "step_time": 2.0 + k} for k in (1, 2)])

    assert spans(path) == [("step", 1, 0.0, 3.0), ("step", 2, 3.0, 7.0)]
    assert read_path(path).account.clock == "relative"


def test_without_times_and_seconds_there_are_numbers_only(tmp_path: Path) -> None:
    """No step is placed anywhere; the note says so."""
    found = read_path(lines(tmp_path, [{"step": k, "reward": 0.5} for k in (1, 2)]))

    assert set(found.tables) == {"scalars"}
    assert found.tables["scalars"]["value"].to_list() == [0.5, 0.5]
    assert any("neither times nor step_time" in note.text for note in found.account.notes)


def test_seconds_of_a_reward_are_no_reward(tmp_path: Path) -> None:
    """``timing_s/reward`` is a span; ``reward`` stays a number."""
    path = lines(tmp_path, [{"step": 1, "reward": 0.5, "timing_s/step": 4.0, "timing_s/reward": 3.0}])

    assert [name for name, *_ in spans(path)] == ["step", "reward"]
    scalars = read_path(path).tables["scalars"]
    assert dict(zip(scalars["name"].to_list(), scalars["value"].to_list(), strict=True))["reward"] == 0.5


@pytest.mark.parametrize(
    "row",
    [
        {"step": 1, "event": "checkpoint", "time": T_S},
        {"step": 1, "name": "generate", "t0": T_S, "t1": T_S + 1, "reward": 1.0},
        {"step": 1, "job": "a", "t0": T_S, "t1": T_S + 1, "reward": 1.0},
    ],
)
def test_records_of_ones_own_are_left_to_their_reader(tmp_path: Path, row: dict[str, Any]) -> None:
    """They may carry a number that a trainer logs too."""
    found = sniff(lines(tmp_path, [row]))
    assert found is not None
    assert found.FORMAT == "generic"


@pytest.mark.parametrize("stamp", ["yesterday", "", True, None, [], 1e30, -1, "9999999-01-01"])
def test_a_time_that_is_none_is_not_read(tmp_path: Path, stamp: object) -> None:
    """The rows count the steps' seconds then; nothing is dated by a guess."""
    path = lines(tmp_path, [{"step": 1, "loss": 0.1, "step_time": 2.0, "time": stamp}])

    assert spans(path) == [("step", 1, 0.0, 2.0)]


def test_numbers_that_nobody_knows_make_no_log(tmp_path: Path) -> None:
    """A step and some number may be anything: refused, with the formats that are known."""
    with pytest.raises(ImportFormatError, match="no importer knows this"):
        import_files([lines(tmp_path, [{"step": 1, "temperature_of_the_lab": 21.5}])], tmp_path / "run")


@pytest.mark.parametrize("more", [{"step_time": 10.0, "time": T_S + 10}, {"step_time": 10.0}])
def test_only_what_became_a_span_is_called_one(tmp_path: Path, more: dict[str, float]) -> None:
    """Where ``step_time`` tells the step its parts are not laid out, and the binding table says so."""
    found = read_path(lines(tmp_path, [{"step": 1, "timing_s/reward": 3.0, **more}]))

    bound = {b.source: (b.meaning, b.why) for b in found.account.bindings}
    assert bound["timing_s/reward"] == (
        "scalar", "not laid out: step_time tells the steps, or rows have no times",
    )  # fmt: skip
    assert bound["step_time"][0] == "span step"
    assert found.tables["spans"]["name"].to_list() == ["step"]
