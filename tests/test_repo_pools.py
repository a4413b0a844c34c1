"""Pool submissions: every library's way of handing work over, and the types that cross."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dipstick.verdicts.repo import scan

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.verdicts.repo_model import Finding

HEAD = """
import multiprocessing as mp
import torch
import torch.multiprocessing as tmp
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import Pool
from multiprocessing.pool import ThreadPool
from ase import Atoms
from joblib import Parallel, delayed
from loky import get_reusable_executor
from pebble import ProcessPool

def work(a, b=None):
    return a

atoms = Atoms("H2")
many = [Atoms("H2"), Atoms("O2")]
"""


def submitted(root: Path, code: str) -> list[Finding]:
    """Submissions of one module."""
    (root / "job.py").write_text(HEAD + code)
    return list(scan(root).of("pool_submit"))


@pytest.mark.parametrize(
    ("code", "payload"),
    [
        ("ProcessPoolExecutor().submit(work, atoms)", ["ase.Atoms"]),
        ("ProcessPoolExecutor().submit(work, atoms, b=1)", ["ase.Atoms", "int"]),
        ("ProcessPoolExecutor().submit(fn=work, a=atoms)", ["ase.Atoms"]),
        ("ProcessPoolExecutor().map(work, many)", ["ase.Atoms"]),
        ("ProcessPoolExecutor().map(work, many, range(2))", ["ase.Atoms", "int"]),
        ("Pool(2).map(work, many, 8)", ["ase.Atoms", "?"]),
        ("Pool(2).imap(work, many, 8)", ["ase.Atoms"]),
        ("Pool(2).imap_unordered(work, iter(many))", ["ase.Atoms"]),
        ("Pool(2).map_async(work, many)", ["ase.Atoms"]),
        ("Pool(2).starmap(work, [(atoms, 1.0)])", ["ase.Atoms", "float"]),
        ("Pool(2).starmap(work, zip(many, ['a']))", ["ase.Atoms", "str"]),
        ("Pool(2).apply_async(work, (atoms,))", ["ase.Atoms"]),
        ("Pool(2).apply_async(work, args=(atoms,), kwds={'b': 'x'})", ["ase.Atoms", "str"]),
        ("mp.get_context('spawn').Pool(2).map(work, many)", ["ase.Atoms"]),
        ("tmp.Pool(2).map(work, many)", ["ase.Atoms"]),
        ("ProcessPool().schedule(work, args=[atoms, 3])", ["ase.Atoms", "int"]),
        ("ProcessPool().schedule(work, (atoms,), timeout=3)", ["ase.Atoms"]),
        ("ProcessPool().map(work, many, timeout=30)", ["ase.Atoms"]),
        ("get_reusable_executor(max_workers=2).submit(work, atoms)", ["ase.Atoms"]),
        ("Parallel(n_jobs=2)(delayed(work)(a) for a in many)", ["ase.Atoms"]),
        ("Parallel(n_jobs=2)([delayed(work)(a, b=1) for a in many])", ["ase.Atoms", "int"]),
        ("ProcessPoolExecutor().submit(partial(work, b=2), atoms)", ["int", "ase.Atoms"]),
        ("ProcessPoolExecutor().submit(work)", []),
    ],
)
def test_every_way_of_submitting(tmp_path: Path, code: str, payload: list[str]) -> None:
    """The function is ``work``, pickled to a process; a chunk size is no payload where it can be told."""
    (found,) = submitted(tmp_path, code)

    assert (found.target, found.target_line, found.detail) == ("job.work", 14, "processes: pickled")
    assert list(found.payload) == payload
    assert found.sure == "resolved"


@pytest.mark.parametrize(
    "code",
    [
        "with ProcessPoolExecutor() as pool:\n    pool.submit(work, atoms)",
        "pool = ProcessPoolExecutor()\npool.submit(work, atoms)",
        "def get():\n    return ProcessPoolExecutor()\nget().submit(work, atoms)",
        "_pool = None\ndef init():\n    global _pool\n    _pool = ProcessPoolExecutor()\ndef go():\n    _pool.submit(work, atoms)",
        "class S:\n    def __init__(self):\n        self.pool = ProcessPoolExecutor()\n    def go(self):\n        self.pool.submit(work, atoms)",
        "def go(pool: ProcessPoolExecutor):\n    pool.submit(work, atoms)",
        "def go(p):\n    p.submit(work, atoms)\ngo(ProcessPoolExecutor())",
        "from concurrent import futures\nfutures.ProcessPoolExecutor().submit(work, atoms)",
    ],
)
def test_the_pool_is_followed_to_where_it_was_made(tmp_path: Path, code: str) -> None:
    """With-statements, names, factories, globals, attributes, annotations, parameters, modules."""
    (found,) = submitted(tmp_path, code)

    assert (found.target, found.payload, found.sure) == ("job.work", ("ase.Atoms",), "resolved")


def test_a_pool_of_unknown_origin_is_taken_by_its_name(tmp_path: Path) -> None:
    """``pool.submit`` on a parameter without a type."""
    (found,) = submitted(tmp_path, "def go(pool):\n    pool.submit(work, atoms)")

    assert found.sure == "by name"
    assert found.detail == "pool of unknown kind: pickled if its workers are processes"


@pytest.mark.parametrize(
    "code",
    [
        "dataset.map(work)",
        "form.submit(work)",
        "df.apply(work)",
        "list(map(work, many))",
        "scheduler.schedule(work)",
    ],
)
def test_namesakes_are_left_alone(tmp_path: Path, code: str) -> None:
    """``map`` of a dataset and ``apply`` of a frame submit nothing."""
    assert submitted(tmp_path, code) == []


@pytest.mark.parametrize(
    "code",
    [
        "ThreadPoolExecutor().submit(work, torch.zeros(3).cuda())",
        "ThreadPool(2).map(work, many)",
        "Parallel(n_jobs=2, prefer='threads')(delayed(work)(a) for a in many)",
    ],
)
def test_threads_pickle_nothing(tmp_path: Path, code: str) -> None:
    """They are listed, with their transport."""
    (found,) = submitted(tmp_path, code)

    assert found.detail == "threads: same memory, nothing is pickled"


def test_a_process_takes_its_arguments_along(tmp_path: Path) -> None:
    """``Process(target=..., args=...)``."""
    (found,) = submitted(tmp_path, "mp.Process(target=work, args=(atoms, 'x')).start()")

    assert (found.target, found.payload) == ("job.work", ("ase.Atoms", "str"))
    assert found.detail == "process: pickled when spawned, inherited when forked"


@pytest.mark.parametrize(
    ("value", "tensors"),
    [
        ("atoms", False),
        ("atoms.get_positions()", False),
        ("torch.zeros(3)", True),
        ("{'x': [torch.zeros(3, device='cuda')]}", True),
        ("torch.zeros(3).cpu().numpy()", False),
        ("torch.zeros(3).tolist()", False),
        ("unknown()", None),
        ("[unknown(), torch.zeros(1)]", True),
        ("Task(atoms)", False),
        ("Batch(torch.zeros(3))", True),
        ("Net()", True),
        ("Odd()", None),
        ("Inherits(1)", True),
    ],
)
def test_whether_tensors_cross(tmp_path: Path, value: str, *, tensors: bool | None) -> None:
    """Also inside containers, and in the fields of the checkout's own classes."""
    classes = """
from dataclasses import dataclass
import torch.nn as nn
import elsewhere

@dataclass
class Task:
    structure: Atoms
    name: str = ""
    def score(self): ...

class Batch:
    def __init__(self, values: torch.Tensor):
        self.values = values

class Inherits(Batch):
    pass

class Net(nn.Module):
    pass

class Odd(elsewhere.Base):
    size: int
"""

    (found,) = submitted(tmp_path, f"{classes}\nProcessPoolExecutor().submit(work, {value})")

    assert found.tensors is tensors


