"""The shipped example checkout: the seed's mechanism claims are settled from its code, with receipts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dipstick.verdicts.repo import scan
from dipstick.verdicts.repo_facts import (
    Fact,
    generation_hands_over_tensors,
    pool_payload_has_tensors,
    pool_payload_is,
    ranks_gather,
    receipt,
    reward_receives_text,
    settings,
    workers_synchronise,
)

if TYPE_CHECKING:
    from dipstick.verdicts.repo_model import RepoFindings

EXAMPLE = Path(__file__).parents[1] / "examples" / "seed_pipeline"
if not EXAMPLE.is_dir():
    pytest.skip("examples/ is not beside the tests (installed package)", allow_module_level=True)


@cache
def found() -> RepoFindings:
    """One scan for all tests."""
    return scan(EXAMPLE)


def line_of(file: str, text: str) -> str:
    """``file:line`` of the first line that holds a text."""
    lines = (EXAMPLE / file).read_text().splitlines()
    return f"{file}:{next(i for i, line in enumerate(lines, start=1) if text in line)}"


def word(fact: Fact) -> str:
    """The verdict's word."""
    return fact.verdict.word


def test_every_file_is_read_and_nothing_is_skipped() -> None:
    """Four modules and a configuration; the README is no code."""
    assert (found().files_read, found().skipped, found().complete) == (5, (), True)


def test_the_example_is_valid_python() -> None:
    """It is never run here; it must at least compile."""
    for file in EXAMPLE.glob("*.py"):
        assert compile(file.read_text(), file.name, "exec").co_filename == file.name


def test_both_reward_functions_are_found_at_the_trainer() -> None:
    """The receipt is the line that names them; the target is where they are defined."""
    rewards = found().of("reward_function")

    assert [(r.target, r.target_place, r.sure) for r in rewards] == [
        ("reward.format_reward", line_of("reward.py", "def format_reward"), "resolved"),
        ("reward.modification_reward", line_of("reward.py", "def modification_reward"), "resolved"),
    ]
    assert {r.place for r in rewards} == {line_of("train.py", "reward_funcs=")}
    assert {r.origin for r in rewards} == {"static"}


def test_what_crosses_to_the_workers_is_an_ase_structure() -> None:
    """A pickled ``ase.Atoms``, submitted inside the reward function, run by ``worker.score``."""
    (work,) = found().of("pool_submit")

    assert (work.place, work.target_place) == (
        line_of("reward.py", "pool().map"),
        line_of("worker.py", "def score"),
    )
    assert (work.payload, work.tensors, work.detail) == (("ase.Atoms",), False, "processes: pickled")
    assert (work.inside, work.from_reward, work.sure) == ("reward.modification_reward", True, "resolved")


def test_the_pool_is_found_with_its_size_and_initializer() -> None:
    """Two workers, each warmed up by ``worker.start``."""
    (pool,) = found().of("pool")

    assert pool.target == "concurrent.futures.ProcessPoolExecutor"
    assert pool.detail == "workers: WORKERS; initializer: worker.start"


def test_the_seeds_mechanism_claims() -> None:
    """Text goes to the reward, structures without tensors to the workers, which do not wait for each other."""
    assert word(reward_receives_text(found())) == "yes"
    assert word(generation_hands_over_tensors(found())) == "no"
    assert word(pool_payload_has_tensors(found())) == "no"
    assert word(pool_payload_is(found(), "ase.Atoms")) == "yes"
    assert word(workers_synchronise(found())) == "no"
    assert word(ranks_gather(found())) == "yes"


def test_the_schedules_are_those_of_the_configuration() -> None:
    """Checkpoints every 5 steps, cache clears every 7."""
    table = settings(found())

    assert {name: [f.detail for f in table[name]] for name in ("save_steps", "torch_empty_cache_steps")} == {
        "save_steps": ["5"],
        "torch_empty_cache_steps": ["7"],
    }
    assert table["save_steps"][0].place == line_of("config.yaml", "save_steps")


def test_a_finding_becomes_a_receipt_of_code() -> None:
    """File, line, what it is, the line itself, labelled static."""
    result = receipt(found().of("pool_submit")[0])

    assert (result.kind, result.origin, result.file) == ("code", "static", "reward.py")
    assert "ase.Atoms" in result.text
    assert result.text.endswith("scores = pool().map(worker.score, valid)")
