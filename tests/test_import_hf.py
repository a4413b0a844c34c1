"""What HF Trainer and TRL leave behind: trainer_state.json and console logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dipstick.errors import ImportFormatError
from dipstick.importers import read_path
from dipstick.importers.hf_lines import Bar, bar, numbers
from dipstick.importers.options import Options
from imported import S, bound, read_text, texts

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.importers import ImportedTables

LIMITS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def state(folder: Path, *entries: Any, **more: Any) -> ImportedTables:
    """The tables of a trainer state with these rows."""
    whole = {"global_step": 3, "max_steps": 3, "log_history": list(entries), **more}
    return read_text(folder, json.dumps(whole), "trainer_state.json")


def steps(found: ImportedTables) -> list[tuple[int, float, float]]:
    """Number, start and end in seconds of each step."""
    spans = found.tables["spans"]
    spans = spans.filter(spans["name"].cast(str) == "step")
    return [(s, a / S, b / S) for s, a, b in zip(spans["step"], spans["t0_ns"], spans["t1_ns"], strict=True)]


def test_the_real_state_with_step_time(real: Path) -> None:
    """300 entries, steps 1 to 300, step_time 9191.2 s in all, mean 30.64, 21.50 to 39.73."""
    found = read_path(real / "trainer-state-grpo-4090-step-time.json", Options())
    lengths = [b - a for _, a, b in steps(found)]
    assert found.account.rows_read == 300
    assert [s for s, _, _ in steps(found)] == list(range(1, 301))
    assert round(sum(lengths), 1) == 9191.2
    assert [round(float(x), 2) for x in (np.mean(lengths), min(lengths), max(lengths))] == [
        30.64,
        21.50,
        39.73,
    ]
    assert found.account.facts["step_time_s"] == pytest.approx(9191.2, abs=0.05)
    assert set(found.tables["spans"]["origin"].cast(str)) == {"reconstructed"}


def test_the_real_state_without_step_time_has_no_time_axis(real: Path) -> None:
    """40 entries, steps 5 to 200, nothing that tells time: numbers by step, and it says so."""
    found = read_path(real / "trainer-state-grpo-logging5.json", Options())
    scalars = found.tables["scalars"]
    assert found.account.rows_read == 40
    assert scalars["step"].unique().sort().to_list() == list(range(5, 201, 5))
    assert found.account.first_ns is None
    assert "spans" not in found.tables
    assert "no time axis" in texts(found)


def test_the_real_console(real: Path) -> None:
    """93 rows and the final one; bar 1 to 1875 of 1875 after 139862 s; a step takes 73 s in the median.

    LOG.md gives 1 to 226 s a step; the file's own bars, one for each of 1875 steps, are 42 to 147 s apart.
    """
    found = read_path(real / "trl-console-tqdm-cr.log", Options())
    scalars = found.tables["scalars"]
    names = scalars["name"].cast(str)
    lengths = [round(b - a) for _, a, b in steps(found)]
    assert found.account.rows_read == 94
    assert (names == "loss").sum() == 93
    assert found.account.facts["train_runtime_s"] == 139862.4789
    assert (found.account.facts["bar_total"], found.account.facts["bar_s"]) == (1875, 139862)
    assert [s for s, _, _ in steps(found)] == list(range(1, 1876))
    assert [float(x) for x in (np.median(lengths), min(lengths), max(lengths))] == [73, 42, 147]
    assert sum(lengths) == 139861  # the bar is printed once more, a second later
    assert found.account.clock == "relative"
    assert found.account.resolution_ns == S


def test_step_time_is_a_mean_over_the_steps_since_the_row_before(tmp_path: Path) -> None:
    """logging_steps 2: 3 s on row 2 and 5 s on row 4 are steps 1, 2 of 3 s and 3, 4 of 5 s, and it says means."""
    found = state(tmp_path, {"step": 2, "loss": 1.0, "step_time": 3.0}, {"step": 4, "loss": 1.0, "step_time": 5.0},
                  logging_steps=2)  # fmt: skip
    assert steps(found) == [(1, 0, 3), (2, 3, 6), (3, 6, 11), (4, 11, 16)]
    assert "only a mean step_time" in texts(found)


def test_evaluation_rows_repeat_a_step_and_take_no_time(tmp_path: Path) -> None:
    """The eval row of step 1 stands where the step ended; the next step follows on."""
    found = state(tmp_path, {"step": 1, "loss": 1.0, "step_time": 3.0}, {"step": 1, "eval_loss": 2.0},
                  {"step": 2, "loss": 1.0, "step_time": 4.0})  # fmt: skip
    assert steps(found) == [(1, 0, 3), (2, 3, 7)]
    evaluated = found.tables["scalars"].filter(found.tables["scalars"]["name"].cast(str) == "eval_loss")
    assert evaluated["t_ns"].to_list() == [3 * S]


def test_unknown_keys_are_kept_and_listed(tmp_path: Path) -> None:
    """A number under a name nobody knows is in the scalars, and unrecognised in the table."""
    found = state(tmp_path, {"step": 1, "loss": 1.0, "wobble": 7})
    assert bound(found)["wobble"][2] == "unrecognised"
    assert bound(found)["loss"] == ("scalar", "", "certain")
    assert set(found.tables["scalars"]["name"].cast(str)) == {"loss", "wobble"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"log_history": [', "no whole JSON"),
        ('{"log_history": 3, "global_step": 1}', "no log_history"),
        ('{"log_history": [], "global_step": 1}', "no number"),
        ('{"log_history": [{"step": 1, "wobble": 2}], "global_step": 1}', "0 metrics bound"),
        ('{"log_history": ' + "[" * 100_000, "no whole JSON"),
    ],
)
def test_a_state_that_says_nothing_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """With the reason."""
    with pytest.raises(ImportFormatError, match=says):
        read_text(tmp_path, text, "trainer_state.json", format="trainer-state")


def test_numbers_that_are_none_or_too_large_are_left_out(tmp_path: Path) -> None:
    """NaN is missing; an integer beyond any float is no number; a step_time of years is not time."""
    text = '{"global_step": 1, "max_steps": 1, "log_history": [{"step": 1, "loss": NaN, "reward": 1%s, "kl": 2, "step_time": 1e300}]}'
    found = read_text(tmp_path, text % ("0" * 400), "trainer_state.json")
    assert set(found.tables["scalars"]["name"].cast(str)) == {"kl", "step_time"}
    assert "spans" not in found.tables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{'loss': 0.5, 'epoch': 0.1}", {"loss": 0.5, "epoch": 0.1}),
        ("{'loss': '1.2e-05', 'epoch': '0.1'}", {"loss": 1.2e-05, "epoch": 0.1}),
        ("  5%|▌  | 1/20 [00:09<02:51,  9.0s/it]{'loss': -1, 'epoch': 1.0}", {"loss": -1.0, "epoch": 1.0}),
        ("{'loss': nan, 'kl': 'inf', 'epoch': 1.0}", {"epoch": 1.0}),
        ("{'prompt': 'say', 'answer': 3}", None),
        ("{'loss': __import__('os'), 'epoch': 1.0}", None),
        ("epoch 3 done", None),
    ],
)
def test_rows_as_trainers_print_them(text: str, expected: dict[str, float] | None) -> None:
    """Numbers or strings (transformers 5), glued to a bar, not finite; nothing is evaluated."""
    row = numbers(text)
    assert (row[0] if row else None) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" 18%|█▊        | 333/1875 [6:40:27<29:50:16, 69.66s/it]", Bar(333, 1875, 24027, named=False)),
        (
            "Loading checkpoint shards:  50%|█████     | 1/2 [00:01<00:01,  1.98s/it]",
            Bar(1, 2, 1, named=True),
        ),
        ("  0%|          | 0/5 [00:00<?, ?it/s]", Bar(0, 5, 0, named=False)),
        ("50% | done", None),
    ],
)
def test_bars(text: str, expected: Bar | None) -> None:
    """How far, of how much, after how many seconds, and whether it has a description."""
    assert bar(text) == expected


def _bar(done: int, clock: str, total: int = 4) -> str:
    return f"\r {25 * done}%|##  | {done}/{total} [{clock}<00:00,  1.0s/it]"


def test_a_restarted_run_goes_on_behind_its_first_part(tmp_path: Path) -> None:
    """The bar falls back from 20 s to 0: what comes then is later, and the restart is said."""
    row = "{'loss': 1.0, 'epoch': 0.1}\n"
    text = "".join(f"{_bar(k, f'00:{10 * k:02}')}{row}" for k in (0, 1, 2)) + "".join(
        f"{_bar(k, f'00:0{k - 1}')}{row}" for k in (1, 2)
    )
    found = read_text(tmp_path, text)
    assert steps(found) == [(1, 0, 10), (2, 10, 20), (2, 20, 21)]
    assert "began again 1 times" in texts(found)


def test_the_evaluations_bar_is_not_the_trainings(tmp_path: Path) -> None:
    """A bar of another total in between moves neither clock nor step."""
    text = (
        _bar(0, "00:00")
        + _bar(1, "00:30")
        + _bar(1, "00:02", total=9)
        + "{'eval_loss': 1.0, 'epoch': 0.1}\n"
        + _bar(2, "01:00")
    )
    found = read_text(tmp_path, text)
    assert steps(found) == [(1, 0, 30), (2, 30, 60)]
    assert found.tables["scalars"]["t_ns"].to_list() == [30 * S] * 2


def test_without_bars_step_time_is_the_clock(tmp_path: Path) -> None:
    """Rows of 5 s and 6 s end at 5 and 11 s."""
    found = read_text(
        tmp_path, "".join(f"{{'loss': 1.0, 'step_time': '{s}', 'epoch': 0.1}}\n" for s in (5, 6))
    )
    assert found.tables["spans"]["t1_ns"].to_list() == [5 * S, 11 * S]


def test_verls_text_is_left_to_verls_reader(tmp_path: Path) -> None:
    """A log with verl's step lines is not taken, whatever else it prints."""
    from dipstick.importers import hf_log  # noqa: PLC0415
    from dipstick.importers.base import Head  # noqa: PLC0415

    path = tmp_path / "output.log"
    path.write_text("{'loss': 1.0, 'epoch': 1.0}\n")
    assert hf_log.sniff(Head(path)) > 0.5
    path.write_text("{'loss': 1.0, 'epoch': 1.0}\nstep:3 - timing_s/gen:4.5 - critic/kl:0.1\n")
    assert hf_log.sniff(Head(path)) == 0


@LIMITS
@given(cut=st.integers(0, 400), at=st.integers(0, 400), byte=st.integers(0, 255))
def test_damaged_logs_are_read_in_part_or_refused(tmp_path: Path, cut: int, at: int, byte: int) -> None:
    """Cut anywhere, any byte flipped: rows, or an ImportFormatError."""
    whole = (
        _bar(0, "00:00") + _bar(1, "00:30") + "{'loss': 1.0, 'epoch': 0.1, 'kl': '1e-3'}\n" + _bar(2, "01:00")
    ).encode()
    data = bytearray(whole[: max(cut, 1)])
    data[at % len(data)] = byte
    for form in ("hf-log", "trainer-state"):
        try:
            found = read_text(tmp_path, bytes(data), format=form)
        except ImportFormatError:
            continue
        assert found.account.rows_read == 1


@LIMITS
@given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                          lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["step", "loss", "step_time", "x"]), inner, max_size=3)))  # fmt: skip
def test_any_json_in_the_history_is_read_or_refused(tmp_path: Path, value: Any) -> None:
    """Never another exception."""
    try:
        found = state(tmp_path, value, {"step": 1, "loss": 1.0})
    except ImportFormatError:
        return
    assert found.account.rows_read == 2
