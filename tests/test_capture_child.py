"""CMD is started like a shell starts it: environment, program, group, signals, status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dipstick.capture import launch
from dipstick.capture.child import Child, exit_status, has_terminal
from dipstick.capture.launch import (
    PROBE,
    CannotStartError,
    environment_for,
    find_program,
    is_disabled,
    probe_variables,
    without_probe,
)
from dipstick.capture.signals import FORWARDED, Arrived, Manners, SignalQueue

if TYPE_CHECKING:
    from collections.abc import Callable


# the environment


def path_entries(environment: dict[str, str]) -> list[str]:
    return environment["PYTHONPATH"].split(os.pathsep)


def test_the_probe_comes_first_and_the_users_path_after_it(tmp_path: Path) -> None:
    """Everything else of the environment is the user's own."""
    made = environment_for(tmp_path, {"PYTHONPATH": "/a:/b", "HOME": "/h"})
    assert path_entries(made) == [str(PROBE), "/a", "/b"]
    assert made["DIPSTICK_RUN_DIR"] == str(tmp_path)
    assert (made["DIPSTICK_PROBE"], made["HOME"]) == ("1", "/h")


@pytest.mark.parametrize("before", ["", None])
def test_no_path_gives_the_probe_alone(before: str | None, tmp_path: Path) -> None:
    """Never with an empty entry, which would be the working directory."""
    environment = {} if before is None else {"PYTHONPATH": before}
    assert path_entries(environment_for(tmp_path, environment)) == [str(PROBE)]


def test_an_empty_entry_is_spelled_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's ``:/a`` means the working directory and /a; it still does."""
    monkeypatch.chdir(tmp_path)
    assert path_entries(environment_for(tmp_path, {"PYTHONPATH": ":/a"})) == [str(PROBE), str(tmp_path), "/a"]


def test_a_run_inside_a_run_records_into_its_own_folder(tmp_path: Path) -> None:
    """And the probe is on the path once."""
    outer = environment_for(tmp_path / "outer", {"PYTHONPATH": "/a"})
    inner = environment_for(tmp_path / "inner", outer)
    assert path_entries(inner) == [str(PROBE), "/a"]
    assert inner["DIPSTICK_RUN_DIR"] == str(tmp_path / "inner")


@pytest.mark.parametrize(
    ("value", "off"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)]
)
def test_the_probe_can_be_kept_out(value: str, off: object, tmp_path: Path) -> None:
    """``DIPSTICK_DISABLE=1`` leaves the environment untouched."""
    environment = {"DIPSTICK_DISABLE": value, "PYTHONPATH": "/a"}
    assert is_disabled(environment) is off
    assert (environment_for(tmp_path, environment) == environment) is off


def test_a_relative_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CMD may change its directory."""
    monkeypatch.chdir(tmp_path)
    assert probe_variables(Path("R"), "")["DIPSTICK_RUN_DIR"] == str(tmp_path / "R")


def test_our_own_helpers_run_without_the_probe() -> None:
    """The sampler of a run inside a run must not record itself into the outer one."""
    environment = {"PYTHONPATH": f"{PROBE}:/a", "DIPSTICK_RUN_DIR": "/r", "DIPSTICK_PROBE": "1", "HOME": "/h"}
    assert without_probe(environment) == {"PYTHONPATH": "/a", "HOME": "/h"}
    assert without_probe({"PYTHONPATH": str(PROBE)}) == {}


# the program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``bin`` with a program, a file that may not be executed, and a folder of the same name as nothing."""
    made = tmp_path / "bin"
    made.mkdir()
    for name, mode in (("good", 0o755), ("plain", 0o644)):
        (made / name).write_text("echo hello $1\n")
        (made / name).chmod(mode)
    return made


def test_a_program_is_found_on_the_path(folder: Path) -> None:
    """In the first folder that has an executable of that name; a name with a slash is a path."""
    assert find_program(["good"], f"/nowhere:{folder}") == str(folder / "good")
    assert find_program([str(folder / "good")], None) == str(folder / "good")


@pytest.mark.parametrize(("name", "status"), [("missing", 127), ("plain", 126), ("./missing", 127)])
def test_a_program_that_cannot_be_started_has_a_shells_status(name: str, status: int, folder: Path) -> None:
    """127: not found; 126: may not be executed."""
    with pytest.raises(CannotStartError) as caught:
        find_program([name], str(folder))
    assert caught.value.exit_code == status


# the process


def python(code: str, *, own_group: bool = True, **environment: str) -> Child:
    return Child([sys.executable, "-c", code], {**os.environ, **environment}, own_group=own_group)


def wait(child: Child) -> int:
    """Its status, after at most a minute."""
    for _ in range(6000):
        if (status := child.ended()) is not None:
            return exit_status(status)
        time.sleep(0.01)
    raise TimeoutError


