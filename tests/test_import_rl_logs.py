"""Logs of RL frameworks: verl's console and JSON lines, OpenRLHF, SkyRL, NeMo-RL, slime, prime-rl."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dipstick
from dipstick.errors import DipstickError, ImportFormatError
from dipstick.importers import choose, import_path, read_path
from dipstick.importers.options import Options, parse_zone
from dipstick.importers.rl_jsonl import numbers, step_of, time_of
from dipstick.importers.rl_text import LONGEST, members, number
from dipstick.importers.verl_log import parse_row
from imported import T_S, S, T, bound, read_text, texts

if TYPE_CHECKING:
    from dipstick.importers import ImportedTables

RAY = "\x1b[36m(TaskRunner pid=14640)\x1b[0m "
STEP = "step:{0} - actor/pg_loss:-0.395 - timing_s/gen:6.0 - timing_s/update_actor:3.0 - timing_s/step:10.0"


def seconds(found: ImportedTables, name: str) -> pl.Series:
    """Lengths of the spans of that name."""
    spans = found.tables["spans"].filter(pl.col("name") == name)
    return ((spans["t1_ns"] - spans["t0_ns"]) / 1e9).round(9)


def mean(found: ImportedTables, name: str) -> float:
    """Mean length, three decimals."""
    lengths: list[float] = seconds(found, name).to_list()
    return round(sum(lengths) / len(lengths), 3)


def spans(found: ImportedTables) -> list[tuple[str, float, float, int | None]]:
    """Name, start, end (seconds) and step."""
    table = found.tables["spans"].select("name", "t0_ns", "t1_ns", "step")
    return [(name, t0 / S, t1 / S, step) for name, t0, t1, step in table.iter_rows()]


# --- verl's console: real files ---


def test_a_resumed_run_on_two_nodes(real: Path) -> None:
    """LOG.md: 335 step lines 101..435, their means, what lies inside the step, and the bar's 1:14:31."""
    found = read_path(real / "verl-ppo-2node-resumed-3dec.log")
    assert found.account.format == "verl-log"
    assert found.account.rows_read == 335
    steps = found.tables["spans"].filter(pl.col("name") == "step")["step"]
    assert (steps.min(), steps.max(), steps.n_unique()) == (101, 435, 335)
    step: list[float] = seconds(found, "step").to_list()
    assert (round(sum(step), 1), mean(found, "step"), min(step), max(step)) == (4459.3, 13.311, 9.406, 39.674)
    means = {name: mean(found, name) for name in
             ("gen", "update_actor", "update_critic", "values", "old_log_prob", "save_checkpoint", "testing")}  # fmt: skip
    assert means == {"gen": 4.472, "update_actor": 2.544, "update_critic": 2.366, "values": 0.650, "old_log_prob": 0.550,
                     "save_checkpoint": 19.491, "testing": 6.782}  # fmt: skip
    assert len(seconds(found, "save_checkpoint")) == len(seconds(found, "testing")) == 34
    inside = found.tables["spans"].filter(pl.col("name").is_in(["testing", "save_checkpoint"]))["parent"]
    assert inside.unique().to_list() == ["step"]
    assert found.account.facts["reconstructed"]["unattributed_s"] / 335 == pytest.approx(0.006, abs=0.001)
    assert (found.account.last_ns or 0) / 1e9 == pytest.approx(4471, abs=1.0)


def test_wandbs_output_log_of_a_verl_run(real: Path) -> None:
    """LOG.md: three metric lines among 25,872 of sample text; step 0 is validation only and has no timing."""
    found = read_path(real / "verl-wandb-output-log.log")
    assert (found.account.format, found.account.rows_read) == ("verl-log", 3)
    assert seconds(found, "step").to_list() == [28.965, 38.534]
    assert mean(found, "gen") == pytest.approx(29.169, abs=0.001)
    assert mean(found, "update_actor") == pytest.approx(3.412, abs=0.001)
    assert found.account.facts["reconstructed"]["unattributed_s"] / 2 == pytest.approx(0.009, abs=0.002)
    assert found.tables["scalars"].filter(pl.col("step") == 0)["name"].to_list() == [
        "val/test_score/logic_assignment"
    ]


