"""Gathers, generation, schedules and worker synchronization: what counts, and the namesakes that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dipstick.verdicts.repo import scan

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.verdicts.repo_model import Finding, Kind


def found(root: Path, kind: Kind, code: str, name: str = "job.py") -> list[Finding]:
    """Findings of one kind in one file."""
    (root / name).write_text(code)
    return list(scan(root).of(kind))


@pytest.mark.parametrize(
    ("code", "target", "sure"),
    [
        (
            "import torch.distributed as dist\ndist.all_gather(a, b)",
            "torch.distributed.all_gather",
            "resolved",
        ),
        ("import torch\ntorch.distributed.barrier()", "torch.distributed.barrier", "resolved"),
        (
            "from torch.distributed import all_gather_object\nall_gather_object(a, b)",
            "torch.distributed.all_gather_object",
            "resolved",
        ),
        (
            "from accelerate.utils import gather_object\ngather_object(x)",
            "accelerate.utils.gather_object",
            "resolved",
        ),
        (
            "from accelerate import Accelerator\na = Accelerator()\na.gather(x)",
            "accelerate.Accelerator.gather",
            "resolved",
        ),
        (
            "class T:\n    def f(self):\n        self.accelerator.gather_for_metrics(x)",
            "accelerate.Accelerator.gather_for_metrics",
            "by name",
        ),
        (
            "from accelerate import Accelerator\nAccelerator().wait_for_everyone()",
            "accelerate.Accelerator.wait_for_everyone",
            "resolved",
        ),
    ],
)
def test_gathers(tmp_path: Path, code: str, target: str, sure: str) -> None:
    """Collectives of torch.distributed and accelerate."""
    assert [(f.target, f.sure) for f in found(tmp_path, "gather", code)] == [(target, sure)]


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.gather(x, 1, i)",
        "logits.gather(1, ids)",
        "import asyncio\nasyncio.gather(a(), b())",
        "functools.reduce(f, xs)",
        "def gather(x): ...\ngather(1)",
    ],
)
def test_namesakes_of_gather(tmp_path: Path, code: str) -> None:
    """Indexing a tensor and awaiting coroutines make no rank wait."""
    assert found(tmp_path, "gather", code) == []


@pytest.mark.parametrize(
    ("code", "handed"),
    [
        ("outs = llm.generate(p)\ntexts = [o.outputs[0].text for o in outputs(outs)]", "text"),
        ("outs = llm.generate(p)\ntexts = [c.text for o in outs for c in o.outputs]", "text"),
        ("text = llm.generate(p)[0].outputs[0].text", "text"),
        ("outs = llm.generate(p)\nids = [o.outputs[0].token_ids for o in outs]", "token ids"),
        ("outs = llm.generate(p)\nscore(outs)", "unknown"),
        ("ids = model.generate(**x)\ntexts = tok.batch_decode(ids)", "text"),
        ("ids = model.generate(**x)\nnew = ids[:, 5:]\ntexts = tok.batch_decode(new)", "text"),
        ("ids = model.generate(**x)\nscore(ids)", "tensors"),
        ("model.generate(**x)", "unknown"),
        ("_, ids = self.vllm_client.generate(p)\nscore(ids)", "unknown"),
    ],
)
def test_what_generation_hands_on(tmp_path: Path, code: str, handed: str) -> None:
    """Read from what the code does with the result, at module level and inside a function."""
    head = "from vllm import LLM\nfrom transformers import AutoModelForCausalLM\n"
    head += "llm = LLM('m')\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    inside = "def f(p, x):\n" + "".join(f"    {line}\n" for line in code.splitlines())

    assert [f.detail for f in found(tmp_path, "generate", head + code)] == [handed]
    assert [f.detail for f in found(tmp_path, "generate", head + inside)] == [handed]


def test_generation_by_name_and_namesakes(tmp_path: Path) -> None:
    """An attribute called ``llm`` is taken; a random number generator is not."""
    code = "class T:\n    def f(self):\n        return self.llm.generate(p)\nrng.generate(3)\nreport.generate()\n"

    assert [(f.target, f.sure) for f in found(tmp_path, "generate", code)] == [("llm.generate", "by name")]


def test_settings_in_calls(tmp_path: Path) -> None:
    """Constants, names of constants, and what is no constant."""
    code = (
        "from trl import GRPOConfig\nEVERY = 20\n"
        "GRPOConfig(save_steps=EVERY, torch_empty_cache_steps=7, eval_steps=args.eval, learning_rate=1e-5)\n"
    )

    assert [(f.target, f.detail, f.sure) for f in found(tmp_path, "schedule", code)] == [
        ("eval_steps", "not a constant", "by name"),
        ("save_steps", "20", "resolved"),
        ("torch_empty_cache_steps", "7", "resolved"),
    ]


@pytest.mark.parametrize(
    ("name", "line", "value"),
    [
        ("c.yaml", "save_steps: 20  # often", "20"),
        ("c.yml", "  - save_steps: '20'", "20"),
        ("c.json", '{"save_steps": 20, "x": 1}', "20"),
        ("c.toml", "save_steps = 20", "20"),
        ("run.sh", "python train.py --save_steps 20 \\", "20"),
        ("run.sh", "python train.py --save_steps=20", "20"),
    ],
)
def test_settings_in_files(tmp_path: Path, name: str, line: str, value: str) -> None:
    """YAML, JSON, TOML and the flags of shell scripts."""
    result = found(tmp_path, "schedule", f"\n{line}\n", name)

    assert [(f.target, f.detail, f.line) for f in result] == [("save_steps", value, 2)]


def test_explicit_calls_that_clear_and_save(tmp_path: Path) -> None:
    """``empty_cache`` in a callback is a schedule of its own."""
    code = "import torch\ndef on_step_end():\n    torch.cuda.empty_cache()\n    trainer.save_model('x')\n"

    assert [(f.target, f.detail, f.inside) for f in found(tmp_path, "schedule", code)] == [
        ("cache_clear", "called", "job.on_step_end"),
        ("checkpoint", "called", "job.on_step_end"),
    ]


WORKER = """
import multiprocessing as mp
import threading
import torch.distributed as dist
from concurrent.futures import ProcessPoolExecutor

