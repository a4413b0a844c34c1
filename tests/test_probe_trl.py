"""TRL from 0.18 to 1.16 on stand-ins with each version's signatures: the same names come out, on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import probe_fixtures as fixtures
from probed import Probed, run_probed, write_package

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = {"0.18": fixtures.TRL_0_18, "0.24": fixtures.TRL_0_24, "1.16": fixtures.TRL_1_16}
ASYNC = "async def judge(completions, **_):\n    return [1.0] * len(completions)"


def train(tmp_path: Path, version: str, *, with_async: bool = False, **extra: str) -> Probed:
    """Two steps of two micro-batches with the stand-in of this version."""
    for files in (fixtures.ACCELERATE, fixtures.TRANSFORMERS, fixtures.VLLM, VERSIONS[version]):
        write_package(tmp_path, files)
    more, names = (ASYNC, ", judge") if with_async else ("", "")
    done = run_probed(tmp_path, fixtures.GRPO_SCRIPT.format(more=more, names=names), **extra)
    assert (done.status, done.err, done.troubles()) == (0, "", [])
    return done


def short(name: str) -> str:
    return name.partition("Trainer.")[2] or name


def tree(done: Probed, step: int) -> list[str]:
    """Spans of a step in order of their start, indented by containment."""
    rows = sorted((r for r in done.main.of("span") if r.get("step") == step), key=lambda r: (r["a"], -r["b"]))
    stack: list[int] = []
    lines = []
    for row in rows:
        while stack and stack[-1] <= row["a"]:
            stack.pop()
        lines.append("  " * len(stack) + short(row["n"]))
        stack.append(row["b"])
    return lines


STEP = {
    "0.18": """
step
  training_step
    _prepare_inputs
      _generate_and_score_completions
        _move_model_to_vllm
        vLLM.generate
        _get_per_token_logps
        accuracy
        gather
        gather_object
    compute_loss
      _get_per_token_logps
    backward
""",
    "0.24": """
step
  training_step
    _prepare_inputs
      _generate_and_score_completions
        _generate
          _generate_single_turn
            _move_model_to_vllm
            vLLM.generate
        gather
        _calculate_rewards
          accuracy
          gather
    compute_loss
      _get_per_token_logps_and_entropies
    backward
""",
    "1.16": """
step
  training_step
    _prepare_inputs
      _generate_and_score_completions
        _generate
          _generate_single_turn
            sync_weights
            VLLMGeneration.generate
              vLLM.generate
        gather
        _calculate_rewards
          accuracy
          gather
    compute_loss
      _get_per_token_logps_and_entropies
    backward
""",
}
LIGHT = {
    version: f"""
  training_step
    _prepare_inputs
    compute_loss
      {logps}
    backward
  clip_grad_norm_
  optimizer