def test_the_object_of_a_bound_method_is_pickled_too(tmp_path: Path) -> None:
    """``pool.submit(self.score, x)`` ships ``self``, and the model in it."""
    code = """
class Scorer:
    def __init__(self):
        self.model = torch.nn.Linear(2, 2)
        self.pool = ProcessPoolExecutor()
    def score(self, x): ...
    def go(self):
        self.pool.submit(self.score, 1)
"""

    (found,) = submitted(tmp_path, code)

    assert (found.target, found.payload, found.tensors) == ("job.Scorer.score", ("job.Scorer", "int"), True)


def test_parameters_without_types_are_followed_to_their_callers(tmp_path: Path) -> None:
    """``score_all`` gets what the reward function parsed."""
    code = """
def parse(text: str):
    return Atoms(text)

def score_all(structures):
    with Pool(2) as pool:
        return pool.map(work, structures)

def reward(completions):
    found = []
    for text in completions:
        found.append(parse(text))
    return score_all(found)
"""

    (found,) = submitted(tmp_path, code)

    assert found.payload == ("ase.Atoms",)


def test_a_lambda_and_an_unknown_function(tmp_path: Path) -> None:
    """What is submitted is named as well as it can be."""
    lambda_, unknown = submitted(tmp_path, "p = Pool(2)\np.map(lambda a: a, many)\np.map(nowhere, many)\n")

    assert (lambda_.target, lambda_.target_line) == ("job.<lambda>", 20)
    assert (unknown.target, unknown.target_file) == ("nowhere", "")