def test_explain_answers_from_a_verl_log_alone(real: Path, tmp_path: Path) -> None:
    """It names the longest phase, says that this rests on reconstructed spans, and which signals are missing."""
    path = import_path(real / "verl-ppo-2node-resumed-3dec.log", tmp_path / "run")
    report = dipstick.explain(dipstick.load(path))
    assert report.answer.longest_phase == "backward"
    phases = next(check for check in report.checks if check.name == "phases")
    assert phases.verdict.because.endswith("; rests on reconstructed spans")
    assert {receipt.origin for receipt in phases.receipts} == {"reconstructed"}
    counted = phases.receipts[-1]
    assert counted.text.startswith("2,748 of 2,748 spans are reconstructed")
    assert {m.signal for m in report.missing} >= {"GPU telemetry", "reward jobs"}
    assert all(
        "reconstructed" not in check.verdict.because
        for check in report.checks
        if check.verdict.word == "unconfirmed"
    )


# --- verl's console: its forms ---


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("step:3 - a/b:1.5", (3, {"a/b": 1.5}, 0)),
        ("step:3 - actor/kl:-0.395 - x:1e-06", (3, {"actor/kl": -0.395, "x": 1e-06}, 0)),
        ("step:3 - a:np.float64(132.14) - b:np.int64(0)", (3, {"a": 132.14, "b": 0.0}, 0)),
        ("step:3 - a:nan - b:inf - c:2", (3, {"c": 2.0}, 2)),
        (
            "step:0 - val-core/openai/gsm8k/reward/mean@1:0.892",
            (0, {"val-core/openai/gsm8k/reward/mean@1": 0.892}, 0),
        ),
        ("noise step:7 - a.b@2:4", (7, {"a.b@2": 4.0}, 0)),
        ("step:3 - a:1 - b:2(WorkerDict pid=9) hello", (3, {"a": 1.0}, 1)),
        ("step:3", None),
        ("step:x - a:1", None),
        ("footstep:3 - a:1", None),
        ("At step:4 we wait", None),
    ],
)
def test_step_lines(text: str, found: object) -> None:
    """Step, finite numbers, and how many values are none of these."""
    assert parse_row(text) == found


def test_prefixes_and_colours(tmp_path: Path) -> None:
    """Ray's prefix with and without an address, in colour and without: the same rows."""
    lines = [RAY + STEP.format(1), "(main_task pid=5, ip=10.0.0.2) " + STEP.format(2), STEP.format(3)]
    found = read_text(tmp_path, "\n".join(lines), "train.log")
    assert spans(found) == [
        (name, base + t0, base + t1, step)
        for step, base in ((1, 0.0), (2, 10.0), (3, 20.0))
        for name, t0, t1 in (("step", 0.0, 10.0), ("gen", 0.0, 6.0), ("update_actor", 6.0, 9.0))
    ]
    assert found.account.clock == "relative"
    assert "the clock is the sum of the steps' seconds" in texts(found)


def test_the_progress_bar_shows_time_between_steps(tmp_path: Path) -> None:
    """Step 2 ended 31 s after the start although the steps took 20: 11 s lie between, before step 2."""
    log = f"{STEP.format(1)}\nTraining Progress:  50%|##| 1/2 [00:10<00:10, 10it/s]\r\n{STEP.format(2)}\nTraining Progress: 100%|##| 2/2 [00:31<00:00]\n"
    assert [(t0, t1) for name, t0, t1, _ in spans(read_text(tmp_path, log, "x.log")) if name == "step"] == [
        (0, 10),
        (21, 31),
    ]


def test_a_bar_that_starts_again_goes_on(tmp_path: Path) -> None:
    """A restarted run in the same file: its bar counts from 0, the clock goes on; the step goes back, and that is said."""
    part = f"{STEP.format(5)}\nTraining Progress: 50%|#| 5/9 [00:40<00:10]\n"
    again = f"Training Progress: 0%|#| 3/9 [00:00<?]\n{STEP.format(4)}\nTraining Progress: 50%|#| 4/9 [00:12<00:10]\n"
    found = read_text(tmp_path, part + again, "x.log")
    assert [t1 for name, _, t1, _ in spans(found) if name == "step"] == [40, 52]
    assert "step numbers go back 1 times" in texts(found)


