"""The command line as a whole: verbs, flags, exit codes, what goes where."""

from __future__ import annotations

import argparse
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dipstick
from builders import tiny_report
from dipstick.cli import COMMANDS, main
from dipstick.cli.options import finite, positive
from dipstick.errors import DipstickError, RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable

HEAVY = {"numpy", "polars", "pyarrow", "rich", "jinja2", "pynvml", "dataclasses"}


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Explaining gives the hand-made report; the list holds what was asked for."""
    asked: list[object] = []

    def explain(run: object, **_more: object) -> object:
        asked.append(run)
        return tiny_report()

    monkeypatch.setattr(dipstick, "explain", explain)
    return asked


def fail(error: BaseException) -> Callable[[object], object]:
    def explain(_run: object, **_more: object) -> object:
        raise error

    return explain


def _environment(**more: str) -> dict[str, str]:
    """The package of this checkout, whatever is installed."""
    return {**os.environ, "PYTHONPATH": str(Path(dipstick.__file__).parent.parent), **more}


def run_python(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run `python ...` to its end."""
    return subprocess.run(
        [sys.executable, *words], capture_output=True, env=_environment(**environment), check=False
    )


def test_help_is_printed_with_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """Help is an answer: stdout, 0."""
    assert main(["--help"]) == 0
    out, err = capsys.readouterr()
    assert [c.NAME for c in COMMANDS if f"\n    {c.NAME} " not in out] == []
    assert err == ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.NAME)