log
"""
    for version, logps in {
        "0.18": "_get_per_token_logps", "0.24": "_get_per_token_logps_and_entropies", "1.16": "_get_per_token_logps_and_entropies",
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_a_step_has_every_phase_in_its_place(tmp_path: Path, version: str) -> None:
    """The heavy micro-batch generates and scores, the light one only trains; saving belongs to the step before it."""
    done = train(tmp_path, version)
    first, second = tree(done, 0), tree(done, 1)
    heavy = (STEP[version].strip("\n") + LIGHT[version].rstrip("\n")).splitlines()
    assert first == [*heavy, "_save_checkpoint"]
    assert second == heavy


@pytest.mark.parametrize("version", VERSIONS)
def test_training_goes_as_without_us(tmp_path: Path, version: str) -> None:
    """What is logged and scored is the same with the probe disabled; functions keep name and kind."""
    recorded = train(tmp_path, version).out
    assert recorded == train(tmp_path, version, DIPSTICK_DISABLE="1").out
    assert "accuracy" in recorded


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reward_function_is_found_in_the_users_code(tmp_path: Path, version: str) -> None:
    """Its span says where the function is defined, and where TRL calls it."""
    done = train(tmp_path, version)
    rows = [row for row in done.main.of("span") if short(row["n"]) == "accuracy"]
    assert [(row["ph"], row["f"], row["l"], row["step"]) for row in rows] == [
        ("reward", str(tmp_path / "script.py"), 4, step) for step in (0, 1)
    ]
    assert rows[0]["x"]["at"].rpartition(":")[0].endswith("trl/trainer/grpo_trainer.py")


@pytest.mark.parametrize("version", ["0.24", "1.16"])
def test_what_generation_hands_to_the_rewards(tmp_path: Path, version: str) -> None:
    """Four texts a step: their kinds, bytes (é has two), by reference, on the host; 0.18 has no method to see it at."""
    handoffs = train(tmp_path, version).main.of("handoff")
    expected = {
        "from": "generate", "to": "reward", "count": 4, "bytes": 4 + 6, "types": "list[str], list[str], list[list[int]]",
        "device": "host", "transport": "reference", "f": str(tmp_path / "script.py"), "l": 4,
    }  # fmt: skip
    assert [{name: row[name] for name in expected} for row in handoffs] == [expected] * 2
    assert [row["step"] for row in handoffs] == [0, 1]


def test_async_rewards_have_spans_of_their_own(tmp_path: Path) -> None:
    """They stay coroutine functions, and count as reward wherever their loop runs."""
    done = train(tmp_path, "1.16", with_async=True)
    judge = [row for row in done.main.of("span") if short(row["n"]) == "judge"]
    assert [(row["ph"], row["l"], row["p"]) for row in judge] == [("reward", 6, "_calculate_rewards")] * 2
    assert "True accuracy" in done.out


@pytest.mark.parametrize("version", VERSIONS)
def test_events_and_numbers(tmp_path: Path, version: str) -> None:
    """Weight syncs and checkpoints are events once each; what the Trainer logs are scalars, TRL's additions included."""
    done = train(tmp_path, version)
    assert sorted(done.main.events()) == ["checkpoint", "weight_sync", "weight_sync"]
    logged = [
        (row["step"], row["n"], row["v"])
        for row in done.main.of("scalar")
        if not row["n"].startswith("vllm/")
    ]
    assert logged == [
        (step, name, value) for step in (1, 2) for name, value in (("loss", 0.5), ("reward", 2), ("extra", 3))
    ]


@pytest.mark.parametrize(
    ("version", "absent"),
    [
        (
            "0.18",
            [
                "_generate",
                "_generate_single_turn",
                "_tool_call_loop",
                "_get_per_token_logps_and_entropies",
                "_calculate_rewards",
            ],
        ),
        ("0.24", ["_tool_call_loop", "_get_per_token_logps"]),
        ("1.16", ["_tool_call_loop", "_get_per_token_logps", "_move_model_to_vllm"]),
    ],
)
def test_what_a_version_does_not_have_is_listed(tmp_path: Path, version: str, absent: list[str]) -> None:
    """So that a report can say "not measured"; with the version that was seen."""
    hooks = train(tmp_path, version).main.hooks()
    unbound = {t.rpartition(".")[2]: h for t, h in hooks.items() if not h["bound"] and ":GRPOTrainer" in t}
    full = {"0.18": "0.18.2", "0.24": "0.24.0", "1.16": "1.16.0"}[version]
    assert sorted(unbound) == sorted(absent)
    assert {(h["why"], h["version"]) for h in unbound.values()} == {("absent", full)}


def test_the_process_says_that_it_trains(tmp_path: Path) -> None:
    """A trainer with a colocated engine; alone, it is rank 0."""
    meta = train(tmp_path, "1.16").main.of("meta")[-1]
    assert (meta["role"], meta["rank"]) == ("trainer+engine", 0)
    assert meta["versions"] == {
        "accelerate": "1.15.0",
        "transformers": "5.17.0",
        "trl": "1.16.0",
        "vllm": "0.31.0",
    }


def test_a_launched_rank_keeps_its_number(tmp_path: Path) -> None:
    """RANK is the launcher's word."""
    assert train(tmp_path, "1.16", RANK="3").main.of("meta")[-1]["rank"] == 3


def test_an_exception_in_a_reward_ends_every_span_around_it(tmp_path: Path) -> None:
    """The traceback is the user's; no span stays open, the unfinished step is not claimed."""
    for files in (fixtures.ACCELERATE, fixtures.TRANSFORMERS, fixtures.VLLM, fixtures.TRL_1_16):
        write_package(tmp_path, files)
    code = fixtures.GRPO_SCRIPT.format(
        more="def bad(completions, **_): raise KeyError('mine')", names=", bad"
    )
    done = run_probed(tmp_path, code)
    assert (done.status, done.err.strip().splitlines()[-1]) == (1, "KeyError: 'mine'")
    assert {short(name) for name in done.main.names()} >= {
        "bad",
        "_calculate_rewards",
        "_prepare_inputs",
        "training_step",
    }
    assert "step" not in done.main.names()
