"""``crystal-rl demo``: the whole job, with the training stood in for by a recording that is shipped.

What it runs, what it does when that fails or is interrupted, and what it says eight steps prove.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from itertools import combinations
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_rl import demo, journal, options, policies
from crystal_rl.cli import COMMANDS, PROGRAM, main
from crystal_rl.errors import CrystalError
from dipstick.cli.options import make_parser
from dipstick.cli.output import Talk

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence

    from crystal_rl.settings import Settings

PLAN = demo.Plan(Path("out"))
RECORDED = Path(__file__).resolve().parent.parent / "src" / "dipstick" / "samples" / "h200x2-grpo"


def history(plan: demo.Plan, rewards: Sequence[float]) -> None:
    """What training leaves behind of these steps."""
    plan.policy.mkdir(parents=True)
    for number, reward in enumerate(rewards, start=1):
        journal.append(plan.policy / journal.HISTORY, {"step": number, "reward": reward})


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """No training: the recording of another run takes its place. What would have been run."""
    commands: list[list[str]] = []

    def watched(command: list[str], *, quiet: bool = False) -> int:
        del quiet
        commands.append(command)
        run = Path(command[command.index("-o") + 1])
        shutil.copytree(RECORDED, run)
        history(demo.Plan(run.parent), [-0.8, -0.6, -0.7, -0.2])
        return 0

    monkeypatch.setattr(demo, "watched", watched)
    return commands


# --- where it goes -----------------------------------------------------------------------------------------------


def test_each_call_makes_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """demo-run, demo-run-2, demo-run-3: a second call neither fails nor replaces the first one's report."""
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(3):
        folder = demo.free_folder(None)
        folder.mkdir()
        names.append(str(folder))
    assert names == ["demo-run", "demo-run-2", "demo-run-3"]


def test_a_dangling_link_is_no_free_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail when the folder is made, after the model was fetched."""
    monkeypatch.chdir(tmp_path)
    Path("demo-run").symlink_to("nowhere")
    assert demo.free_folder(None) == Path("demo-run-2")


def test_a_named_folder_must_be_new(tmp_path: Path) -> None:
    """What, where, what to do; a new one is taken as it is, parents and all."""
    with pytest.raises(CrystalError) as error:
        demo.free_folder(str(tmp_path))
    assert (error.value.where, error.value.fix) == (str(tmp_path), "name another folder with -o")
    assert demo.free_folder(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"


def test_all_of_it_is_in_one_folder() -> None:
    """Recording, policy, page."""
    assert {path.parent for path in (PLAN.run, PLAN.policy, PLAN.report)} == {Path("out")}


# --- what it runs ------------------------------------------------------------------------------------------------


def settings_of(plan: demo.Plan, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The training command, read by the command line that will read it; on a machine with GPUs."""
    monkeypatch.setattr(options, "has_gpu", lambda: True)
    program, *words = demo.training(plan)
    assert program == "crystal-rl"
    return options.read(make_parser(COMMANDS, PROGRAM).parse_args(words))