lock = mp.Lock()
gate = mp.Barrier(2)
mine = threading.Lock()
jobs = mp.Queue()

def helper(x):
    {body}
    return x

def work(x):
    return helper(x)

ProcessPoolExecutor().submit(work, 1)
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("gate.wait()", [("barrier", "gate.wait", "resolved")]),
        ("dist.barrier()", [("collective", "torch.distributed.barrier", "resolved")]),
        ("lock.acquire()", [("lock", "lock.acquire", "resolved")]),
        ("with lock: pass", [("lock", "with lock", "resolved")]),
        ("jobs.get()", [("queue", "jobs.get", "resolved")]),
        ("stop_event.wait()", [("event", "stop_event.wait", "by name")]),
        ("some_barrier.wait()", [("barrier", "some_barrier.wait", "by name")]),
        ("with mine: pass", []),
        ("future.wait()", []),
        ("settings.get('a')", []),
        ("blocker.acquire()", []),
    ],
)
def test_synchronization_in_the_workers(
    tmp_path: Path, body: str, expected: list[tuple[str, str, str]]
) -> None:
    """Found in functions that the submitted one calls; threads' locks and other waits are none."""
    result = found(tmp_path, "worker_sync", WORKER.format(body=body))

    assert [(f.detail, f.target, f.sure) for f in result] == expected


def test_a_barrier_outside_the_workers_is_none_of_theirs(tmp_path: Path) -> None:
    """The trainer may have one."""
    code = WORKER.format(body="pass") + "\ndef train():\n    gate.wait()\n"

    assert found(tmp_path, "worker_sync", code) == []
