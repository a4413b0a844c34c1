"""A run killed at any moment, resumed: no step is lost, none is counted twice. Without torch: the files are the run.

What training does to its folder, in its order, is played by hand: per step each rank's samples, the history, and every
other step a checkpoint, file by file. A kill comes between any two of these writes, or in the middle of one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crystal_rl import journal
from crystal_rl.launch import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RANKS, STEPS, EVERY = 2, 6, 2
ANSWERS = 3


class Killed(Exception):  # noqa: N818 - what ends a run
    """``kill -9``."""


def append(file: Path, line: dict[str, Any], *, torn: bool = False) -> None:
    """A line, or the first half of it."""
    text = json.dumps(line) + "\n"
    with file.open("a") as out:
        out.write(text[: len(text) // 2] if torn else text)


def put(file: Path, text: str, *, torn: bool = False) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text[: len(text) // 2] if torn else text)


def writes(output: Path, first: int) -> Iterator[Callable[[bool], None]]:
    """What a run writes from this step on; each takes whether it is torn by a kill."""
    for step in range(first, STEPS):
        for rank in range(RANKS):
            for answer in range(ANSWERS):
                line = {"step": step, "id": f"s{step}.r{rank}.c{answer}"}
                file = journal.samples(output, rank)
                yield lambda torn, file=file, line=line: append(file, line, torn=torn)  # type: ignore[misc]
        line = {"step": step + 1, "reward": step / 10}
        yield lambda torn, line=line: append(output / journal.HISTORY, line, torn=torn)  # type: ignore[misc]
        if (step + 1) % EVERY == 0:
            yield from saving(output / f"{journal.PREFIX}{step + 1}", step + 1)


def saving(folder: Path, step: int) -> Iterator[Callable[[bool], None]]:
    """A checkpoint, file by file, the state last."""
    names = [
        "adapter_model.safetensors",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state_0.pth",
        "rng_state_1.pth",
    ]
    for name in names:
        yield lambda torn, name=name: put(folder / name, "weights", torn=torn)  # type: ignore[misc]
    state = json.dumps({"global_step": step, "log_history": []})
    yield lambda torn: put(folder / "trainer_state.json", state, torn=torn)


def run(output: Path, *, kill_at: int | None = None, torn: bool = False, resume: bool = True) -> int:
    """Train, from the newest whole checkpoint on, until the end or a kill; the step that it began with."""
    found = journal.begin(output, resume=resume, ranks=RANKS)
    (output / journal.SETTINGS).touch()
    first = 0 if found is None else int(found.name.removeprefix(journal.PREFIX))
    for number, write in enumerate(writes(output, first)):
        if number == kill_at:
            if torn:
                write(True)
            raise Killed
        write(False)
    return first


def count(output: Path) -> int:
    """Writes of a whole run."""
    return sum(1 for _ in writes(output, 0))


def is_whole(output: Path) -> bool:
    """Each step once in the history, each answer once in its rank's samples, in order."""
    steps = [line["step"] for line in journal.read(output / journal.HISTORY)]
    answers = [[line["id"] for line in journal.read(journal.samples(output, rank))] for rank in range(RANKS)]
    wanted = [
        [f"s{step}.r{rank}.c{answer}" for step in range(STEPS) for answer in range(ANSWERS)]
        for rank in range(RANKS)
    ]
    return steps == list(range(1, STEPS + 1)) and answers == wanted


def test_an_uninterrupted_run_is_whole(tmp_path: Path) -> None:
    """So that the tests below can fail."""
    assert run(tmp_path, resume=False) == 0
    assert is_whole(tmp_path)
    assert count(tmp_path) == 60


@pytest.mark.parametrize("torn", [False, True], ids=["between writes", "in a write"])
@pytest.mark.parametrize("kill_at", range(60))
def test_whenever_it_is_killed_no_step_is_lost_or_done_twice(
    tmp_path: Path, kill_at: int, *, torn: bool
) -> None:
    """Resumed once, the folder is what an uninterrupted run leaves."""
    with pytest.raises(Killed):
        run(tmp_path, kill_at=kill_at, torn=torn, resume=False)
    run(tmp_path)
    assert is_whole(tmp_path)


@pytest.mark.parametrize(
    ("kill_at", "first"),
    [(0, 0), (19, 0), (20, 2), (39, 2), (40, 4), (59, 4)],
    ids=["at once", "in the first checkpoint", "after it", "in the second", "after it too", "in the third"],
)
def test_it_goes_on_from_the_newest_whole_checkpoint(tmp_path: Path, kill_at: int, first: int) -> None:
    """Each is 20 writes behind the last one; the one that is being written does not count."""
    with pytest.raises(Killed):
        run(tmp_path, kill_at=kill_at, resume=False)
    assert run(tmp_path) == first


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 59), st.booleans()), min_size=1, max_size=5))
def test_killed_again_and_again_it_still_ends_whole(
    tmp_path_factory: pytest.TempPathFactory, kills: list[tuple[int, bool]]
) -> None:
    """On a preempted machine each attempt may end early; an attempt that finishes leaves nothing to resume."""
    output = tmp_path_factory.mktemp("run")
    for kill_at, torn in kills:
        try:
            run(output, kill_at=kill_at, torn=torn)
        except Killed:
            continue
    run(output)
    assert is_whole(output)