@pytest.mark.parametrize(
    ("code", "status"), [("pass", 0), ("raise SystemExit(3)", 3), ("import os; os.abort()", 134)]
)
def test_the_status_is_a_shells(code: str, status: int) -> None:
    """The exit code, or 128 plus the signal."""
    assert wait(python(code)) == status


def blocked_in(out: Path, mask: frozenset[int]) -> set[int]:
    """Signals that a fresh CMD finds blocked (a shell would unblock them)."""
    code = "import sys; open(sys.argv[1], 'w').write(open('/proc/self/status').read())"
    child = Child([sys.executable, "-ISc", code, str(out)], os.environ, mask=mask, own_group=True)
    assert wait(child) == 0
    bits = int(out.read_text().split("SigBlk:")[1].split()[0], 16)
    return {number for number in range(1, 65) if bits >> (number - 1) & 1}


def test_signals_that_python_ignores_are_reset(tmp_path: Path) -> None:
    """``yes | head`` must end; a Python parent would leave SIGPIPE ignored."""
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    out = tmp_path / "out"
    child = Child(["/bin/sh", "-c", f"grep SigIgn /proc/self/status > {out}"], os.environ, own_group=True)
    assert wait(child) == 0
    bits = int(out.read_text().split()[1], 16)
    assert [bits >> (number - 1) & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ)] == [0, 0]


def test_blocked_signals_are_those_from_before(tmp_path: Path) -> None:
    """We block some while we wait for them; CMD must not inherit that."""
    with SignalQueue() as queue:
        assert blocked_in(tmp_path / "out", queue.mask) == set(queue.mask)
    assert blocked_in(tmp_path / "out", frozenset({signal.SIGUSR1})) == {signal.SIGUSR1}


def test_a_script_without_interpreter_line_runs_in_sh(folder: Path, tmp_path: Path) -> None:
    """As every shell does it."""
    command = ["/bin/sh", "-c", f"{folder}/good world > {tmp_path}/out"]
    assert wait(Child(command, os.environ, own_group=True)) == 0
    assert (tmp_path / "out").read_text() == "hello world\n"
    (folder / "good").write_text(f"echo hello $1 > {tmp_path}/direct\n")
    assert wait(Child([str(folder / "good"), "you"], os.environ, own_group=True)) == 0
    assert (tmp_path / "direct").read_text() == "hello you\n"


def test_what_the_system_will_not_start_is_an_error(folder: Path) -> None:
    """An executable that is garbage: even sh can't read it; or an argument list beyond the limit."""
    with pytest.raises(CannotStartError) as caught:
        Child([str(folder / "good"), "x" * 10_000_000], os.environ, own_group=True)
    assert caught.value.exit_code == 126


def test_a_group_of_its_own_gets_every_signal() -> None:
    """The shell and its child: both end."""
    child = Child(["/bin/sh", "-c", "sleep 60 & wait"], os.environ, own_group=True)
    assert os.getpgid(child.pid) == child.pid
    child.signal(signal.SIGTERM)
    assert wait(child) == 143
    assert eventually(lambda: group_is_gone(child.pid))


def group_is_gone(group: int) -> bool:
    """Whether no process of it runs any more."""
    stats = (
        path.read_text().rpartition(")")[2].split()
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.exists()
    )
    return all(int(fields[2]) != group or fields[0] in {"Z", "X"} for fields in stats)


def test_in_our_group_a_signal_goes_to_the_command_alone() -> None:
    """Ourselves, and the script that called us, are in that group, too."""
    child = Child([sys.executable, "-c", "import time; time.sleep(60)"], os.environ, own_group=False)
    assert os.getpgid(child.pid) == os.getpgid(0)
    child.signal(signal.SIGTERM)
    assert wait(child) == 143


def test_signalling_a_process_that_is_gone_is_no_error() -> None:
    """It may have ended a moment ago."""
    child = python("pass")
    assert wait(child) == 0
    child.signal(signal.SIGTERM)


def test_killing_takes_the_whole_tree_and_spares_our_own(tmp_path: Path) -> None:
    """Also those in a session of their own, like torchrun's ranks."""
    code = (
        "import pathlib, subprocess, sys, time; p = subprocess.Popen(['sleep', '60'], start_new_session=True); "
        "pathlib.Path(sys.argv[1]).write_text(str(p.pid)); time.sleep(60)"
    )
    ours, rank = Child(["sleep", "60"], os.environ, own_group=True), tmp_path / "rank"
    launcher = Child([sys.executable, "-c", code, str(rank)], os.environ, own_group=True)
    assert eventually(lambda: rank.exists() and rank.read_text() != "")
    launcher.kill(frozenset({ours.pid}))
    assert wait(launcher) == 137
    assert eventually(lambda: is_gone(int(rank.read_text())))
    assert ours.ended() is None
    ours.signal(signal.SIGKILL)
    assert wait(ours) == 137


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true within a minute."""
    for _ in range(6000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def is_gone(pid: int) -> bool:
    """Ended, reaped by whoever has it now or not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    except OSError:
        return True