def test_keys_of_a_verl_row(tmp_path: Path) -> None:
    """Seconds are spans, other timings are listed with the reason, a reward is a number."""
    row = "step:1 - timing_s/reward:0.5 - critic/rewards/mean:0.9 - timing_per_token_ms/gen:0.1 - perf/time_per_step:3 - timing_s/step:3"
    found = read_text(tmp_path, row + "\n", "x.log")
    assert bound(found) == {
        "timing_s/reward": ("span reward", "s", "certain"), "timing_s/step": ("span step", "s", "certain"),
        "critic/rewards/mean": ("scalar", "", "certain"), "timing_per_token_ms/gen": ("scalar", "ms", "certain"),
        "perf/time_per_step": ("scalar", "s", "certain"),
    }  # fmt: skip


def test_no_step_line_is_refused(tmp_path: Path) -> None:
    """With how to get some."""
    with pytest.raises(ImportFormatError, match="no step line") as caught:
        read_text(tmp_path, "hello\n", "x.log", format="verl-log")
    assert "trainer.logger" in (caught.value.fix or "")


# --- JSON lines ---


def test_verls_file_logger(tmp_path: Path) -> None:
    """``{"step": 1, "data": {…}}`` has no times: the sum of the steps is the clock."""
    lines = [
        {"step": i, "data": {"timing_s/step": 4.0, "timing_s/gen": 3.0, "note": "x", "ok": True}}
        for i in (1, 2)
    ]
    found = read_text(tmp_path, "\n".join(map(json.dumps, lines)), "exp.jsonl")
    assert (found.account.format, found.account.clock) == ("rl-jsonl", "relative")
    assert spans(found) == [("step", 0, 4, 1), ("gen", 0, 3, 1), ("step", 4, 8, 2), ("gen", 4, 7, 2)]
    assert set(bound(found)) == {"timing_s/step", "timing_s/gen"}


def test_prime_rls_metrics_have_times(tmp_path: Path) -> None:
    """The trainer's file: Unix times; the step ends when its row was logged. It waits for batches: a wait, no generation."""
    row = {
        "step": 3,
        "time": T_S + 20.0,
        "time/step": 8.0,
        "time/wait_for_batch": 6.0,
        "time/forward_backward": 1.5,
    }
    found = read_text(
        tmp_path,
        json.dumps(row) + "\n" + json.dumps({"step": 3, "time": T_S + 20.1, "loss/mean": 0.5}),
        "m.jsonl",
    )
    assert found.account.clock == "unix"
    table = found.tables["spans"].select("name", "phase", pl.col("t0_ns") - T, pl.col("t1_ns") - T)
    assert table.rows() == [
        ("step", None, 12 * S, 20 * S), ("wait_for_batch", "collective_wait", 12 * S, 18 * S),
        ("forward_backward", "backward", 18 * S, int(19.5 * S)),
    ]  # fmt: skip
    assert found.tables["scalars"].height == 4


@pytest.mark.parametrize(
    "line", ['{"step": null, "data": {}}', '{"step": 1e400, "data": {}}', '{"step": -1, "data": {}}', '{"step": true, "data": {}}',
             '{"step": 1.5, "data": {}}', '{"data": {}}', "[1]", "{", '{"step": ' + "9" * 5000 + "}", '{"step":' + "[" * 100_000]
)  # fmt: skip
def test_lines_that_are_no_rows_are_counted(tmp_path: Path, line: str) -> None:
    """Beside a good one; alone they are refused."""
    good = '{"step": 1, "data": {"timing_s/step": 4.0}}'
    assert read_text(tmp_path, f"{good}\n{line}\n", "a.jsonl").account.dropped.total() == 1
    with pytest.raises(ImportFormatError):
        read_text(tmp_path, f"{line}\n", "b.jsonl", format="rl-jsonl")


