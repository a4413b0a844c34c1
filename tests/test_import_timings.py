"""Seconds per step become spans: in the framework's order, adding up, and nothing that does not fit is hidden."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.importers.account import Account
from dipstick.importers.base import Sink
from dipstick.importers.timing_keys import TIMINGS, listed_why
from dipstick.importers.timings import LaidRows, LaidSpan, binding_of, extent_ns, lay_out, timing_of
from dipstick.phases import CONTAINER, PHASES, STEP
from imported import S

FRAMEWORKS = ("verl", "OpenRLHF", "SkyRL", "NeMo-RL", "slime", "prime-rl")
TIMERS = {"verl": "DRIVER", "SkyRL": "TIMERS", "NeMo-RL": "TIMERS", "slime": "TIMERS"}


def verl(**seconds: float) -> dict[str, float]:
    return {f"timing_s/{name}": value for name, value in seconds.items()}


def placed(spans: list[LaidSpan]) -> list[tuple[str, float, float]]:
    """Name, start and end in seconds."""
    return [(span.name, span.t0_ns / S, span.t1_ns / S) for span in spans]


def collected() -> tuple[Sink, Account, dict[str, list[pl.DataFrame]]]:
    account = Account("x.log", "verl-log", "host0")
    tables: dict[str, list[pl.DataFrame]] = {}
    return Sink(account, lambda table, frame: tables.setdefault(table, []).append(frame)), account, tables


# --- what a key means ---


def test_reward_seconds_are_no_reward() -> None:
    """``timing_s/reward`` is the time that scoring took; ``critic/rewards/mean`` is a reward, and no timing."""
    timing = timing_of("timing_s/reward")
    assert timing is not None
    assert (timing.phase, timing.unit, timing.framework) == ("reward", "s", "verl")
    assert timing_of("critic/rewards/mean") is None
    assert timing_of("reward/mean") is None
    assert binding_of("critic/rewards/mean") is None


@pytest.mark.parametrize(
    ("key", "unit", "why"),
    [
        ("timing_per_token_ms/gen", "ms", "milliseconds per token"),
        ("perf/time_per_step", "s", "once more"),
        ("timing_s/agent_loop/generate_sequences/max", "s", "samples of a rollout"),
        ("timing_s/agent_loop/slowest/tool_calls", "s", "samples of a rollout"),
        ("timing_s/generation_timing/topk_ratio", "s", "ranks of a rollout"),
        ("timing_s/get_batch_rollout_with_filtering", "s", "fork"),
        ("timing/train/new_part", "s", "not known"),
        ("perf/non_generation_time", "s", "not known"),
        ("train/gsm8k/all/timing/scoring/mean", "s", "per rollout"),
    ],
)
def test_other_timings_are_listed_and_never_spans(key: str, unit: str, why: str) -> None:
    """They stay numbers, and the binding says why they have no place in the step."""
    assert timing_of(key) is None
    binding = binding_of(key)
    assert binding is not None
    assert (binding.meaning, binding.unit) == ("scalar", unit)
    assert why in binding.why
    assert lay_out(0, 1, {key: 3.0}) == []


@pytest.mark.parametrize(
    ("framework", "key", "sure"),
    [
        ("verl", "timing_s/gen", "certain"), ("NeMo-RL", "timing/train/generation", "certain"),
        ("OpenRLHF", "train/timing/generation", "certain"), ("OpenRLHF", "timing/generation", "likely"),
        ("SkyRL", "timing/generate", "likely"), ("prime-rl", "time/forward_backward", "likely"),
    ],
)  # fmt: skip
def test_names_that_others_may_use_are_likely(framework: str, key: str, sure: str) -> None:
    """A key with a framework's own prefix is certain; ``time/step`` may be anybody's."""
    timing = timing_of(key)
    assert timing is not None
    assert (timing.framework, timing.sure) == (framework, sure)


def test_slimes_order_is_not_known_so_its_keys_are_likely() -> None:
    """Its log says how long each part took; which came first nobody checked."""
    keys = [timing for timing in TIMINGS.values() if timing.framework == "slime"]
    assert keys
    assert {timing.sure for timing in keys} == {"likely"}
    binding = binding_of("perf/actor_train_time")
    assert binding is not None
    assert (binding.sure, binding.why) == ("likely", "slime logs it")


def test_every_phase_is_one_of_ours() -> None:
    """And every parent is a key that exists, of the same framework, before it in the order or at least not itself."""
    for key, timing in TIMINGS.items():
        assert timing.phase in {*PHASES, CONTAINER, STEP}, key
        assert timing.unit == "s"
        assert listed_why(key) == ""
        if timing.parent:
            assert TIMINGS[timing.parent].framework == timing.framework
            assert timing.parent != key


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_framework_has_one_step(framework: str) -> None:
    """The step is first in the order; OpenRLHF's has two spellings (its console, and its trackers)."""
    steps = {t.key: t.order for t in TIMINGS.values() if t.framework == framework and t.phase == STEP}
    assert set(steps.values()) == {0}
    assert len(steps) == (2 if framework == "OpenRLHF" else 1)