def test_a_terminal_is_found_by_asking_for_it() -> None:
    """In a session without one there is none."""
    code = "from dipstick.capture.child import has_terminal; print(has_terminal())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, start_new_session=True
    )
    assert done.stdout == "False\n"
    assert has_terminal() in {True, False}


# signals: each test in a process of its own, since a test run has threads that block nothing


def alone(code: str) -> str:
    """What a script prints in a fresh interpreter, with the queue and its needs imported."""
    head = "import os, signal, subprocess\nfrom dipstick.capture.signals import Arrived, SignalQueue\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_signal_is_taken_from_the_queue() -> None:
    """Sent by a process, it is not from the terminal; that a child ended is no signal to pass on."""
    code = """
with SignalQueue() as queue:
    subprocess.run(["sh", "-c", f"kill -USR1 {os.getpid()}"])
    print(sorted([queue.wait(10.0), queue.wait(10.0)], key=str))
    print(queue.wait(0.0))
"""
    assert alone(code) == "[Arrived(number=10, from_terminal=False), None]\nNone\n"


def test_our_own_signal_is_not_passed_on() -> None:
    """A signal to the whole group of CMD can reach us as well."""
    assert (
        alone("with SignalQueue() as q:\n os.kill(os.getpid(), signal.SIGUSR2)\n print(q.wait(10.0))")
        == "None\n"
    )


def test_signals_that_we_were_told_to_ignore_stay_ignored() -> None:
    """``nohup``: a hang-up must not reach CMD through us."""
    code = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with SignalQueue() as queue:
    subprocess.run(["sh", "-c", f"kill -HUP {os.getpid()}"])
    print(queue.wait(0.0), signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    assert alone(code) == "None False\n"


def test_threads_that_are_started_later_do_not_take_signals() -> None:
    """Polars starts some; one that did not block SIGTERM would end the process."""
    code = """
import threading
with SignalQueue() as queue:
    stay = threading.Event()
    thread = threading.Thread(target=stay.wait)
    thread.start()
    subprocess.run(["sh", "-c", f"kill -TERM {os.getpid()}"])
    print([a for a in (queue.wait(10.0), queue.wait(10.0)) if a])
    stay.set()
    thread.join()
"""
    assert alone(code) == "[Arrived(number=15, from_terminal=False)]\n"


def test_afterwards_signals_are_as_before_and_late_ones_forgotten() -> None:
    """A scheduler's second SIGTERM, after CMD has ended, must not cost us CMD's status."""
    code = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
with SignalQueue() as queue:
    subprocess.run(["sh", "-c", f"kill -TERM {os.getpid()}"])
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    assert alone(code) == "{<Signals.SIGUSR1: 10>}\n"


def test_closing_can_be_interrupted() -> None:
    """By a new Ctrl-C, not by one that was meant for CMD."""
    code = """
with SignalQueue() as queue:
    subprocess.run(["sh", "-c", f"kill -INT {os.getpid()}"])
    try:
        queue.let_interrupt()
        print("the old one is forgotten")
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("the new one is heard")
"""
    assert alone(code) == "the old one is forgotten\nthe new one is heard\n"


def test_nothing_that_runs_before_the_queue_loads_polars() -> None:
    """Its threads would take the signals."""
    code = "import sys, dipstick.cli.run, dipstick.capture.supervisor; print('polars' in sys.modules)"
    assert alone(code) == "False\n"


def actions(*arrived: Arrived, same_group: bool) -> list[str]:
    manners = Manners()
    return [manners.action(each, same_group=same_group) for each in arrived]


KEY = Arrived(signal.SIGINT, from_terminal=True)


@pytest.mark.parametrize(
    ("arrived", "same_group", "expected"),
    [
        ((KEY, KEY), True, ["leave", "kill"]),
        ((KEY, KEY), False, ["forward", "kill"]),
        ((Arrived(signal.SIGINT),), True, ["forward"]),
        ((Arrived(signal.SIGTERM), Arrived(signal.SIGTERM)), False, ["forward", "forward"]),
        (
            (Arrived(signal.SIGTERM), KEY, Arrived(signal.SIGHUP), KEY),
            True,
            ["forward", "leave", "forward", "kill"],
        ),
        ((Arrived(signal.SIGQUIT, from_terminal=True),), True, ["leave"]),
    ],
)
def test_what_a_signal_means(arrived: tuple[Arrived, ...], same_group: object, expected: list[str]) -> None:
    """The first Ctrl-C asks (the terminal asks by itself where CMD is in its foreground group), the second one kills."""
    assert actions(*arrived, same_group=bool(same_group)) == expected


def test_every_signal_that_schedulers_send_is_forwarded() -> None:
    """None of them may end the recorder before CMD."""
    assert {s.name for s in FORWARDED} == {"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"}


def test_the_probes_folder_is_where_the_package_has_it() -> None:
    """Beside ``capture``."""
    assert PROBE.parent.name == "dipstick"
    assert launch.SEGMENTS == "probe"