def test_numbers_of_a_json_row() -> None:
    """NaN, infinity, booleans, text, lists and integers beyond a float are no numbers; nor are keys of a page."""
    row = {
        "a": 1,
        "b": 2.5,
        "c": float("nan"),
        "d": float("inf"),
        "e": True,
        "f": "1",
        "g": [1],
        "h": 10**400,
        "k" * 400: 1.0,
    }
    assert numbers(row) == {"a": 1.0, "b": 2.5}
    assert (
        step_of({"step": 4.0}),
        step_of({"step": 2**70}),
        time_of({"time": 5}),
        time_of({"time": T_S}),
    ) == (4, None, None, T)


# --- the other consoles ---


def test_skyrls_timers_are_measured(tmp_path: Path) -> None:
    """Lines of a real run (abridged): both edges are stamped, so the spans are measured and policy_train lies inside."""
    head = "(skyrl_entrypoint pid=8455) 2026-03-26 "
    lines = [
        "14:51:18.431 | INFO     | skyrl.train.trainer:train:291 - Started: 'train_critic_and_policy'",
        "14:51:18.431 | INFO     | skyrl.train.trainer:train_critic_and_policy:1121 - Started: 'policy_train'",
        "15:05:44.917 | INFO     | skyrl.train.trainer:train_critic_and_policy:1121 - Finished: 'policy_train', time cost: 866.49s",
        "15:05:44.938 | INFO     | skyrl.train.trainer:train:291 - Finished: 'train_critic_and_policy', time cost: 866.51s",
        "15:05:44.938 | INFO     | skyrl.train.trainer:train:316 - Started: 'sync_weights'",
        "15:05:51.979 | INFO     | skyrl.train.trainer:train:316 - Finished: 'sync_weights', time cost: 7.04s",
        "15:05:51.980 | INFO     | skyrl.train.trainer:train:210 - Finished: 'step', time cost: 1331.13s",
        "15:07:10.550 | INFO     | skyrl.train.trainer:train:227 - Finished: 'generate', time cost: 78.47s",
    ]
    found = read_text(tmp_path, "\n".join(head + line for line in lines), "train.log", tz=parse_zone("UTC"))
    table = found.tables["spans"]
    assert table.select("name", "phase", "step", "origin").rows() == [
        ("policy_train", "backward", 1, "measured"), ("train_critic_and_policy", "backward", 1, "measured"),
        ("sync_weights", "weight_sync", 1, "measured"), ("step", None, 1, "measured"), ("generate", "generate", 2, "measured"),
    ]  # fmt: skip
    assert seconds(found, "policy_train").to_list() == [866.486]
    assert table["t0_ns"][0] == table["t0_ns"][1]
    assert "5 timers end with a time stamp: their spans are measured" in texts(found)
    assert found.tables["processes"]["role"].to_list() == ["driver"]


def test_skyrl_without_stamps_is_laid_out(tmp_path: Path) -> None:
    """The same lines from a logger without times: per-step totals, at the end of the step."""
    log = "".join(
        f"Finished: '{name}', time cost: {s}s\n"
        for name, s in (("generate", 4), ("policy_train", 5), ("step", 10))
    )
    found = read_text(tmp_path, log + log, "x.log")
    assert spans(found)[:3] == [("step", 0, 10, 1), ("generate", 0, 4, 1), ("policy_train", 4, 9, 1)]
    assert spans(found)[3] == ("step", 10, 20, 2)


def test_slimes_two_perf_lines_make_one_step(tmp_path: Path) -> None:
    """The rollout manager's and the trainer's; the step ended with the line that holds its total."""
    log = (
        "(RolloutManager pid=2) [2026-08-06 07:40:00] metrics.py:120 - perf 0: {'perf/rollout_time': np.float64(60.0)}\n"
        "(MegatronTrainRayActor pid=1) [2026-08-06 07:41:40] train_metric_utils.py:50 - perf 0: "
        "{'perf/train_wait_time': 70.0, 'perf/train_time': 30.0, 'perf/actor_train_time': 20.0, 'perf/step_time': 100.0}\n"
        "(MegatronTrainRayActor pid=1) [2026-08-06 07:41:41] model.py:847 - step 0: {'train/loss': 0.01}\n"
    )
    found = read_text(tmp_path, log, "x.log")
    begin = found.tables["spans"]["t0_ns"].min()
    assert isinstance(begin, int)
    assert [(name, t0 - begin / S, t1 - begin / S) for name, t0, t1, _ in spans(found)] == [
        ("step", 0, 100), ("train_wait_time", 0, 70), ("rollout_time", 0, 60), ("train_time", 70, 100), ("actor_train_time", 70, 90),
    ]  # fmt: skip
    assert (found.account.clock, found.account.resolution_ns) == ("local", S)


