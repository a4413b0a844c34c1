"""The verbs train and evaluate, and what a rank does with an error: words and a status, never a page of traceback."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from crystal_rl import launch, options, rank
from crystal_rl.cli import main
from crystal_rl.cli.train import summary
from crystal_rl.errors import CrystalError
from crystal_rl.journal import HISTORY, SETTINGS
from crystal_rl.pool import WorkersBrokenError
from crystal_rl.settings import Settings, merged, preset, written

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.cli.output import Talk

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Training that only writes a history; the settings it was given."""
    given: list[Settings] = []

    def train(settings: Settings, talk: Talk) -> None:
        talk.say("training")
        given.append(settings)
        from pathlib import Path  # noqa: PLC0415 - a fake's only need

        folder = Path(settings.output)
        folder.mkdir()
        rows = [{"step": i + 1, "reward": i / 10, "crystal/valid": 1.0, "step_time": 2.0} for i in range(8)]
        (folder / HISTORY).write_text("".join(json.dumps(row) + "\n" for row in rows))

    monkeypatch.setattr(launch, "train", train)
    return given


def test_train_ends_with_its_quarters(trained: list[Settings], tmp_path: Path, capsys: Captured) -> None:
    """Stdout is the answer; progress and the next command are on stderr."""
    assert main(["train", "--preset", "tiny", "--output", str(tmp_path / "o")]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(
        "8 steps of 2.0 s. Reward 0.050 in the first quarter, 0.650 in the last; valid 100% and 100%."
    )
    assert "Fewer than 40 steps: that it learns cannot be told from this." in out
    assert "training" in err
    assert "crystal-rl evaluate --adapter" in err
    assert trained[0].model == "tiny"


def test_train_in_json(trained: list[Settings], tmp_path: Path, capsys: Captured) -> None:
    """One document on stdout, nothing else."""
    assert main(["train", "--json", "--quiet", "--preset", "tiny", "--output", str(tmp_path / "o")]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["steps"], found["seconds_a_step"]) == (8, 2.0)
    assert err == ""
    assert len(trained) == 1


def test_a_long_run_says_nothing_of_too_few_steps() -> None:
    """From 40 steps on the quarters may speak for themselves."""
    ends = {
        "steps": 40, "seconds_a_step": None, "reward_first_quarter": 0.1, "reward_last_quarter": 0.4,
        "valid_first_quarter": 0.9, "valid_last_quarter": 1.0, "output": "o",
    }  # fmt: skip
    assert (
        summary(ends)
        == "40 steps. Reward 0.100 in the first quarter, 0.400 in the last; valid 90% and 100%. In o."
    )


def test_a_run_without_a_step_has_no_quarters() -> None:
    """Killed before the first, say."""
    nothing: dict[str, Any] = dict.fromkeys(("reward_first_quarter", "valid_first_quarter", "seconds_a_step"))
    assert summary({"steps": 0, "output": "o", **nothing}) == (
        "0 steps. Fewer than 40 steps: that it learns cannot be told from this. In o."
    )


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["--steps", "0"], 2, "steps is 0: at least 1 is needed"),
        (["--preset", "huge"], 2, "there is no preset 'huge'"),
        (["--straggler", "x"], 2, "straggler is 'x'"),
        (["--trl", "beta"], 2, "--trl 'beta'"),
        (["--config", "no-such-file.yaml"], 1, "no-such-file.yaml: cannot read the settings"),
        (["--engine", "sglang"], 2, "invalid choice"),
    ],
)
def test_what_cannot_be_trained_is_said_at_once(
    words: list[str], status: int, why: str, capsys: Captured
) -> None:
    """Usage is 2, the rest 1; no traceback."""
    assert main(["train", *words]) == status
    err = capsys.readouterr().err
    assert why in err
    assert "Traceback" not in err


# --- a rank ------------------------------------------------------------------------------------------------------


def ran(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException | None
) -> tuple[int, list[Settings]]:
    """A rank whose training ends like this; its status and what it was told."""
    seen: list[Settings] = []

    def run(settings: Settings, number: int, talk: Talk) -> None:
        del talk
        assert number == 1
        seen.append(settings)
        if error is not None:
            raise error

    monkeypatch.setattr(rank, "run", run)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv(rank.LAUNCHER, raising=False)
    file = tmp_path / SETTINGS
    file.write_text(json.dumps(written(merged(preset("tiny"), {"ranks": 2}))))
    return rank.main([str(file)]), seen


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (None, 0, ""),
        (CrystalError("no GPU", where="rank 1", fix="get one"), 1, "rank 1: no GPU\n  get one"),
        (WorkersBrokenError("worker 0 did not start"), 1, "worker 0 did not start"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=["well", "error", "workers", "interrupted"],
)
def test_a_rank_ends_with_words_and_a_status(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: Captured,
    error: BaseException | None,
    status: int,
    said: str,
) -> None:
    """The launcher takes the status; the words are the rank's own."""
    got, seen = ran(monkeypatch, tmp_path, error)
    assert (got, seen[0].ranks) == (status, 2)
    assert said in capsys.readouterr().err