def test_a_kill_while_resuming_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that will be made again are dropped by one rename: before it all are there, after it the rest."""
    with pytest.raises(Killed):
        run(tmp_path, kill_at=35, resume=False)

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", killed)
        with pytest.raises(Killed):
            run(tmp_path)
    assert [line["step"] for line in journal.read(tmp_path / journal.HISTORY)] == [1, 2, 3, 4]
    run(tmp_path)
    assert is_whole(tmp_path)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    """The last checkpoint is its end."""
    run(tmp_path, resume=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run(tmp_path) == STEPS
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("junk", [b"\xff\xfe", b"[1, 2]\n", b'{"step": "3"}\n', b"null\n", b'{"no": 1}\n'])
def test_a_history_with_junk_at_its_end_is_read_up_to_it(tmp_path: Path, junk: bytes) -> None:
    """A disk that was full, an editor: resuming neither fails nor invents steps."""
    file = tmp_path / journal.HISTORY
    file.write_bytes(b'{"step": 1, "reward": 0.5}\n' + junk)
    assert [line["step"] for line in journal.read(file)] == [1]
    journal.begin(tmp_path, resume=True, ranks=1)
    assert list(journal.read(file)) == []


# --- two real processes that need each other ---------------------------------------------------------------------

RANK = """
import json, os, pathlib, socket, sys
from crystal_rl import journal
from crystal_rl.lifeline import end_with

output, first, last = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rank = int(os.environ["RANK"])
end_with(int(os.environ["CRYSTAL_RL_LAUNCHER"]))
if rank == 0:
    server = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
    other, _ = server.accept()
else:
    while True:
        try:
            other = socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"])))
            break
        except ConnectionRefusedError:
            pass
for step in range(first, last):
    with journal.samples(output, rank).open("a") as file:
        file.write(json.dumps({"step": step}) + "\\n")
    other.sendall(b".")                      # the gather: neither goes on alone
    if other.recv(1) != b".":
        sys.exit(7)
    if rank == 0:
        journal.append(output / journal.HISTORY, {"step": step + 1})
    if step + 1 == int(os.environ.get("STOP_AT", -1)):
        print(os.getpid(), flush=True)
        sys.stdin.read()                     # until killed
"""


def launched(output: Path, first: int, **more: str) -> subprocess.Popen[str]:
    """A launcher with two ranks, in a process of its own."""
    code = (
        "import sys; from crystal_rl import launch; from crystal_rl.settings import Settings; "
        f"command = [sys.executable, '-c', {RANK!r}, {str(output)!r}, '{first}', '{STEPS}']; "
        "sys.exit(launch.wait(launch.start(2, command, Settings(ranks=2), {}), look_every_s=0.01))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": "", **more}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def steps_of(output: Path) -> list[list[int]]:
    """The history's, and each rank's samples'."""
    files = [output / journal.HISTORY, *(journal.samples(output, rank) for rank in (0, 1))]
    return [[line["step"] for line in journal.read(file)] for file in files]


def test_two_ranks_meet_in_each_step(tmp_path: Path) -> None:
    """The launcher gives them one port; both end well, so does it."""
    with launched(tmp_path, 0) as process:
        process.communicate()
    assert process.returncode == 0
    assert steps_of(tmp_path) == [[1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("whom", ["launcher", "rank"])
def test_two_ranks_killed_and_resumed_lose_no_step(tmp_path: Path, whom: str) -> None:
    """Kill -9 on the launcher or on a rank in step 3: all of them end, and a resumed run goes on after the checkpoint."""
    with launched(tmp_path, 0, STOP_AT="3") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        pids = [int(process.stdout.readline()) for _ in range(2)]
        os.kill(process.pid if whom == "launcher" else pids[1], signal.SIGKILL)
        process.stdout.read()  # to its end: nobody is left to write
    assert process.returncode == -signal.SIGKILL if whom == "launcher" else process.returncode != 0
    for write in saving(tmp_path / f"{journal.PREFIX}2", 2):
        write(False)
    assert steps_of(tmp_path)[0] == [1, 2, 3]

    found = journal.begin(tmp_path, resume=True, ranks=2)
    assert found == tmp_path / "checkpoint-2"
    assert steps_of(tmp_path) == [[1, 2], [0, 1], [0, 1]]
    with launched(tmp_path, 2) as process:
        process.communicate()
    assert steps_of(tmp_path) == [[1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]


def test_a_port_that_was_found_free_can_be_listened_on() -> None:
    """At once, by the first rank."""
    with socket.create_server(("127.0.0.1", free_port())) as server:
        assert server.getsockname()[1] > 1023
