"""The command `crystal-rl`: score and structures, what goes where, and what a hostile input does."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from crystal_rl.cli import COMMANDS, main

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = {
    "ase",
    "matplotlib",
    "numpy",
    "pymatgen",
    "scipy",
    "smact",
    "torch",
    "trl",
    "vllm",
    "xml",
}
GOOD = '<modification><substitute from="Na" to="K"/></modification>'
SCORE = ("score", "--surrogate", "fake", "--structure", "rocksalt-NaCl", "--target", "2.5", "--quiet")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a text on stdin."""

    def tell(text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return tell


@pytest.fixture
def _crystal() -> None:
    """Skip where the extra is not installed."""
    for package in ("ase", "smact"):
        pytest.importorskip(package, reason="needs the extra `crystal`: nox -s crystal")


def test_help_is_printed_with_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """Help is an answer: stdout, 0."""
    assert main(["--help"]) == 0
    out, err = capsys.readouterr()
    assert [c.NAME for c in COMMANDS if f"\n    {c.NAME} " not in out] == []
    assert err == ""


def test_help_loads_nothing_heavy() -> None:
    """`crystal-rl --help` answers without ASE, torch or NumPy."""
    code = (
        "import sys; from crystal_rl.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stderr.split()) == set()


def test_messages_grammar_and_reward_need_neither_ase_nor_numpy() -> None:
    """What crosses to the workers and what the reward function does first stays light."""
    names = ("messages", "errors", "grammar", "reward", "summary")
    code = f"import sys, {', '.join(f'crystal_rl.{name}' for name in names)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"ase", "numpy", "torch", "scipy"} & set(done.stdout.split()) == set()


def test_python_m_crystal_rl_is_the_same_command() -> None:
    """For an environment whose scripts are not on the PATH."""
    done = subprocess.run(
        [sys.executable, "-m", "crystal_rl", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("crystal-rl ")


def test_an_absent_package_is_named_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback for who installed dipstick alone."""
    monkeypatch.setattr("crystal_rl.cli.common.NEEDED", ("no_such_package",))
    assert main(["structures"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("crystal-rl: error: not installed: no_such_package\n  pip install")


# --- score ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_crystal")
def test_a_completion_on_stdin_is_scored(told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """One row with its terms, and a sentence."""
    told(f"<think>hm</think>{GOOD}")
    assert main(SCORE) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[0].split() == ["id", "reward", "S", "E", "C", "edits", "steps", "value", "what"]
    assert lines[1].split()[0] == "c0"
    assert lines[1].split()[-1] == "ok"
    assert lines[-1].startswith("1 of 1 scored, mean reward 0.")


@pytest.mark.usefixtures("_crystal")
def test_json_has_every_term_and_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON lines in, one document out: results in their order, and the summary."""
    path = tmp_path / "completions.jsonl"
    lines = [
        {"completion": GOOD, "id": "first"},
        {"completion": "no", "structure": "perovskite-SrTiO3"},
        {"completion": GOOD, "goal": {"property": "density", "direction": "lower", "low": 1, "high": 4}},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    assert main([*SCORE[:1], str(path), *SCORE[1:], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["model"]) == (1, "fake-1")
    assert [(r["id"], r["ok"], r["code"]) for r in found["results"]] == [
        ("first", True, None), ("c1", False, "no_block"), ("c2", True, None),
    ]  # fmt: skip
    assert set(found["results"][0]["terms"]) == {
        "closeness", "stability", "chemistry", "edits", "formation_energy", "formation_energy_start",
    }  # fmt: skip
    assert found["results"][0]["terms"]["closeness"] != found["results"][2]["terms"]["closeness"]
    assert found["summary"]["codes"] == {"no_block": 1}
    assert found["summary"]["duplicates"] == 1.0


@pytest.mark.usefixtures("_crystal")
def test_a_rerun_prints_the_same(told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Rewards, values and positions; only the spans of the clock differ."""

    def answer() -> Any:
        told(GOOD)
        assert main([*SCORE, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        return [{k: v for k, v in r.items() if k != "spans"} for r in found["results"]]

    assert answer() == answer()


@pytest.mark.usefixtures("_crystal")
@pytest.mark.parametrize("limit", ["--higher", "--lower"])
def test_limits_are_goals(limit: str, told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Between two values."""
    told(GOOD)
    assert main([*SCORE[:5], limit, "1", "4", "-q", "--json"]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["results"][0]["terms"]["closeness"] < 1


@pytest.mark.usefixtures("_crystal")
def test_control_characters_of_a_completion_do_not_reach_the_terminal(
    told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither from the text nor from its id."""
    told(json.dumps({"completion": "<modification><\x1b[2J/></modification>", "id": "\x1b]0;x\x07"}))
    assert main(SCORE) == 0
    assert "\x1b" not in capsys.readouterr().out


BAD = [
    ("", "stdin: holds no completion"),
    (" \n", "stdin: holds no completion"),
    ("{", "line 1: not JSON"),
    ('{"completion": 3}', "line 1: not an object with a text named completion"),
    ('{"completion": "x"}\n[]', "line 2: not an object with a text named completion"),
    ('{"a":' * 100_000, "line 1: not JSON"),
    ('{"completion": "x", "goal": 3}', "line 1: the goal is none"),
    ('{"completion": "x", "goal": {"property": "density"}}', "line 1: the goal is none"),
    (
        '{"completion": "x", "goal": {"property": "density", "target": 1, "width": 0}}',
        "line 1: a width of 0: it must be above 0",
    ),
    (
        '{"completion": "x", "goal": {"property": "density", "target": NaN, "width": 1}}',
        "line 1: the goal's numbers must be finite",
    ),
    (
        '{"completion": "x", "goal": {"property": "d", "direction": "up", "low": 1, "high": 2}}',
        "line 1: a limit needs low < high, and lower or higher as direction",
    ),
    ('{"completion": "x", "structure": "nowhere"}', "no structure named 'nowhere'"),
    ('{"completion": "x", "structure": 3}', "which structure do the completions edit?"),
]


@pytest.mark.usefixtures("_crystal")
@pytest.mark.parametrize(("text", "message"), BAD, ids=[message for _, message in BAD])
def test_input_that_cannot_be_scored_says_what_and_where(
    text: str, message: str, told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is the user's: it is refused as a whole, with the line."""
    told(text)
    assert main(SCORE) in {1, 2}
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"crystal-rl: error: {message}")) == ("", True)


@pytest.mark.usefixtures("_crystal")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*SCORE[:5], "-q"), "what is the goal?"),
        ((*SCORE[:3], "-q", "--target", "1"), "which structure do the completions edit?"),
        ((*SCORE, "--width", "-1"), "a width of -1: it must be above 0"),
        ((*SCORE, "--surrogate", "gpt"), "no surrogate named 'gpt'"),
        ((*SCORE, "--fmax", "nan"), "argument --fmax: invalid above_0 value: 'nan'"),
        ((*SCORE, "--lower", "1", "2"), "argument --lower: not allowed with argument --target"),
        (("score", "/nowhere", *SCORE[1:]), "/nowhere: cannot be read: No such file or directory"),
    ],
)
def test_options_that_cannot_be_used_say_so(
    words: tuple[str, ...], message: str, told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with status 1 or 2."""
    told(GOOD)
    assert main(list(words)) in {1, 2}
    assert capsys.readouterr().err.startswith(f"crystal-rl: error: {message}")


# --- structures -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_crystal")
def test_structures_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Those whose name contains a word, with formula, size, density and formation energy."""
    assert main(["structures", "rocksalt-Na", "CsCl", "-q"]) == 0
    out = capsys.readouterr().out
    names = [line.split()[0] for line in out.splitlines()[1:]]
    assert {"rocksalt-NaCl", "rocksalt-NaF", "cesiumchloride-CsCl"} <= set(names)
    assert main(["structures", "unobtainium"]) == 2


@pytest.mark.usefixtures("_crystal")
def test_structures_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With the cell and every atom."""
    assert main(["structures", "rocksalt-NaCl", "--json"]) == 0
    (crystal,) = json.loads(capsys.readouterr().out)["structures"]
    assert crystal["structure"]["numbers"] == [11, 17] * 4
    assert len(crystal["structure"]["positions"]) == 8


@pytest.mark.usefixtures("_crystal")
def test_structures_can_be_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first two cells, twice: the same file; a third time only with --force."""
    pytest.importorskip("pymatgen")
    words = ["structures", "--surrogate", "fake", "--limit", "2", "--generate"]
    paths = [tmp_path / name for name in ("a.xyz", "b.xyz")]
    for path in paths:
        assert main([*words, str(path)]) == 0
    assert "[1/2] rocksalt-LiF\n" in capsys.readouterr().err
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].read_text().count("model=fake-1") == 2
    assert main([*words, str(paths[0])]) == 1
    assert (
        capsys.readouterr().err
        == f"crystal-rl: error: {paths[0]}: is there already\n  --force overwrites it\n"
    )
    assert main([*words, str(paths[0]), "--force", "-q"]) == 0
