"""The documentation is true: complete, current, and every command and code block in it holds."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

import crystal_rl.cli
import dipstick
import update_docs
from dipstick import phases
from dipstick.analysis import states
from dipstick.cli import COMMANDS
from dipstick.cli.options import make_parser
from dipstick.model import STATES
from dipstick.recording.schema import TABLES

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


PARSERS = {
    "dipstick": make_parser(COMMANDS),
    "crystal-rl": make_parser(crystal_rl.cli.COMMANDS, crystal_rl.cli.PROGRAM),
}
CLI_PAGES = {"dipstick": "cli.md", "crystal-rl": "crystal_rl.md"}


def verbs(program: str) -> dict[str, argparse.ArgumentParser]:
    actions = PARSERS[program]._actions
    (sub,) = (action for action in actions if isinstance(action, argparse._SubParsersAction))
    return dict(sub.choices)


def prose(path: Path) -> str:
    """A page without its generated blocks."""
    return update_docs.BLOCK.sub("", path.read_text(encoding="utf-8"))


def fenced(path: Path, language: str) -> list[str]:
    """The code blocks of one language, as written by hand or generated."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def commands() -> list[tuple[str, str]]:
    """Every ``$ dipstick ...`` and ``$ crystal-rl ...`` line of every page."""
    found = (
        (path.name, line) for path in PAGES for block in fenced(path, "text") for line in block.splitlines()
    )
    return sorted(
        {
            (page, line.removeprefix("$ "))
            for page, line in found
            if line.startswith(("$ dipstick", "$ crystal-rl"))
        }
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_generated_blocks_are_current(path: Path) -> None:
    """What a page shows of the program is what the program says; mend with scripts/update_docs.py."""
    assert update_docs.updated(path.read_text(encoding="utf-8"))[1] == []


@pytest.mark.parametrize(("program", "verb"), [(name, verb) for name in PARSERS for verb in verbs(name)])
def test_every_verb_and_option_is_documented(program: str, verb: str) -> None:
    """The command's page has a section a verb, and each option has help that stands in it."""
    section = (ROOT / "docs" / CLI_PAGES[program]).read_text().split(f"\n## {verb}\n")[1].split("\n## ")[0]
    for action in verbs(program)[verb]._actions:
        if action.help is not argparse.SUPPRESS:
            assert action.help
            assert all(name in section for name in action.option_strings or [str(action.metavar)])


@pytest.mark.parametrize(("page", "command"), commands())
def test_every_command_in_the_pages_parses(page: str, command: str) -> None:
    """No page shows a command that the program would refuse."""
    program, *words = shlex.split(command.partition(" <")[0])
    with (
        contextlib.suppress(SystemExit),
        contextlib.redirect_stdout(io.StringIO()),
    ):  # --help leaves with SystemExit 0
        assert PARSERS[program].parse_args(words).command, page


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_blocks_compile(path: Path) -> None:
    """Code blocks are complete modules."""
    for block in fenced(path, "python"):
        compile(block, path.name, "exec")


RUNNABLE = [(path.name, block) for path in PAGES for block in fenced(path, "python") if "sample:" in block]


@pytest.mark.parametrize(("page", "block"), RUNNABLE, ids=[page for page, _ in RUNNABLE])
def test_python_blocks_on_the_sample_run(page: str, block: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Examples that need nothing but the shipped sample are run, and print something."""
    exec(compile(block, page, "exec"), {})  # noqa: S102 - our own documentation
    assert capsys.readouterr().out.strip()


def test_every_public_name_is_documented() -> None:
    """docs/python.md has a row for each name of dipstick.__all__."""
    text = (ROOT / "docs" / "python.md").read_text()
    assert [name for name in dipstick.__all__ if f"| `dipstick.{name}" not in text] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    """Relative links name files of the repository."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", prose(path))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_numbers_in_the_tutorial_are_those_of_its_screens() -> None:
    """Bold numbers in the text are printed in one of the blocks of the same page."""
    page = ROOT / "docs" / "tutorial.md"
    screens = "".join(block["body"] for block in update_docs.BLOCK.finditer(page.read_text(encoding="utf-8")))
    bold = re.findall(r"\*\*([\d.,]+(?: %)?)\*\*", prose(page))
    assert len(bold) > 10
    assert [
        number for number in bold if not re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.]*\d)", screens)
    ] == []