def test_each_verb_has_help_from_its_docstring(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line is short enough for the list of verbs."""
    name, text = command.NAME, command.__doc__ or ""  # type: ignore[attr-defined] # a module
    assert main([name, "--help"]) == 0
    assert text.splitlines()[0] in capsys.readouterr().out
    assert len(text.splitlines()[0]) <= 60


def test_help_loads_nothing_heavy() -> None:
    """`dipstick --help` and `--version` answer without NumPy, Polars, rich, and even without dataclasses."""
    code = (
        "import sys; from dipstick.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    )
    for flag in ("--help", "--version"):
        done = run_python("-c", code, flag)
        assert HEAVY & set(done.stderr.decode().split()) == set()
        assert done.returncode == 0


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import dipstick` in a training script costs nothing."""
    done = run_python("-c", "import sys, dipstick; print(*sys.modules)")
    assert HEAVY & set(done.stdout.decode().split()) == set()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Before or after the verb."""
    assert main(["--version"]) == 0
    assert main(["explain", "--version"]) == 0
    assert capsys.readouterr().out == f"dipstick {dipstick.__version__}\n" * 2


def test_python_m_dipstick_is_the_same_command() -> None:
    """For an environment whose scripts are not on the PATH."""
    done = run_python("-m", "dipstick", "--version")
    assert (done.returncode, done.stdout.decode().strip()) == (0, f"dipstick {dipstick.__version__}")


def test_no_verb_is_a_usage_error_that_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr: it answers no question."""
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0][:15]) == ("", "usage: dipstick")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], "argument VERB: invalid choice: 'frobnicate'"),
        (["explain"], "the following arguments are required: RUN"),
        (["explain", "x", "--frob"], "unrecognized arguments: --frob"),
        (["explain", "x", "--width", "0"], "argument --width: 0 is not above 0"),
        (["explain", "x", "--width", "wide"], "argument --width: invalid positive value: 'wide'"),
        (["explain", "x", "--from", "nan"], "argument --from: nan is no point in time"),
        (["import", "x"], "the following arguments are required: -o/--output"),
        (["--jso", "doctor"], "unrecognized arguments: --jso"),
    ],
)
def test_usage_errors(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, one message, nothing on stdout, and where to read more."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"dipstick: error: {message}")
    assert err.splitlines()[-1].startswith("  see: dipstick")


@pytest.mark.parametrize(
    "words", [["--json", "explain", "x"], ["explain", "x", "--json"], ["explain", "--json", "x"]]
)
def test_global_flags_stand_before_or_after_the_verb(
    words: list[str], explained: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """The same answer either way."""
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["answer"]["longest_phase"] == "generate"
    assert explained == ["x"]


@pytest.mark.parametrize("words", [["-q", "explain", "x"], ["explain", "x", "--quiet"]])
@pytest.mark.usefixtures("explained")
def test_quiet_leaves_the_answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Stderr is empty, stdout is not."""
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("╭")


def test_an_expected_error_is_what_where_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1, no traceback, also under --quiet."""
    error = RecordingError("the manifest is damaged", where="RUN/manifest.json", fix="record again")
    monkeypatch.setattr(dipstick, "explain", fail(error))
    assert main(["explain", "RUN", "--quiet"]) == 1
    assert capsys.readouterr() == (
        "",
        "dipstick: error: RUN/manifest.json: the manifest is damaged\n  record again\n",
    )


def test_the_traceback_comes_with_v(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And only then."""
    monkeypatch.setattr(dipstick, "explain", fail(RecordingError("damaged")))
    assert main(["explain", "RUN", "-v"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):")
    assert err.endswith("dipstick: error: damaged\n")


class PanicError(BaseException):
    """What a panic in a Rust extension is."""


@pytest.mark.parametrize("error", [KeyError("util_pct"), PanicError("util_pct"), OSError("util_pct")])
def test_an_unexpected_error_is_our_bug_in_one_line(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so, and how to see more."""
    monkeypatch.setattr(dipstick, "explain", fail(error))
    assert main(["explain", "RUN"]) == 1
    assert capsys.readouterr() == (
        "",
        (
            f"dipstick: error: {type(error).__name__}: {error}: this is a bug in dipstick, please report it; "
            "run again with -v for the traceback\n"
        ),
    )


def test_a_file_that_cannot_be_written_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operating system's words and the file."""
    monkeypatch.setattr(
        dipstick, "explain", fail(PermissionError(13, "Permission denied", "/root/report.html"))
    )
    assert main(["explain", "RUN"]) == 1
    assert capsys.readouterr().err == "dipstick: error: /root/report.html: Permission denied\n"


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Like a shell counts SIGINT; silent."""
    monkeypatch.setattr(dipstick, "explain", fail(KeyboardInterrupt()))
    assert main(["explain", "RUN"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_closed_pipe_is_quiet() -> None:
    """`dipstick ... | head -c 1` neither fails nor complains; the status is that of an answer."""
    code = (
        "import sys\n"
        "from dipstick.cli import main, doctor\n"
        "doctor.told = lambda found: 'x' * 1_000_000\n"
        "sys.exit(main(['doctor', '--quiet']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.read(1)
        process.stdout.close()
        said = process.stderr.read()
    assert (first, said, process.returncode) == (b"x", b"", 0)


def test_control_characters_in_an_error_do_not_reach_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder's name can hold anything."""
    monkeypatch.setattr(dipstick, "explain", fail(DipstickError("no such folder", where="a\x1b[2Jb\u202ec")))
    assert main(["explain", "x"]) == 1
    assert capsys.readouterr().err == "dipstick: error: ab\ufffdc: no such folder\n"


def test_output_that_the_encoding_lacks_is_replaced() -> None:
    """An ASCII stdout gets an ASCII screen, not an exception."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import dipstick, builders\n"
        "dipstick.explain = lambda run, **more: builders.hostile_report()\n"
        "from dipstick.cli import main; sys.exit(main(['explain', 'x', '-q']))"
    )
    done = run_python("-c", code, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert done.stdout.startswith(b"+---")


def test_numbers_on_the_command_line() -> None:
    """The converters, directly."""
    assert (positive("80"), finite("-1.5")) == (80, -1.5)
    with pytest.raises(argparse.ArgumentTypeError):
        finite("inf")
    with pytest.raises(argparse.ArgumentTypeError):
        positive("-3")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_no_bug(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A write to an open file fails without a file name: it says what happened and what to do, and blames nobody."""
    monkeypatch.setattr(dipstick, "explain", fail(OSError(code, os.strerror(code))))
    assert main(["explain", "RUN"]) == 1
    assert capsys.readouterr() == (
        "",
        (
            f"dipstick: error: {os.strerror(code)}: what was written is not whole\n"
            "  Make room (df -h), or write to another disk with -o; then run it again.\n"
        ),
    )
