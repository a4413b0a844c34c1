"""Hostile checkouts: the scan reads within bounds, never runs anything, never fails, and says what it left out."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dipstick.errors import DipstickError
from dipstick.verdicts.repo import scan
from dipstick.verdicts.repo_facts import pool_payload_has_tensors
from dipstick.verdicts.repo_walk import Limits, decode, printable

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.verdicts.repo_model import RepoFindings

SUBMIT = "from concurrent.futures import ProcessPoolExecutor\nfrom ase import Atoms\ndef f(x): ...\n"
SUBMIT += "ProcessPoolExecutor().submit(f, Atoms('H'))\n"


def skipped(found: RepoFindings) -> dict[str, str]:
    """File and why it was left out."""
    return {s.file: s.why for s in found.skipped}


@pytest.mark.parametrize(
    "text",
    [
        "def broken(:\n  Pool(\n",
        "x = 1\x00Pool(2)",
        "Pool(" * 5_000,
        "Pool(2)\nx = " + "(" * 3_000 + ")" * 3_000,
        "Pool(2)\nx = " + "[" * 150 + "]" * 150,
        "Pool(2)\nx = " + "-" * 20_000 + "1",
        "Pool(2)\nx = " + "1+" * 20_000 + "1",
        "Pool(2)\nx = a" + ".a" * 20_000,
        "Pool(2)\nx = f" + "(1)" * 20_000,
        "Pool(2)\n" + "".join(" " * i + "if x:\n" for i in range(90)) + " " * 90 + "pass",
        "Pool(2)\nx = " + "9" * 10_000,
        "Pool(2)\n" + "x = '\\d'\n",
        "Pool(2)\nx = '" + "a" * 100_000 + "'",
    ],
    ids=range(13),
)
def test_a_file_that_breaks_parsers_does_not_break_the_scan(tmp_path: Path, text: str) -> None:
    """Its neighbour is still read."""
    (tmp_path / "bad.py").write_text(text)
    (tmp_path / "good.py").write_text(SUBMIT)

    found = scan(tmp_path)

    assert [f.file for f in found.of("pool_submit")] == ["good.py"]
    assert set(skipped(found)) <= {"bad.py"}


def test_what_could_not_be_read_leaves_a_no_open(tmp_path: Path) -> None:
    """The broken file names a pool: nobody knows what it submits."""
    (tmp_path / "good.py").write_text(SUBMIT)
    assert pool_payload_has_tensors(scan(tmp_path)).verdict.word == "no"

    (tmp_path / "bad.py").write_text("def broken(:\n  Pool(\n")

    assert skipped(scan(tmp_path)) == {"bad.py": "not readable as Python"}
    assert pool_payload_has_tensors(scan(tmp_path)).verdict.word == "unconfirmed"


def test_nothing_is_imported_or_run(tmp_path: Path) -> None:
    """A module with side effects has none."""
    trap = tmp_path / "trap"
    (tmp_path / "train.py").write_text(
        f"open({str(trap)!r}, 'w')\nfrom concurrent.futures import *\n{SUBMIT}"
    )
    (tmp_path / "conftest.py").write_text(f"open({str(trap)!r}, 'w')")

    scan(tmp_path)

    assert not trap.exists()


def test_an_encoding_cookie_is_not_obeyed(tmp_path: Path) -> None:
    """The file is UTF-8 or Latin-1, whatever it says of itself."""
    (tmp_path / "a.py").write_bytes(b"# -*- coding: unicode_escape -*-\n" + SUBMIT.encode() + b"# caf\xe9\n")

    assert len(scan(tmp_path).of("pool_submit")) == 1


def test_bytes_that_are_no_utf8_are_read_as_latin1() -> None:
    """And a byte-order mark is dropped."""
    assert (decode(b"caf\xe9"), decode(b"\xef\xbb\xbfx"), decode("é".encode())) == ("café", "x", "é")


class TestFolders:
    """What the walk enters."""

    def test_symlinks_are_not_followed(self, tmp_path: Path) -> None:
        """Neither out of the tree nor in circles."""
        outside, root = tmp_path / "outside", tmp_path / "root"
        outside.mkdir()
        root.mkdir()
        (outside / "secret.py").write_text(SUBMIT)
        (root / "link.py").symlink_to(outside / "secret.py")
        (root / "folder").symlink_to(outside)
        (root / "loop").symlink_to(root)
        (root / "dangling.py").symlink_to(root / "nowhere")

        found = scan(root)

        assert (found.files_read, found.findings) == (0, ())
        assert skipped(found) == dict.fromkeys(["dangling.py", "folder", "link.py", "loop"], "symbolic link")

    def test_the_root_itself_may_be_a_link(self, tmp_path: Path) -> None:
        """The user named it."""
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "a.py").write_text(SUBMIT)
        (tmp_path / "link").symlink_to(tmp_path / "real")

        assert len(scan(tmp_path / "link").of("pool_submit")) == 1

    @pytest.mark.parametrize(
        "folder",
        [".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages", "x.egg-info", "wandb"],
    )
    def test_other_peoples_code_is_left_out(self, tmp_path: Path, folder: str) -> None:
        """Hidden folders, environments, caches."""
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text(SUBMIT)

        assert scan(tmp_path).files_read == 0

    def test_an_environment_is_known_by_its_mark(self, tmp_path: Path) -> None:
        """Whatever its name."""
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "pyvenv.cfg").write_text("")
        (tmp_path / "tools" / "a.py").write_text(SUBMIT)

        assert scan(tmp_path).files_read == 0

    def test_a_named_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        """It would block for ever."""
        os.mkfifo(tmp_path / "pipe.py")

        assert skipped(scan(tmp_path)) == {"pipe.py": "not a regular file"}

    def test_a_file_without_permission_is_noted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may hold what matters. Root may read everything, so the refusal is played."""
        (tmp_path / "a.py").write_text(SUBMIT)
        really = os.open

        def refuse(path: str, *rest: int, **more: int) -> int:
            if str(path).endswith("a.py"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return really(path, *rest, **more)

        monkeypatch.setattr(os, "open", refuse)

        assert skipped(scan(tmp_path)) == {"a.py": "can't be opened: Permission denied"}

    @pytest.mark.parametrize("name", ["missing", "file.py"])
    def test_a_path_that_is_no_folder_is_refused(self, tmp_path: Path, name: str) -> None:
        """With what to give instead."""
        (tmp_path / "file.py").write_text("")

        with pytest.raises(DipstickError, match="not a folder\n  --repo takes the folder"):
            scan(tmp_path / name)


class TestLimits:
    """Each bound cuts the scan short and says so."""

    @pytest.mark.parametrize(
        ("limits", "why"),
        [
            (Limits(files=1), "more than 1 files"),
            (Limits(file_bytes=100), "larger than 100 bytes"),
            (Limits(total_bytes=200), "more than 200 bytes in all"),
            (Limits(entries=1), "more than 1 folder entries"),
            (Limits(parse_bytes=200), "more Python than is read at once"),
        ],
    )
    def test_a_limit_is_named(self, tmp_path: Path, limits: Limits, why: str) -> None:
        """Absence of a finding then proves nothing."""
        for name in ("a.py", "b.py"):
            (tmp_path / name).write_text(SUBMIT)

        found = scan(tmp_path, limits)

        assert why in set(skipped(found).values())
        assert not found.complete

    def test_depth(self, tmp_path: Path) -> None:
        """A tree deeper than the limit is not entered."""
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a" / "b" / "c.py").write_text(SUBMIT)

        assert skipped(scan(tmp_path, Limits(depth=1))) == {"a/b": "deeper than 1 folders"}

    def test_effort(self, tmp_path: Path) -> None:
        """Names are followed until the effort is spent."""
        (tmp_path / "a.py").write_text(SUBMIT)

        found = scan(tmp_path, Limits(effort=3))

        assert not found.complete

    def test_findings(self, tmp_path: Path) -> None:
        """A flood of findings is cut."""
        (tmp_path / "a.py").write_text(SUBMIT + "ProcessPoolExecutor().submit(f, 1)\n" * 50)

        found = scan(tmp_path, Limits(findings=10))

        assert (len(found.of("pool_submit")), found.complete) == (10, False)


@pytest.mark.parametrize(
    "text",
    [
        "a = b\nb = a\n",
        "def f(x): return f(x)\n",
        "class A(A): pass\nA().x\n",
        "class A(B): pass\nclass B(A): pass\n",
        "from a import x\n",
        "from b import x\n",
        "import a\na.a.a.a\n",
        "funcs = [funcs]\n",
        "def g(p): return g(p)\ng(g)\n",
        "def f(x):\n    x.append(x)\n    return f(x)\n",
    ],
)
def test_circles_end(tmp_path: Path, text: str) -> None:
    """Definitions that lead to themselves, alone and through imports."""
    tail = "from concurrent.futures import ProcessPoolExecutor\nfrom trl import GRPOTrainer\n"
    tail += "ProcessPoolExecutor().submit(f, a)\nGRPOTrainer(m, reward_funcs=funcs)\nGRPOTrainer(m, reward_funcs=x)\n"
    (tmp_path / "a.py").write_text(text + tail)
    (tmp_path / "b.py").write_text("from a import x\n" + tail)

    assert len(scan(tmp_path).of("trainer")) == 4


def test_a_web_of_names_stays_within_the_effort(tmp_path: Path) -> None:
    """Each name has six bindings, each of six names: without a bound, 6^40 ways."""
    lines = [f"x{i} = x{i + 1}.{c}()" for i in range(40) for c in "abcdef"]
    (tmp_path / "a.py").write_text(SUBMIT + "\n".join(lines) + "\nProcessPoolExecutor().submit(f, x0)\n")

    found = scan(tmp_path, Limits(effort=20_000))

    assert len(found.of("pool_submit")) == 2


def test_hostile_text_is_made_printable(tmp_path: Path) -> None:
    """Escape sequences, direction marks and endless lines do not reach the screen."""
    (tmp_path / "a.py").write_text(
        SUBMIT + "ProcessPoolExecutor().submit(f, '\x1b[31m\u202e')  # " + "x" * 1_000
    )

    codes = [f.code for f in scan(tmp_path).of("pool_submit")]

    assert all(code.isprintable() and len(code) <= 200 for code in codes)
    assert printable("a\x1b[0m\nb\u202e") == "a [0m b"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.binary(max_size=300), tail=st.sampled_from(["", SUBMIT, "GRPOTrainer(m, reward_funcs=x)\n"]))
def test_any_bytes_are_survived(tmp_path: Path, data: bytes, tail: str) -> None:
    """Random bytes before real code, as Python and as YAML."""
    (tmp_path / "a.py").write_bytes(data + b"\n" + tail.encode())
    (tmp_path / "a.yaml").write_bytes(data + b"\nsave_steps: 3\n")

    assert scan(tmp_path).files_read == 2


WORDS = ["pool", "x", "f", "self", "Pool", "map", "submit", "[", "]", "(", ")", "=", ".", ",", ":", "\n", "\n    ", "def ", "class ", "for ", " in ", "lambda ", "return ", "*", "**", "import ", "from ", "with ", " as "]  # fmt: skip


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=60))
def test_any_soup_of_python_is_survived(tmp_path: Path, words: list[str]) -> None:
    """Most of it does not parse; what does must not trip the finders."""
    (tmp_path / "a.py").write_text(SUBMIT + "".join(words))

    assert scan(tmp_path).files_read == 1