@pytest.mark.parametrize(
    ("page", "words"),
    [("phases.md", phases.PHASES), ("states.md", STATES), ("recording-format.md", tuple(TABLES))],
)
def test_every_word_of_a_vocabulary_is_explained(page: str, words: tuple[str, ...]) -> None:
    """Phases, states and tables each have their row or section."""
    text = prose(ROOT / "docs" / page)
    assert [word for word in words if f"| `{word}` |" not in text and f"### {word}\n" not in text] == []


def test_the_states_page_has_the_thresholds_of_the_code() -> None:
    """Each rule on docs/states.md stands there with the number that the code uses."""
    rules = [
        f"SM/*a* ≤ {states.SM_QUIET:g} and PCIe or NVLink ≥ {states.BUS_COPY_MIB_S / 1024:g} GiB/s",
        f"*a* ≥ {states.SPIN_ACTIVE:g}, SM/*a* ≤ {states.SM_QUIET:g} (≤ {states.SM_QUIET_IN_COLLECTIVE:g} while",
        f"DRAM/*a* ≤ {states.DRAM_QUIET:g}, tensor/*a* ≤ {states.TENSOR_QUIET:g},",
        f"PCIe in < {states.LAUNCHING_MIB_S:g} MiB/s",
        f"DRAM/*a* ≥ {states.DEVICE_COPY_DRAM:g} and tensor/*a* < {states.TENSOR_QUIET:g} for two windows",
        f"`light`: SM/*a* < {states.LIGHT_SM:g}.",
        f"the {states.IDLE_POWER_PERCENTILE:g}st percentile of board power",
        f"{100 * states.FULL_CLOCK:g} % of the highest SM clock",
        f"at most {states.PLATEAU_OF_PEAK:g} of the busiest power",
        f"power > {states.IDLE_POWER_FACTOR:g} P0, or memory utilization > {states.MEM_UTIL_QUIET_PCT:g} %: `compute`",
        f"utilization ≥ {states.UTIL_FULL_PCT:g} %, memory utilization ≤ {states.MEM_UTIL_QUIET_PCT:g} %",
    ]
    text = " ".join((ROOT / "docs" / "states.md").read_text().split())
    assert [rule for rule in rules if rule not in text] == []


def test_a_stale_block_is_found_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--check leaves the file alone and exits with 1; without it the block is filled."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- generated: barriers -->\nold\n<!-- /generated -->\nafter\n")
    assert update_docs.main(["--check", str(page)]) == 1
    assert capsys.readouterr().err == f"{page}: stale: barriers\n"
    assert "old" in page.read_text()
    assert update_docs.main([str(page)]) == 0
    assert "| reward | `_calculate_rewards` | `gather_wait` |" in page.read_text()
    assert update_docs.main(["--check", str(page)]) == 0


def test_parts_of_a_screen() -> None:
    """Paragraphs by their first words; what was left out shows as an ellipsis."""
    screen = "Answer\n1\n\nWaits\n2\n\nNotes\n3"
    assert update_docs.part_of(screen, "Waits") == "…\n\nWaits\n2\n\n…"
    assert update_docs.part_of(screen, "Answer|Notes") == "Answer\n1\n\n…\n\nNotes\n3"
    assert update_docs.part_of(screen, "<Notes") == "Answer\n1\n\nWaits\n2\n\n…"
    with pytest.raises(ValueError, match="no paragraph begins with"):
        update_docs.part_of(screen, "Dips")
