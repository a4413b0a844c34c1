"""Rewards: completions come in as text, structures go out to the workers, numbers come back.

Everything here runs on the CPU of the trainer's process. What crosses to the workers is a pickled
``ase.Atoms`` of a few kilobytes: no tensor and no GPU memory is involved.
"""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from ase.build import bulk

from . import worker

if TYPE_CHECKING:
    from ase import Atoms

WORKERS = 2
BLOCK = re.compile(r"<modification>.*?</modification>", re.DOTALL)
INVALID = -1.0


@cache
def pool() -> ProcessPoolExecutor:
    """The rank's two modification workers, started once and warmed up."""
    return ProcessPoolExecutor(max_workers=WORKERS, mp_context=get_context("spawn"), initializer=worker.start)


def parse(completion: str) -> Atoms | None:
    """The structure that a completion asks for; None if it is not a valid modification."""
    block = BLOCK.search(completion)
    if block is None:
        return None
    try:
        edits = ET.fromstring(block.group())  # noqa: S314  # a sketch; crystal_rl rejects entities first
    except ET.ParseError:
        return None
    structure = bulk("NaCl", "rocksalt", a=5.64)
    for edit in edits.iter("substitute"):
        symbols = structure.get_chemical_symbols()
        structure.symbols = [edit.get("to") if s == edit.get("from") else s for s in symbols]
    return structure


def modification_reward(completions: list[str], **_: object) -> list[float]:
    """Score each completion by the relaxed structure; invalid ones get -1. TRL gathers the result."""
    structures = [parse(text) for text in completions]
    valid = [atoms for atoms in structures if atoms is not None]
    scores = pool().map(worker.score, valid)
    return [INVALID if atoms is None else next(scores) for atoms in structures]


def format_reward(completions: list[str], **_: object) -> list[float]:
    """A little for a well-formed answer."""
    return [0.1 if BLOCK.fullmatch(text.strip()) else 0.0 for text in completions]