def test_slimes_timers_are_measured(tmp_path: Path) -> None:
    """``Timer X end (elapsed: 173.1s)`` with a stamp is a span."""
    line = (
        "[2026-08-06 07:47:45.630 actor_cell0_rank0] timer.py:42 - Timer actor_train end (elapsed: 173.1s)\n"
    )
    found = read_text(tmp_path, line, "x.log")
    assert found.tables["spans"].select("name", "phase", "origin").rows() == [
        ("actor_train_time", "backward", "measured")
    ]
    assert seconds(found, "actor_train_time").to_list() == [173.1]


def test_openrlhf(tmp_path: Path) -> None:
    """``Global step N: {…}``: the total is the sum of four, so nothing is left over."""
    row = "{'policy_loss': 0.024, 'timing/generation': 41.2, 'timing/make_experience': 8.0, 'timing/ppo_train': 29.9, 'timing/broadcast': 2.0, 'timing/step_total': 81.1, 'kl': nan}"
    found = read_text(tmp_path, f"(PPOTrainer pid=1) INFO 12-01 x.py:1] ✨ Global step 1: {row}\n", "x.log")
    assert [name for name, *_ in spans(found)] == [
        "step",
        "generation",
        "make_experience",
        "ppo_train",
        "broadcast",
    ]
    assert spans(found)[-1] == ("broadcast", 79.1, 81.1, 1)
    assert "kl" not in bound(found)


def test_nemo_rls_table(tmp_path: Path) -> None:
    """The list under each step's heading; parts that are seconds are spans, the others numbers."""
    log = "".join(
        f"========================= Step {i}/3 =========================\n  • Avg Reward: 0.5000\n  • Total step time: 12.00s\n"
        "  • generation: 6.00s (50.0%)\n  • policy_training: 3.00s (25.0%)\n" for i in (1, 2)
    )  # fmt: skip
    found = read_text(tmp_path, log, "x.log")
    assert spans(found) == [
        ("step", 0, 12, 1), ("generation", 0, 6, 1), ("policy_training", 6, 9, 1),
        ("step", 12, 24, 2), ("generation", 12, 18, 2), ("policy_training", 18, 21, 2),
    ]  # fmt: skip
    assert bound(found)["train/Avg Reward"] == ("", "", "unrecognised")


def test_prime_rls_console_has_steps_only(tmp_path: Path) -> None:
    """One line a step: its seconds and a few numbers; what is inside a step can't be told from it."""
    line = "SUCCESS Step {0} | Time: 12.50s | Loss: 0.0012 | LR: 1.00e-06 | Throughput: 8000 tokens/s | MFU: 30.1%\n"
    found = read_text(tmp_path, line.format(4) + line.format(5), "x.log")
    assert spans(found) == [("step", 0, 12.5, 4), ("step", 12.5, 25, 5)]
    assert found.tables["scalars"].filter(pl.col("step") == 4)["name"].to_list() == [
        "time/step",
        "Loss",
        "LR",
        "Throughput",
        "MFU",
    ]


def test_a_folder_of_names(tmp_path: Path) -> None:
    """Each log is recognised without --format, also where the first step comes late, and notes on paper are not."""
    late = tmp_path / "late.log"
    late.write_text("x\n" * 100_000 + STEP.format(1) + "\n")
    assert choose(late).FORMAT == "verl-log"
    paper = tmp_path / "notes.md"
    paper.write_text("We saw that a step takes long.\n")
    with pytest.raises(ImportFormatError):
        choose(paper)


# --- hostile ---