def test_a_rank_of_a_dead_launcher_does_not_begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It asks for the launcher first."""
    watched: list[int] = []
    monkeypatch.setattr(rank, "end_with", watched.append)
    monkeypatch.setattr(rank, "run", lambda *_: None)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(rank.LAUNCHER, "77")
    file = tmp_path / SETTINGS
    file.write_text(json.dumps(written(merged(preset("tiny")))))
    assert rank.main([str(file)]) == 0
    assert watched == [77]


def test_workers_are_ended_when_training_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is queued for them is dropped."""
    calls: list[Any] = []

    class Pool:
        def shutdown(self, **how: bool) -> None:
            calls.append(how)

    def make_pool(plan: Any, workers: int) -> Pool:
        calls.append((plan.surrogate, workers))
        return Pool()

    def fail(*_: Any) -> None:
        raise CrystalError("no")

    monkeypatch.setattr(rank, "make_pool", make_pool)
    monkeypatch.setattr(rank, "train", fail)
    monkeypatch.setattr(rank, "variables", lambda **_: {})
    with pytest.raises(CrystalError):
        rank.run(Settings(workers=3, placement="cpu", surrogate="fake"), 0, None)  # type: ignore[arg-type] # not asked
    assert calls == [("fake", 3), {"cancel_futures": True}]


# --- the launcher ------------------------------------------------------------------------------------------------


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A launcher on a machine that has everything; what it starts is noted, not started."""
    seen: dict[str, Any] = {"status": 0}
    monkeypatch.setattr(launch, "check_packages", lambda: None)
    monkeypatch.setattr(launch, "engine_of", lambda *_: "transformers")
    monkeypatch.setattr(options, "has_gpu", lambda: False)

    def start(ranks: int, command: list[str], settings: Settings, more: dict[str, str]) -> list[Any]:
        seen.update(ranks=ranks, command=command, settings=settings, more=more)
        return []

    monkeypatch.setattr(launch, "start", start)
    monkeypatch.setattr(launch, "wait", lambda *_: seen["status"])
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return seen


class Silent:
    """A talk that keeps what it hears."""

    quiet = True

    def say(self, text: str) -> None:
        """Nothing."""


def test_ranks_start_from_one_file_of_settings(ready: dict[str, Any], tmp_path: Path) -> None:
    """Model and engine are decided in it, so that all ranks agree."""
    launch.train(merged(preset("tiny"), {"output": str(tmp_path / "o"), "ranks": 2}), Silent())  # type: ignore[arg-type] # a fake
    file = tmp_path / "o" / SETTINGS
    told = json.loads(file.read_text())
    assert (told["engine"], os.path.basename(told["model"])) == ("transformers", "tiny")  # noqa: PTH119 - text
    assert ready["command"][1:] == ["-m", "crystal_rl.rank", str(file)]
    assert (ready["ranks"], ready["more"]) == (2, {"CRYSTAL_RL_QUIET": "1"})


def test_a_rank_that_fails_fails_the_command(ready: dict[str, Any], tmp_path: Path) -> None:
    """With the folder, and how to go on."""
    ready["status"] = 7
    with pytest.raises(CrystalError, match="training ended with status 7") as caught:
        launch.train(merged(preset("tiny"), {"output": str(tmp_path / "o")}), Silent())  # type: ignore[arg-type] # a fake
    assert "--resume" in caught.value.fix
    with pytest.raises(CrystalError, match="there is a run in this folder"):
        launch.train(merged(preset("tiny"), {"output": str(tmp_path / "o")}), Silent())  # type: ignore[arg-type] # a fake


def test_under_torchrun_it_is_a_rank(
    ready: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """RANK is set: nothing is started, and the number of ranks is torchrun's."""
    ran_as: list[tuple[int, int]] = []
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setattr(rank, "run", lambda settings, number, _: ran_as.append((number, settings.ranks)))
    launch.train(merged(preset("tiny"), {"output": str(tmp_path / "o")}), Silent())  # type: ignore[arg-type] # a fake
    assert ran_as == [(3, 4)]
    assert "ranks" not in ready