def test_it_trains_on_two_ranks_with_a_real_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU preset, also where there are GPUs; eight steps, no checkpoint between them."""
    settings = settings_of(PLAN, monkeypatch)
    assert (settings.ranks, settings.steps, settings.save_steps) == (2, 8, 0)
    assert (settings.model, settings.surrogate, settings.engine) == ("smollm2", "chgnet", "auto")
    assert settings.output == "out/policy"


def test_the_tiny_policy_trains_on_two_ranks_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its preset has one."""
    settings = settings_of(demo.Plan(Path("out"), steps=3, model="tiny"), monkeypatch)
    assert (settings.model, settings.ranks, settings.steps) == ("tiny", 2, 3)
    assert settings.surrogate == "chgnet"


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_an_engine_that_was_asked_for_is_the_one(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """Where vLLM runs, transformers' generation can be looked at all the same."""
    assert settings_of(demo.Plan(Path("out"), engine=engine), monkeypatch).engine == engine


def test_the_training_command_is_recorded_as_it_is() -> None:
    """Nothing in it is dipstick's: ``dipstick run --`` stands in front."""
    words = demo.recording(PLAN)
    assert words[: words.index("--")] == ["dipstick", "run", "-o", "out/run"]
    assert words[words.index("--") + 1 :] == demo.training(PLAN)


def test_both_commands_run_with_this_python_whatever_is_on_path() -> None:
    """As modules; every other word stays."""
    python = sys.executable
    assert demo.as_modules(["dipstick", "run", "--", "crystal-rl", "train", "--ranks", "2"]) == [
        *(python, "-m", "dipstick", "run", "--"),
        *(python, "-m", "crystal_rl", "train", "--ranks", "2"),
    ]


# --- running it --------------------------------------------------------------------------------------------------


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("status", [0, 1, 7])
def test_the_status_of_the_recorded_command_is_known(status: int) -> None:
    """Dipstick run passes on that of the training."""
    assert demo.watched(python(f"import sys; sys.exit({status})")) == status


def test_what_training_says_is_talk_and_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    """Its stdout goes to our stderr, so that ours holds the explanation alone."""
    demo.watched(python("import sys; print('a result'); print('a step', file=sys.stderr)"))
    out, err = capfd.readouterr()
    assert out == ""
    assert {"a result", "a step"} <= set(err.splitlines())


def test_quiet_silences_training_too(capfd: pytest.CaptureFixture[str]) -> None:
    """Both of its streams."""
    demo.watched(python("import sys; print('out'); print('err', file=sys.stderr)"), quiet=True)
    assert capfd.readouterr() == ("", "")


def test_training_sees_no_gpu(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo is the same everywhere, and is in nobody's way."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    demo.watched(python("import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"))
    assert capfd.readouterr().err == "''\n"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


class Process:
    """A command that is interrupted: ``waits`` are what each wait does, an exception or a status."""

    def __init__(self, *waits: int | BaseException) -> None:
        self.waits = list(waits)
        self.status: int | None = None
        self.told: list[str] = []

    def wait(self, timeout: float | None = None) -> int:
        del timeout
        found = self.waits.pop(0)
        if isinstance(found, BaseException):
            raise found
        self.status = found
        return found

    def poll(self) -> int | None:
        return self.status

    def send_signal(self, number: signal.Signals) -> None:
        self.told.append(number.name)

    def kill(self) -> None:
        self.told.append("SIGKILL")


LATE = subprocess.TimeoutExpired("dipstick", demo.PATIENCE_S)


@pytest.mark.parametrize(
    ("waits", "told"),
    [
        ((KeyboardInterrupt(), 130), []),
        ((KeyboardInterrupt(), LATE, 143), ["SIGTERM", "SIGKILL"]),
        ((KeyboardInterrupt(), LATE, LATE), ["SIGTERM", "SIGKILL"]),
        ((KeyboardInterrupt(), KeyboardInterrupt(), 143), ["SIGTERM", "SIGKILL"]),
    ],
    ids=["closes its recording", "needs asking", "hangs", "a second Ctrl-C"],
)
def test_ctrl_c_lets_the_recording_close_and_leaves_nobody_behind(
    monkeypatch: pytest.MonkeyPatch, waits: tuple[int | BaseException, ...], told: list[str]
) -> None:
    """The command has got the signal as well: it is waited for, then asked, then killed; the interrupt goes on."""
    process = Process(*waits)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
    with pytest.raises(KeyboardInterrupt):
        demo.watched(["dipstick", "run"])
    assert process.told == told
    assert process.waits == []


def test_a_failed_training_is_not_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status, where to look, and the demo that needs no training."""
    monkeypatch.setattr(demo, "watched", lambda *_, **__: 9)
    with pytest.raises(CrystalError, match="status 9") as error:
        demo.demo(demo.Plan(tmp_path / "d"), Talk())
    assert error.value.where == str(tmp_path / "d")
    assert "scripts/demo --quick" in error.value.fix
    assert capsys.readouterr().out == ""


def test_a_recording_of_nothing_is_an_error_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dipstick says why; no page is left that could be taken for one."""
    plan = demo.Plan(tmp_path)
    with pytest.raises(CrystalError, match="could not be explained"):
        demo.explain(plan)
    assert "dipstick: error" in capsys.readouterr().err
    assert not plan.report.exists()


def test_the_whole_of_it(
    tmp_path: Path, trained: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands are shown, the screen is printed once, the page is written, the end says where and what not."""
    plan = demo.Plan(tmp_path / "d")
    said = demo.demo(plan, Talk())
    out, err = capsys.readouterr()

    assert trained == [demo.as_modules(demo.recording(plan))]
    assert f"$ dipstick run -o {plan.run} -- crystal-rl train --preset cpu" in err
    assert f"$ dipstick explain {plan.run}" in err
    assert out.count("The longest phase is reward scoring") == 1
    assert "Where each rank's" in out
    assert plan.report.read_text().lower().startswith("<!doctype html>")
    assert "mean reward -0.70 in the first 2 steps, -0.45 in the last 2" in said.lower()


@pytest.mark.parametrize(("gpu", "count"), [(True, 1), (False, 0)])
def test_gpus_that_are_left_alone_are_mentioned(
    tmp_path: Path,
    trained: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    gpu: bool,
    count: int,
) -> None:
    """With the preset that would use them."""
    monkeypatch.setattr(demo, "has_gpu", lambda: gpu)
    demo.demo(demo.Plan(tmp_path / "d"), Talk())
    assert capsys.readouterr().err.count("crystal-rl train --preset gpu") == count
    assert len(trained) == 1


# --- the verb ----------------------------------------------------------------------------------------------------


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Packages and model are there; an empty folder to work in."""
    monkeypatch.setattr("crystal_rl.environment.check_packages", lambda: None)
    monkeypatch.setattr(policies, "find", lambda model, _: model)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_verb_answers_and_points_on(
    ready: Path, trained: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The explanation and what it proves on stdout; the run on GPUs as the next command on stderr."""
    assert main(["demo", "--steps", "4", "-o", "mine"]) == 0
    out, err = capsys.readouterr()
    assert (
        out.index("Where each rank's") < out.index("What 4 steps can't prove") < out.index("mine/report.html")
    )
    assert "explain sample:h200x2-grpo" in err.splitlines()[-1]
    assert "--steps 4" in " ".join(trained[0])
    assert (ready / "mine" / "report.html").exists()


def test_a_model_that_cannot_be_fetched_leaves_nothing(
    ready: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without network: the error names the policy that needs none, and no half-made folder is in the way."""

    def find(model: str, say: Callable[[str], None]) -> str:
        del model, say
        raise CrystalError("pip could not fetch it", fix="or train with --model tiny")

    monkeypatch.setattr(policies, "find", find)
    assert main(["demo"]) == 1
    assert "--model tiny" in capsys.readouterr().err
    assert list(ready.iterdir()) == []


def test_missing_packages_are_named_with_the_set_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Called without scripts/demo, in an environment that cannot train."""
    monkeypatch.setattr("crystal_rl.environment.importlib.util.find_spec", lambda _: None)
    assert main(["demo"]) == 1
    err = capsys.readouterr().err
    assert "training needs torch, trl, peft" in err
    assert "scripts/demo sets up an environment" in err


def test_ctrl_c_ends_with_130(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every other command."""

    def watched(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "watched", watched)
    assert main(["demo"]) == 130
    assert (ready / "demo-run").is_dir()


@pytest.mark.parametrize("words", [["--steps", "0"], ["--model", "gpt"], ["--engine", "x"], ["--bad"]])
def test_a_typo_is_a_usage_error(words: list[str], ready: Path) -> None:
    """Status 2, before anything is made."""
    assert main(["demo", *words]) == 2
    assert list(ready.iterdir()) == []


def test_dipstick_is_found_beside_this_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The next command can be pasted: from PATH, else by its place."""
    beside = tmp_path / "bin"
    beside.mkdir()
    (beside / "dipstick").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert demo.next_command() == ["bin/dipstick", "explain", "sample:h200x2-grpo"]
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/dipstick")
    assert demo.next_command()[0] == "dipstick"


# --- what it proves ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "wanted"),
    [
        ([0, 0, 1, 1], 2 / 6),
        ([0, 1, 0, 1], 6 / 6),
        ([3, 3, 3, 3, 3, 3], 1.0),
        ([1, 2, 3, 4, 5, 6, 7, 8], 2 / 70),
        ([1, 2, 3, 4, 99, 5, 6, 7, 8], 2 / 70),
    ],
    ids=["apart", "mixed", "all equal", "rising", "the middle of an odd number is left out"],
)
def test_chance_counts_the_ways_to_split(rewards: list[float], wanted: float) -> None:
    """Exactly, by hand."""
    assert demo.chance(rewards) == pytest.approx(wanted)


REWARDS = st.lists(st.integers(-80, 100), min_size=4, max_size=10).map(
    lambda hundredths: [h / 100 for h in hundredths]
)


@given(REWARDS)
def test_chance_is_a_share_that_holds_the_split_itself(rewards: list[float]) -> None:
    """It and its mirror image are among the ways, so it is never 0; direction does not matter."""
    half = len(rewards) // 2
    found = demo.chance(rewards)
    assert 2 / comb(2 * half, half) - 1e-12 <= found <= 1
    assert demo.chance(rewards[::-1]) == pytest.approx(found)


@given(REWARDS, st.sampled_from([-1.0, 0.5, 2.0, 4.0]), st.sampled_from([0.0, 1.0, -8.0]))
def test_chance_knows_no_unit(rewards: list[float], scale: float, shift: float) -> None:
    """Rewards scaled and shifted differ as surprisingly as before."""
    assert demo.chance([scale * r + shift for r in rewards]) == pytest.approx(demo.chance(rewards))


def test_a_long_run_draws_the_ways_and_always_the_same() -> None:
    """Ten of twenty have 184,756 ways: twenty thousand of them come within a percent of all."""
    rewards = [((7 * k) % 11) / 10 + 0.01 * k for k in range(20)]
    wanted, total = abs(sum(rewards[10:]) - sum(rewards[:10])), sum(rewards)
    exact = sum(abs(total - 2 * sum(half)) >= wanted - 1e-9 for half in combinations(rewards, 10)) / comb(
        20, 10
    )
    found = demo.chance(rewards)
    assert found == pytest.approx(exact, abs=0.01)
    assert demo.chance(rewards) == found


@pytest.mark.parametrize("rewards", [[], [0.5], [0.1, 0.9], [0.1, 0.5, 0.9]])
def test_so_few_steps_are_not_compared(rewards: list[float]) -> None:
    """Halves of one step each."""
    assert demo.trend(rewards) == "So few have no halves to compare."


def test_what_the_steps_cannot_prove_is_said() -> None:
    """Learning, with the numbers and where it is shown; GPUs; 80 columns."""
    text = demo.closing(demo.Plan(Path("demo-run")), [-0.8, -0.7, -0.6, -0.5, -0.4, -0.3, -0.2, -0.1])
    assert "What 8 steps can't prove" in text
    assert "Mean reward -0.65 in the first 4 steps, -0.25 in the last 4;" in text
    assert "halves drawn at random differ as much 3 times of 100." in text
    assert "docs/crystal_rl_learning.md" in text
    assert "None was used." in text
    assert max(map(len, text.splitlines())) <= 85


def test_rewards_are_those_of_the_history(tmp_path: Path) -> None:
    """Of whole lines with a number; a line cut off by a kill is none."""
    plan = demo.Plan(tmp_path)
    history(plan, [0.25, -1])
    with (plan.policy / journal.HISTORY).open("a") as file:
        file.write(json.dumps({"step": 3, "reward": None}) + "\n")
        file.write(json.dumps({"step": 4, "other": 1}) + "\n")
        file.write('{"step": 5, "rew')
    assert journal.rewards(plan.policy) == [0.25, -1.0]
    assert journal.rewards(tmp_path / "nowhere") == []


def test_the_pages_that_are_pointed_to_exist(root: Path) -> None:
    """A closing that names a document names one that is shipped."""
    text = demo.closing(PLAN, [0.1] * 8)
    named = {word for word in text.replace("\n", " ").split(" ") if word.startswith("docs/")}
    assert len(named) == 2
    assert [name for name in named if not (root / name).is_file()] == []


def test_help_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Time, memory, download: before anybody starts it."""
    assert main(["demo", "--help"]) == 0
    out = capsys.readouterr().out
    assert "2-4 minutes on two CPU cores, 10 GB of memory" in out
    assert "93 MB" in out
    assert isinstance(make_parser(COMMANDS, PROGRAM), argparse.ArgumentParser)
