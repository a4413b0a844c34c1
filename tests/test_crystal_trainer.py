"""What TRL is told, the data set, the adapter, the planted transfer, and what is said while training.

They need torch, TRL and PEFT, and are skipped where these are not: `nox -s crystal_train` has an environment for them.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from crystal_fakes import SALT
from crystal_rl.errors import UsageError
from crystal_rl.messages import Target
from crystal_rl.settings import Settings, merged, preset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

for package in ("torch", "trl", "peft", "ase", "datasets", "tqdm"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
torch = pytest.importorskip("torch")
trainer = pytest.importorskip("crystal_rl.trainer")
progress = pytest.importorskip("crystal_rl.progress")
Problem = pytest.importorskip("crystal_rl.problems").Problem
Crystal = pytest.importorskip("crystal_rl.structures").Crystal

ELEMENTS = ("Na", "Cl", "K")
PROBLEM = Problem("0-salt", Crystal("salt", "ClNa", "rocksalt", SALT), Target("density", 2.0, 0.5), 1.5)


def told(**changes: Any) -> dict[str, Any]:
    """Arguments of GRPOConfig on a machine without a GPU."""
    given = {"engine": "transformers", "output": "o", **changes}
    found: dict[str, Any] = trainer.arguments(merged(given), ELEMENTS, has_gpu=False)
    return found


# --- GRPOConfig --------------------------------------------------------------------------------------------------


def test_the_group_is_shared_by_the_ranks() -> None:
    """32 completions of 3 prompts over 4 ranks: 24 each, in one batch without accumulation."""
    args = told(completions=32, prompts=3, ranks=4)
    assert (args["num_generations"], args["per_device_train_batch_size"]) == (32, 24)
    assert args["gradient_accumulation_steps"] == 1


def test_a_cpu_runs_in_float32() -> None:
    """TRL's own default is bfloat16, which raises on a CPU."""
    args = told()
    assert (args["use_cpu"], args["bf16"], args["model_init_kwargs"]) == (True, False, {"dtype": "float32"})
    assert args["dataloader_pin_memory"] is False


def test_a_gpu_runs_in_bfloat16_unless_told_otherwise() -> None:
    """``--dtype`` decides; ``auto`` is the device's."""
    on_gpu = [
        trainer.arguments(merged({"dtype": dtype}), ELEMENTS, has_gpu=True) for dtype in ("auto", "float32")
    ]
    assert [args["bf16"] for args in on_gpu] == [True, False]
    assert [args["model_init_kwargs"]["dtype"] for args in on_gpu] == ["bfloat16", "float32"]
    assert [args["use_cpu"] for args in on_gpu] == [False, False]


def test_vllm_is_colocated_at_30_percent() -> None:
    """The seed's setting."""
    args = told(engine="vllm")
    assert (args["use_vllm"], args["vllm_mode"], args["vllm_gpu_memory_utilization"]) == (
        True,
        "colocate",
        0.3,
    )
    assert args["vllm_max_model_length"] == 1024


def test_the_constraint_takes_the_importance_sampling_correction_away() -> None:
    """With both the gradient vanishes; without the constraint the correction is on."""
    constrained, free = told(engine="vllm", max_edits=1), told(engine="vllm", constrain=False)
    assert re.fullmatch(
        constrained["vllm_structured_outputs_regex"],
        '<modification><strain axis="a" percent="2"/></modification>',
    )
    assert constrained["vllm_importance_sampling_correction"] is False
    assert free["vllm_structured_outputs_regex"] is None
    assert free["vllm_importance_sampling_correction"] is True


def test_transformers_gets_no_setting_of_vllm() -> None:
    """It has no constraint."""
    assert {name for name in told() if "vllm" in name} == {"use_vllm"}


@pytest.mark.parametrize(("save_steps", "strategy"), [(5, "steps"), (0, "no")])
def test_checkpoints_are_optional(save_steps: int, strategy: str) -> None:
    """0: only the adapter at the end."""
    args = told(save_steps=save_steps, steps=7, keep=3)
    assert (args["save_strategy"], args["save_total_limit"]) == (strategy, 3)
    assert args["save_steps"] == (save_steps or 7)


