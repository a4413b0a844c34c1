"""Settings: defaults, presets, files and flags, and what is refused."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pytest

from crystal_rl import options, settings
from crystal_rl.errors import CrystalError, UsageError
from crystal_rl.settings import Settings, merged, plan_of, preset

if TYPE_CHECKING:
    from pathlib import Path


def parsed(*words: str) -> Settings:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    return options.read(parser.parse_args(words))


def test_the_defaults_are_the_seeds_pipeline() -> None:
    """32 completions a prompt, two workers a rank on its own device, the engine at 30 % of the memory."""
    s = Settings()
    assert (s.completions, s.workers, s.vllm_memory, s.placement) == (32, 2, 0.3, "auto")


def test_flags_win_over_file_over_preset_over_default(tmp_path: Path) -> None:
    """Each layer changes what it names and nothing else."""
    file = tmp_path / "s.yaml"
    file.write_text("steps: 7\nworkers: 3\nfmax: 1\n")
    s = parsed("--preset", "tiny", "--config", str(file), "--workers", "5", "--no-constrain")
    assert (s.model, s.steps, s.workers, s.fmax, s.constrain) == ("tiny", 7, 5, 1.0, False)


def test_a_file_can_name_its_preset(tmp_path: Path) -> None:
    """``preset: tiny`` in a file is ``--preset tiny``."""
    file = tmp_path / "s.yaml"
    file.write_text("preset: tiny\n")
    assert parsed("--config", str(file)).model == "tiny"


def test_without_a_preset_the_machine_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU: the embedded default, two gloo ranks and eight completions."""
    monkeypatch.setattr(options, "has_gpu", lambda: False)
    s = parsed()
    assert (s.ranks, s.completions, s.per_rank, s.model) == (2, 8, 4, "smollm2")


@pytest.mark.parametrize("name", ["cpu", "gpu", "tiny"])
def test_each_shipped_preset_is_valid(name: str) -> None:
    """Names and types are checked like a user's."""
    assert isinstance(merged(preset(name)), Settings)


def test_options_of_trl_are_merged_key_by_key(tmp_path: Path) -> None:
    """Values are YAML: numbers are numbers."""
    file = tmp_path / "s.yaml"
    file.write_text("preset: tiny\ntrl: {beta: 0.1, loss_type: dr_grpo}\n")
    s = parsed("--config", str(file), "--trl", "beta=0.04", "--trl", "log_completions=true")
    assert s.trl == {"beta": 0.04, "loss_type": "dr_grpo", "log_completions": True}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stpes": 3}, "there is no setting 'stpes'"),
        ({"steps": "3"}, "steps is '3': int expected"),
        ({"steps": True}, "steps is True: int expected"),
        ({"engine": "sglang"}, "engine is 'sglang'"),
        ({"steps": 0}, "steps is 0: at least 1"),
        ({"completions": 1}, "a group needs 2"),
        ({"completions": 8, "ranks": 3}, "1 prompts x 8 completions cannot be shared by 3 ranks"),
        ({"max_edits": 5}, "max_edits is 5"),
        ({"vllm_memory": 1.5}, "vllm_memory is 1.5"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"workers": 0}, "workers is 0"),
        ({"transfer": -1}, "transfer is -1.0 MiB"),
        ({"straggler": "x"}, "straggler is 'x'"),
        ({"straggler": "0.5:1"}, "straggler is '0.5:1'"),
        ({"tail": "2:1"}, "tail is '2:1'"),
        ({"tail": "0.1:inf"}, "tail is '0.1:inf'"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    """The error names the setting and its value."""
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        merged(given)


def test_an_unknown_preset_lists_the_known() -> None:
    """So does every unknown name."""
    with pytest.raises(UsageError, match="one of cpu, gpu, tiny"):
        preset("../cpu")


@pytest.mark.parametrize("text", ["- a\n", "1: 2\n", "a: [\n", "\x00"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    """With its name."""
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(CrystalError, match=r"s\.yaml"):
        settings.read(file)


def test_a_yaml_file_runs_no_code(tmp_path: Path) -> None:
    """Tags that make Python objects are errors."""
    file = tmp_path / "s.yaml"
    file.write_text("steps: !!python/object/apply:os.system ['touch pwned']\n")
    with pytest.raises(CrystalError, match="cannot read the settings"):
        settings.read(file)


def test_plans_are_two_numbers() -> None:
    """Rank and seconds; probability and seconds; nothing planted."""
    assert plan_of("1:0.5", "straggler") == (1.0, 0.5)
    assert plan_of("0.05:3", "tail") == (0.05, 3.0)
    assert plan_of("", "tail") is None


def test_written_settings_can_be_read_back() -> None:
    """What a run records is what starts the same run."""
    s = merged(preset("tiny"), {"trl": {"beta": 0.1}, "straggler": "1:2"})
    assert merged(settings.written(s)) == s


def test_every_setting_has_a_flag_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    """And the help can be printed."""
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    parser.print_help()
    out = capsys.readouterr().out
    assert all(f"--{field.name.replace('_', '-')}" in out for field in settings.fields())
    assert all(field.metadata["help"] for field in settings.fields())


@pytest.mark.parametrize(("visible", "count"), [(None, 3), ("", 0), ("0,2", 2), ("-1", 0), ("0,1,2,3", 3)])
def test_gpus_are_counted_as_cuda_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int
) -> None:
    """Three in the machine; CUDA_VISIBLE_DEVICES can hide some or all. Other device files are no GPUs."""
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(options, "DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert options.visible_gpus() == count
    assert options.has_gpu() == (count > 0)