@pytest.mark.parametrize("many", [999, 1000, 1001, 1002, 2500])
def test_no_line_is_lost_where_the_framework_is_told(tmp_path: Path, many: int) -> None:
    """The first thousand lines say whose log it is; the one after them is read as well."""
    log = "".join(f"perf {i}: {{'perf/step_time': 1.0}}\n" for i in range(many))
    found = read_text(tmp_path, log, "x.log")
    assert found.account.rows_read == many
    assert found.tables["scalars"]["step"].to_list() == list(range(many))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("9" * 100, 1e100), ("9" * 101, None), (" 1.5 ", 1.5), ("0" * 99 + "7", 7.0), ("1." + "0" * 200, None), ("1e5", 1e5),
        ("np.float64(2.5)", 2.5), ("nan", None), ("1e999", None), ("1_000", None), ("", None), ("1.5x", None),
    ],
)  # fmt: skip
def test_a_number_is_never_cut(text: str, found: float | None) -> None:
    """The first hundred digits of a longer number are another number: missing."""
    assert number(text) == found


def test_printed_dicts_are_searched_not_evaluated() -> None:
    """Calls, nested and cut dicts: the numbers that stand there, nothing runs."""
    assert members("{'a': 1, \"b\": -2e3, 'c': np.float64(0.5), 'd': tensor(2.), 'e': {'f': 3}, 'g': nan, 'h': __import__('os')") == {
        "a": 1.0, "b": -2000.0, "c": 0.5, "d": 2.0, "f": 3.0,
    }  # fmt: skip
    assert members("{'a': 12") == {"a": 12.0}
    assert (number("np.float64(1.5)"), number("1e999"), number("abc"), number("")) == (1.5, None, None, None)


def test_a_line_of_two_million_characters_is_counted(tmp_path: Path) -> None:
    """It is not searched; the rest is read."""
    found = read_text(
        tmp_path, "x" * (LONGEST + 1) + "\n" + STEP.format(1) + "\n", "x.log", format="verl-log"
    )
    assert found.account.dropped == {"line of more than a million characters": 1}
    assert found.account.rows_read == 1


PIECES = (
    STEP.format(1), RAY, "\n", "\r", " - ", "step:99999999999999999999 - a:1", "timing_s/gen:1e308", "Training Progress: 1%|#| 1/2 [99999:99:99<",
    "Global step 3: {'timing/generation': 1e9}", "perf 1: {'perf/step_time': 5, 'perf/train_time': 1e7}", "\x1b[", "é\x00",
    "2026-02-31 25:61:61 Finished: 'step', time cost: 1e3s", "9999-12-31 23:59:59 Finished: 'step', time cost: 99999999999999999999s",
    "0001-01-01 00:00:00 Timer train end (elapsed: 1.2.3s)", "===== Step 1/2 =====", "  • generation: 1.0s", "Step 1 | Time: 5.0s | a: 1e999",
    '{"step": 1, "data": {"timing_s/step": 1e6}}', '{"step": 1, "time": 1.8e9, "time/step": -5}', '{"step": 9e18, "time": 1.8e9}',
)  # fmt: skip


@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=30),
    st.sampled_from(["verl-log", "rl-log", "rl-jsonl"]),
)
@example(list(PIECES), "verl-log")
@example([piece + "\n" for piece in PIECES], "verl-log")
@example([piece + "\n" for piece in PIECES], "rl-log")
@example([piece + "\n" for piece in PIECES], "rl-jsonl")
def test_any_mixture_of_lines(pieces: list[str], form: str) -> None:
    """A recording or a refusal of ours; spans never end before they begin, whatever the numbers are."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.log"
        path.write_bytes("".join(pieces).encode("utf-8", "surrogatepass"))
        try:
            found = read_path(path, Options(format=form))
        except DipstickError:
            return
        table: Any = found.tables.get("spans")
        assert table is None or (table["t1_ns"] >= table["t0_ns"]).all()


@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 400))
def test_a_log_that_is_cut_or_flipped(at: int, byte: int, end: int) -> None:
    """Cut anywhere, with one byte changed: rows that are whole stay, never an exception of Python's."""
    data = bytearray(f"{RAY}{STEP.format(1)}\n{RAY}{STEP.format(2)}\n".encode())
    data[at % len(data)] = byte
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.log"
        path.write_bytes(bytes(data[: len(data) - end % len(data)]))
        try:
            assert read_path(path, Options(format="verl-log")).account.rows_read >= 1
        except DipstickError:
            return