def test_reports_go_where_trl_can_send_them() -> None:
    """A list for TRL; none is none, not transformers' "all"."""
    assert told()["report_to"] == []
    assert told(report_to="wandb, tensorboard")["report_to"] == ["wandb", "tensorboard"]


def test_options_of_trl_win() -> None:
    """Whatever TRL can be told beyond our settings, and over them."""
    args = told(trl={"beta": 0.04, "learning_rate": 0.5})
    assert (args["beta"], args["learning_rate"]) == (0.04, 0.5)


@pytest.mark.parametrize("name", ["cpu", "gpu", "tiny"])
def test_trl_takes_what_each_preset_tells_it(name: str, tmp_path: Path) -> None:
    """No argument that this TRL does not know."""
    settings = merged(preset(name), {"output": str(tmp_path), "ranks": 1})
    args = trainer.arguments(settings, ELEMENTS, has_gpu=False)
    config = trainer.GRPOConfig(**args)
    assert config.num_generations == settings.completions
    assert config.max_steps == settings.steps


# --- adapter and data --------------------------------------------------------------------------------------------


def test_the_adapter_follows_the_settings() -> None:
    """Rank, twice that as alpha, and named modules or all of them."""
    named = trainer.adapter(Settings(lora_rank=8, lora_targets="q_proj, v_proj"))
    assert named is not None
    assert (named.r, named.lora_alpha, set(named.target_modules)) == (8, 16, {"q_proj", "v_proj"})
    everything = trainer.adapter(Settings(lora_rank=4))
    assert everything is not None
    assert everything.target_modules == "all-linear"
    assert trainer.adapter(Settings(lora_rank=0)) is None


def test_a_row_is_a_conversation_and_the_index_of_its_problem() -> None:
    """The index is what the reward function gets."""
    rows = trainer.dataset(Settings(examples=1, instructions=False), [PROBLEM, PROBLEM])
    assert [row["problem"] for row in rows] == [0, 1]
    assert [message["role"] for message in rows[0]["prompt"]] == ["user", "assistant", "user"]


# --- the planted transfer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mib", "copies"), [(1.0, [1.0]), (256.0, [256.0]), (600.5, [256.0, 256.0, 88.5]), (0.0, [])]
)
def test_a_transfer_moves_as_much_as_was_said(
    monkeypatch: pytest.MonkeyPatch, mib: float, copies: list[float]
) -> None:
    """In pieces of 256 MiB, the last one smaller."""
    moved: list[float] = []

    def copy_(self: Any, source: Any, *, non_blocking: bool) -> Any:
        assert non_blocking
        moved.append(source.numel() / (1 << 20))
        return self

    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    trainer.transfer(mib, torch.device("cpu"))
    assert moved == copies


def test_dipstick_is_told_of_the_copy_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A span of its phase ``transfer`` with the bytes; what was queued is waited for before it, the copy inside."""
    order: list[str] = []

    @contextmanager
    def span(name: str, **extra: int) -> Iterator[None]:
        order.append(f"{name} {extra} begins")
        yield
        order.append("ends")

    monkeypatch.setattr(trainer, "wait", lambda device: order.append(f"wait for {device}"))
    monkeypatch.setattr(trainer.dipstick, "span", span)
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *_, **__: order.append("copy"))
    trainer.transfer(300.0, torch.device("cpu"))
    assert order == [
        "wait for cpu",
        f"transfer {{'bytes_b': {300 << 20}}} begins",
        "copy",
        "copy",
        "wait for cpu",
        "ends",
    ]


def test_the_buffers_of_a_transfer_are_made_once() -> None:
    """Pinning a quarter of a gigabyte takes longer than copying it."""
    first, second = (trainer._buffers(torch.device("cpu")) for _ in range(2))
    assert first is second
    assert {half.numel() for half in first} == {256 << 20}


def test_the_transfer_comes_after_the_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a step, and not at all unless it is planted."""
    order: list[str] = []

    def scored(self: Any, inputs: Any) -> Any:
        del self
        order.append("rewards")
        return inputs

    monkeypatch.setattr(trainer.GRPOTrainer, "_generate_and_score_completions", scored)
    monkeypatch.setattr(trainer, "transfer", lambda mib, device: order.append(f"{mib} MiB to {device}"))
    one = object.__new__(trainer.CrystalTrainer)
    one.accelerator = SimpleNamespace(device="cpu")
    assert one._generate_and_score_completions("rows") == "rows"
    one.transfer_mib = 64.0
    one._generate_and_score_completions("rows")
    assert order == ["rewards", "rewards", "64.0 MiB to cpu"]