@pytest.mark.parametrize("framework", TIMERS)
def test_the_probe_gives_the_same_timers_the_same_phases(framework: str) -> None:
    """A run that was recorded and a run that was imported can be compared."""
    module = import_module(f"dipstick.probe.dipstick_probe.hooks.{framework.lower().replace('-', '_')}")
    recorded: dict[str, Any] = getattr(module, TIMERS[framework])._phases
    ours = {
        t.key.partition("/")[2].removeprefix("train/").removesuffix("_time"): t.phase
        for t in TIMINGS.values()
        if t.framework == framework and t.phase not in {STEP, CONTAINER}
    }
    both = ours.keys() & recorded.keys()
    assert len(both) >= 8
    assert {name: ours[name] for name in both} == {name: recorded[name] for name in both}


# --- where it lies ---


def test_parts_end_to_end_in_the_order_of_the_step() -> None:
    """The order of the keys in the row does not matter; what no key covers comes last."""
    spans = lay_out(110 * S, 7, verl(update_actor=3, step=10, reward=0.5, gen=6))
    assert placed(spans) == [
        ("step", 100, 110),
        ("gen", 100, 106),
        ("reward", 106, 106.5),
        ("update_actor", 106.5, 109.5),
    ]
    assert {span.step for span in spans} == {7}
    assert {span.origin for span in spans} == {"reconstructed"}
    assert [span.parent for span in spans] == ["", "step", "step", "step"]
    assert [span.phase for span in spans] == ["", "generate", "reward", "backward"]


def test_a_total_lies_inside_the_total_that_contains_it() -> None:
    """``generate_sequences`` and ``reshard`` are workers' parts of ``gen``: they are not counted twice."""
    spans = lay_out(10 * S, 1, verl(step=10, gen=6, generate_sequences=4, reshard=1, update_actor=4))
    assert placed(spans) == [
        ("step", 0, 10), ("gen", 0, 6), ("generate_sequences", 0, 4), ("reshard", 4, 5), ("update_actor", 6, 10),
    ]  # fmt: skip
    assert [span.parent for span in spans] == ["", "step", "gen", "gen", "step"]


def test_validation_inside_the_step_of_spring_2025() -> None:
    """Where the step has room for it, it is in the step, before the checkpoint (a real step 110: the rest is 6 ms)."""
    row = verl(gen=4.163, reward=0.037, old_log_prob=0.476, values=0.547, adv=0.009, update_critic=2.282,
               update_actor=2.296, testing=6.277, save_checkpoint=18.155, step=34.248)  # fmt: skip
    spans = lay_out(34_248_000_000, 110, row)
    assert placed(spans)[-2:] == [("testing", 9.810, 16.087), ("save_checkpoint", 16.087, 34.242)]
    assert all(span.cut_ns == 0 for span in spans)
    assert extent_ns(row) == 34_248_000_000


def test_validation_after_the_step_since() -> None:
    """Where it has none, it follows the step: the row was logged after both."""
    row = verl(gen=6, update_actor=3.9, step=10, testing=5)
    assert placed(lay_out(15 * S, 1, row)) == [
        ("step", 0, 10),
        ("gen", 0, 6),
        ("update_actor", 6, 9.9),
        ("testing", 10, 15),
    ]
    assert extent_ns(row) == 15 * S


def test_a_checkpoint_of_prime_rl_lies_before_its_step() -> None:
    """It broadcasts and saves first, then starts the step's clock."""
    row = {
        "time/step": 8.0,
        "time/broadcast_weights": 1.0,
        "time/save_ckpt": 2.0,
        "time/wait_for_batch": 5.0,
        "time/forward_backward": 3.0,
    }
    spans = lay_out(20 * S, 4, row)
    assert placed(spans) == [
        ("broadcast_weights", 9, 10), ("save_ckpt", 10, 12), ("step", 12, 20), ("wait_for_batch", 12, 17), ("forward_backward", 17, 20),
    ]  # fmt: skip
    assert [span.phase for span in spans] == ["weight_sync", "checkpoint", "", "collective_wait", "backward"]


def test_slimes_wait_holds_the_rollout_and_what_the_last_step_left() -> None:
    """A real row: sleep and update_weights of the rollout before are logged with this one; 0.6 s of train is nobody's."""
    row = {"sleep": 5.32, "update_weights": 2.53, "wake_up": 2.58, "data_preprocess": 0.06, "train_wait": 347.61, "log_probs": 17.18,
           "actor_train": 46.91, "train": 64.72, "step": 412.33, "rollout": 300.0}  # fmt: skip
    spans = lay_out(413 * S, 3, {f"perf/{name}_time": value for name, value in row.items()})
    inside = {span.name: span.parent for span in spans}
    assert (
        inside["rollout_time"] == inside["sleep_time"] == inside["update_weights_time"] == "train_wait_time"
    )
    assert inside["actor_train_time"] == "train_time"
    assert [span.name for span in spans if span.parent == "step"] == ["train_wait_time", "train_time"]
    assert not any(span.cut_ns for span in spans)


def test_openrlhf_and_nemo_and_skyrl() -> None:
    """Each in its own order."""
    names = [
        span.name
        for span in lay_out(
            0,
            1,
            {f"train/timing/{n}": 1.0 for n in ("broadcast", "ppo_train", "make_experience", "generation")},
        )
    ]
    assert names == ["generation", "make_experience", "ppo_train", "broadcast"]
    nemo = {"total_step_time": 20.0, "policy_training": 5.0, "generation": 9.0, "reward_calculation": 1.0,
            "prepare_for_generation/total": 3.0, "prepare_for_generation/transfer_and_update_weights": 2.0}  # fmt: skip
    assert [(s.name, s.parent) for s in lay_out(0, 1, {f"timing/train/{k}": v for k, v in nemo.items()})] == [
        ("step", ""), ("prepare_for_generation/total", "step"),
        ("prepare_for_generation/transfer_and_update_weights", "prepare_for_generation/total"), ("generation", "step"),
        ("reward_calculation", "step"), ("policy_training", "step"),
    ]  # fmt: skip
    skyrl = {
        "step": 9.0,
        "generate": 4.0,
        "train_critic_and_policy": 4.0,
        "policy_train": 3.0,
        "eval": 2.0,
        "eval_generate": 1.0,
    }
    assert [(s.name, s.parent) for s in lay_out(0, 1, {f"timing/{k}": v for k, v in skyrl.items()})] == [
        ("step", ""), ("generate", "step"), ("train_critic_and_policy", "step"), ("policy_train", "train_critic_and_policy"),
        ("eval", ""), ("eval_generate", "eval"),
    ]  # fmt: skip


def test_without_a_step_there_are_parts_only() -> None:
    """A row that lacks the total has no step span, and no unattributed time is made up."""
    assert placed(lay_out(10 * S, 1, verl(gen=6, update_actor=3))) == [("gen", 1, 7), ("update_actor", 7, 10)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, 1e300])
def test_seconds_that_can_be_none_are_none(value: float) -> None:
    """Missing, negative or longer than 115 days: no span, and the others stay."""
    assert placed(lay_out(10 * S, 1, verl(step=10, gen=value, reward=2))) == [
        ("step", 0, 10),
        ("reward", 0, 2),
    ]


# --- what does not fit ---