def test_a_checkpoint_of_ranks_without_a_gpu_can_be_loaded(tmp_path: Path) -> None:
    """Transformers maps it to ``cpu:0``, a name that torch.load refuses by itself."""
    torch.save({"a": torch.ones(3)}, tmp_path / "state.pt")
    trainer.know_numbered_cpus()
    found = torch.load(tmp_path / "state.pt", map_location=torch.device("cpu", 0), weights_only=True)
    assert found["a"].tolist() == [1.0, 1.0, 1.0]


# --- what is said ------------------------------------------------------------------------------------------------


def test_a_step_is_one_line() -> None:
    """Reward, valid, relaxed, seconds; lost samples only where there are some; what was not logged is left out."""
    logs = {
        "reward": 0.3123,
        "crystal/valid": 0.9375,
        "crystal/ok": 0.625,
        "crystal/lost": 0.0,
        "step_time": 9.06,
    }
    assert progress.line_of(logs) == "reward 0.312  valid 94%  relaxed 62%  step 9.1 s"
    assert progress.line_of({"reward": 1.0, "crystal/lost": 0.25}) == "reward 1.000  lost 25%"
    assert progress.line_of({"reward": None}) == ""


def state(step: int, *, is_first: bool = True) -> Any:
    return SimpleNamespace(global_step=step, max_steps=9, is_world_process_zero=is_first)


def test_rank_0_keeps_the_history_and_speaks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a step on stderr, an object a step on disk; the summary at a run's end is not a step."""
    callback = progress.Progress(tmp_path / "history.jsonl", is_quiet=False)
    callback.on_train_begin(None, state(0), None)
    callback.on_log(None, state(1), None, {"reward": 0.5})
    callback.on_log(None, state(2), None, {"reward": 0.25})
    callback.on_log(None, state(2), None, {"train_runtime": 3.0})
    callback.on_log(None, state(2), None)
    callback.on_train_end(None, state(2), None)
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert rows == [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.25}]
    assert capsys.readouterr().err.splitlines() == ["step 1/9  reward 0.500", "step 2/9  reward 0.250"]


def test_other_ranks_and_quiet_runs_say_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The history is written all the same, by rank 0."""
    progress.Progress(tmp_path / "a.jsonl", is_quiet=False).on_log(
        None, state(1, is_first=False), None, {"reward": 0.5}
    )
    progress.Progress(tmp_path / "b.jsonl", is_quiet=True).on_log(None, state(1), None, {"reward": 0.5})
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "a.jsonl").exists()
    assert (tmp_path / "b.jsonl").exists()


def test_a_terminal_gets_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves to the step that is done, also after a resume, and carries the step's line."""
    made: list[Any] = []

    class Bar:
        def __init__(self, **how: Any) -> None:
            self.n, self.total, self.text, self.is_open = how["initial"], how["total"], "", True
            made.append(self)

        def update(self, by: int) -> None:
            self.n += by

        def set_postfix_str(self, text: str) -> None:
            self.text = text

        def close(self) -> None:
            self.is_open = False

    monkeypatch.setattr(progress, "tqdm", Bar)
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True))
    callback = progress.Progress(tmp_path / "h.jsonl", is_quiet=False)
    callback.on_train_begin(None, state(4), None)
    callback.on_log(None, state(5), None, {"reward": 0.5})
    callback.on_train_end(None, state(5), None)
    (bar,) = made
    assert (bar.n, bar.total, bar.text, bar.is_open) == (5, 9, "reward 0.500", False)


def test_a_setting_that_trl_does_not_know_is_no_setting_of_ours() -> None:
    """It goes through ``trl``."""
    with pytest.raises(UsageError, match="there is no setting 'beta'"):
        merged({"beta": 0.1})