def test_parts_longer_than_their_step_are_cut_and_said() -> None:
    """Asynchronous parts overlap: 6 + 7 s in a step of 10; the 3 s that are cut stand in the span and in a note."""
    sink, account, tables = collected()
    laid = LaidRows(sink)
    spans = laid.add(10 * S, 1, verl(step=10, gen=6, update_actor=7))
    laid.add(30 * S, 2, verl(step=10, gen=6, update_actor=3))
    laid.close()
    assert placed(spans)[-1] == ("update_actor", 6, 10)
    assert spans[-1].cut_ns == 3 * S
    assert spans[-1].detail == "3.000 s more than fit into its step"
    said = "\n".join(note.text for note in account.notes)
    assert (
        "in 1 of 2 steps the parts take longer than their step (at most update_actor of step 1: 3.000 s"
        in said
    )
    assert tables["spans"][0]["detail"].drop_nulls().to_list() == ["3.000 s more than fit into its step"]


def test_rounding_to_three_decimals_is_no_overlap() -> None:
    """Ten numbers may be off by half a millisecond each: no warning."""
    sink, account, _ = collected()
    laid = LaidRows(sink)
    laid.add(10 * S, 1, verl(step=10, gen=6.001, update_actor=4))
    laid.close()
    assert not any("longer than their step" in note.text for note in account.notes)


def test_a_part_that_is_cut_away_entirely_is_no_row() -> None:
    """It has no length any more; what was cut is still counted."""
    sink, account, tables = collected()
    laid = LaidRows(sink)
    laid.add(10 * S, 1, verl(step=10, gen=12, update_actor=7))
    laid.close()
    assert tables["spans"][0]["name"].to_list() == ["step", "gen"]
    assert "update_actor of step 1: 7.000 s" in "\n".join(note.text for note in account.notes)


def test_what_is_kept_of_a_log() -> None:
    """Spans of rank 0, events of its checkpoints and weight syncs, the driver, and the seconds that no key covers."""
    sink, account, tables = collected()
    laid = LaidRows(sink)
    for step in range(3):
        laid.add((step + 1) * 20 * S, step, verl(step=10, gen=6, save_checkpoint=1, update_weights=2))
    laid.close()
    spans, events = pl.concat(tables["spans"]), pl.concat(tables["events"])
    assert spans["origin"].unique().to_list() == ["reconstructed"]
    assert spans["rank"].unique().to_list() == [0]
    assert spans["name"].to_list()[:4] == ["step", "gen", "save_checkpoint", "update_weights"]
    assert events["name"].to_list()[:2] == ["checkpoint", "weight_sync"]
    assert tables["processes"][0].select("role", "rank").rows() == [("driver", 0)]
    assert account.facts["reconstructed"] == {
        "steps": 3, "step_s": 30.0, "unattributed_s": 3.0, "unattributed_pct": 10.0, "steps_over": 0,
    }  # fmt: skip
    assert "the spans of 3 steps are reconstructed" in account.notes[0].text


def test_a_log_without_timings_says_nothing_of_them() -> None:
    """No note, no driver."""
    sink, account, tables = collected()
    laid = LaidRows(sink)
    laid.add(5, 1, {"loss": 1.0})
    laid.close()
    assert (tables, account.notes) == ({}, [])


SECONDS = st.floats(0.001, 1e5) | st.sampled_from([0.0, float("nan"), -3.0, 1e12])


@given(st.sampled_from(FRAMEWORKS), st.data(), st.integers(-(10**17), 10**17))
def test_laid_seconds_add_up_whatever_was_logged(framework: str, data: st.DataObject, end: int) -> None:
    """Nothing ends after the row or lies outside what contains it, siblings never overlap, and length + cut is the total."""
    keys = [key for key, timing in TIMINGS.items() if timing.framework == framework]
    values = data.draw(st.dictionaries(st.sampled_from(keys), SECONDS, max_size=20))
    spans = lay_out(end, 1, values)
    assert all(span.t0_ns <= span.t1_ns <= end for span in spans)
    assert not spans or max(span.t1_ns for span in spans) <= end
    by_name = {span.name: span for span in spans}
    for parent in {span.parent for span in spans} - {""}:
        children = [span for span in spans if span.parent == parent]
        assert all(a.t1_ns <= b.t0_ns for a, b in pairwise(children))
        assert by_name[parent].t0_ns <= children[0].t0_ns
        assert children[-1].t1_ns <= by_name[parent].t1_ns
    if len(by_name) == len(spans):
        totals = sorted(
            round(v * 1e9) for k, v in values.items() if 0 < v < 1e7 and TIMINGS[k].name in by_name
        )
        assert sorted(s.t1_ns - s.t0_ns + s.cut_ns for s in spans) == totals or framework == "OpenRLHF"
