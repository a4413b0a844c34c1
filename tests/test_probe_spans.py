"""`dipstick.span`, `instant` and `wrap`: what they record, and that they are nothing when nobody records."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import dipstick
from probed import environment, run_probed

HEAD = "import dipstick_probe as dipstick\n"


def test_a_span_has_times_a_place_and_its_parent(tmp_path: Path) -> None:
    """Nested: the inner one ends first and names the outer; file and line are those of the `with`."""
    code = HEAD + (
        "with dipstick.span('outer', phase='reward', molecules=64, note='x'):\n"
        "    with dipstick.span('inner'):\n"
        "        pass\n"
    )
    main = run_probed(tmp_path, code).main
    outer, inner = main.span("outer"), main.span("inner")
    assert outer["a"] <= inner["a"] <= inner["b"] <= outer["b"]
    assert (inner["p"], inner["l"], inner["f"]) == ("outer", 3, str(tmp_path / "script.py"))
    assert (outer["ph"], outer["l"], outer["x"], "p" in outer) == (
        "reward",
        2,
        {"molecules": 64, "note": "x"},
        False,
    )
    assert outer["tid"] == main.pid


def test_numbers_can_be_added_while_it_is_open(tmp_path: Path) -> None:
    """``add`` goes to the innermost use; what is no number or string is left out."""
    code = HEAD + ("with dipstick.span('s', a=1, junk=object()) as s:\n    s.add(b=2, c=[3])\ns.add(d=4)\n")
    assert run_probed(tmp_path, code).main.span("s")["x"] == {"a": 1, "b": 2}


def test_an_exception_closes_the_span_and_goes_on(tmp_path: Path) -> None:
    """Both spans are there, and the exception is the program's own."""
    code = (
        HEAD
        + "with dipstick.span('outer'):\n    with dipstick.span('inner'):\n        raise KeyError('mine')\n"
    )
    done = run_probed(tmp_path, code)
    assert (done.main.names(), done.status) == (["inner", "outer"], 1)
    assert done.err.strip().endswith("KeyError: 'mine'")


def test_a_decorated_function_stays_itself(tmp_path: Path) -> None:
    """Each call is a span; name, signature, result and exceptions are the function's."""
    code = (
        HEAD
        + """
@dipstick.span("score", phase="reward")
def reward(prompts: list, completions: list = ()) -> list:
    "Doc."
    if not prompts: raise ValueError("none")
    return prompts

import inspect
print(reward([1]), reward.__name__, reward.__doc__, list(inspect.signature(reward).parameters))
try: reward([])
except ValueError as error: print(error)
"""
    )
    done = run_probed(tmp_path, code)
    assert done.out.splitlines() == ["[1] reward Doc. ['prompts', 'completions']", "none"]
    assert [(row["n"], row["ph"]) for row in done.main.of("span")] == [("score", "reward")] * 2


def test_a_coroutine_function_stays_one(tmp_path: Path) -> None:
    """TRL decides by it whether a reward runs on its event loop; the span covers the awaited time."""
    code = (
        HEAD
        + """
import asyncio, inspect
async def reward(x):
    await asyncio.sleep(0.05)
    return x
wrapped = dipstick.wrap(reward, "judge")
print(inspect.iscoroutinefunction(wrapped), asyncio.iscoroutinefunction(wrapped), wrapped.__name__, asyncio.run(wrapped(7)))
"""
    )
    done = run_probed(tmp_path, code)
    span = done.main.span("judge")
    assert (done.out, span["b"] - span["a"] >= 50_000_000) == ("True True reward 7\n", True)


def test_tasks_keep_their_own_parents(tmp_path: Path) -> None:
    """Two tasks interleave on one thread: each inner span has its own task's outer one as parent."""
    code = (
        HEAD
        + """
import asyncio
async def work(name):
    async with dipstick.span(name):
        await asyncio.sleep(0.01)
        with dipstick.span(name + ".inner"):
            await asyncio.sleep(0.01)
async def main():
    with dipstick.span("both"):
        await asyncio.gather(work("a"), work("b"))
asyncio.run(main())
"""
    )
    rows = run_probed(tmp_path, code).main.of("span")
    assert {row["n"]: row.get("p") for row in rows} == {
        "a": "both", "b": "both", "a.inner": "a", "b.inner": "b", "both": None,
    }  # fmt: skip


def test_a_thread_starts_without_a_parent(tmp_path: Path) -> None:
    """Spans of two threads have two thread ids and do not nest in each other."""
    code = (
        HEAD
        + """
import threading
def work():
    with dipstick.span("thread"): pass
with dipstick.span("main"):
    thread = threading.Thread(target=work); thread.start(); thread.join()
"""
    )
    main = run_probed(tmp_path, code).main
    assert ("p" in main.span("thread"), main.span("main")["tid"] == main.pid) == (False, True)
    assert main.span("thread")["tid"] != main.pid


def test_one_span_object_can_be_used_again_nested_and_in_threads(tmp_path: Path) -> None:
    """A module-level ``phase = dipstick.span(...)`` entered everywhere: every use is closed by its own end."""
    code = (
        HEAD
        + """
import threading, time
phase = dipstick.span("shared")
def work():
    for _ in range(50):
        with phase:
            with phase: pass
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    )
    rows = run_probed(tmp_path, code).main.of("span")
    inner = [row for row in rows if row.get("p") == "shared"]
    assert (len(rows), len(inner), all(row["a"] <= row["b"] for row in rows)) == (400, 200, True)


def test_a_loop_of_ones_own_numbers_its_steps(tmp_path: Path) -> None:
    """``span("step", step=n)``: everything inside belongs to that step, and the process is a trainer of rank 0."""
    code = (
        HEAD
        + """
for number in (3, 4):
    with dipstick.span("step", step=number):
        with dipstick.span("generate"): dipstick.instant("now")
"""
    )
    main = run_probed(tmp_path, code).main
    assert [(row["n"], row["step"], row.get("x")) for row in main.of("span")] == [
        ("generate", 3, None), ("step", 3, None), ("generate", 4, None), ("step", 4, None),
    ]  # fmt: skip
    assert [row["step"] for row in main.of("event") if row["n"] == "now"] == [3, 4]
    assert (main.of("meta")[-1]["role"], main.of("meta")[-1]["rank"]) == ("trainer", 0)


def test_an_instant_is_an_event(tmp_path: Path) -> None:
    """Without an end; its detail is JSON."""
    code = HEAD + "dipstick.instant('cache warmed', entries=5)\n"
    (event,) = [row for row in run_probed(tmp_path, code).main.of("event") if row["n"] != "gc"]
    assert (event["n"], event["detail"], "b" in event) == ("cache warmed", '{"entries":5}', False)


def test_a_generator_function_is_returned_as_it_is() -> None:
    """Its caller runs between its steps, so it has no one interval to record."""

    def numbers() -> Any:
        yield 1

    async def later() -> Any:
        yield 1

    assert dipstick.wrap(numbers) is numbers
    assert dipstick.wrap(later) is later


def test_a_callable_object_can_be_wrapped() -> None:
    """It has no name of its own: its type's is taken, and the call goes through."""

    class Scorer:
        def __call__(self, x: int) -> int:
            return x + 1

    assert dipstick.wrap(Scorer())(1) == 2


def test_unrecorded_marks_do_nothing() -> None:
    """In this very process, which no run records: values, exceptions and coroutine-ness are untouched."""

    @dipstick.span("f")
    async def double(x: int) -> int:
        return 2 * x

    with dipstick.span("s", phase="reward", jobs=1) as s:
        s.add(more=1)
        dipstick.instant("i", a=1)
    assert inspect.iscoroutinefunction(double)
    assert asyncio.run(double(2)) == 4


def test_dipstick_itself_marks_in_the_probes_segment(tmp_path: Path) -> None:
    """Where dipstick is installed in training, `dipstick.span` is the probe's: one recorder, not two."""
    code = "import dipstick\nwith dipstick.span('mine'): pass\n"
    done = run_probed(tmp_path, code, PYTHONPATH=str(Path(dipstick.__file__).parent.parent))
    assert (done.status, done.main.names()) == (0, ["mine"])


def test_marks_need_none_of_dipsticks_packages(tmp_path: Path) -> None:
    """`import dipstick` and its marks load no Polars, NumPy or rich, so a bare `pip install --no-deps` is enough."""
    code = (
        "import sys, dipstick\nwith dipstick.span('x'): dipstick.instant('y')\ndipstick.wrap(len)\n"
        "print({'polars', 'numpy', 'pyarrow', 'rich', 'jinja2', 'pynvml'} & set(sys.modules))"
    )
    path = str(Path(dipstick.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=environment(None, PYTHONPATH=path),
    )  # fmt: skip
    assert done.stdout == "set()\n"


def test_hostile_names_and_numbers(tmp_path: Path) -> None:
    """Names with line breaks and half surrogates, endless integers, NaN, a lying number: the file stays JSON lines."""
    code = (
        HEAD
        + r"""
class Lying(int):
    def __repr__(self): raise SystemExit("ran")
    __str__ = __repr__
with dipstick.span("a\n{\"k\":\"end\"}\ud800" * 50, big=10**400, nan=float("nan"), lying=Lying(3), ok=True):
    dipstick.instant("x" * 10_000, detail="\x1b[2J")
print("fine")
"""
    )
    done = run_probed(tmp_path, code)
    (span,) = done.main.of("span")
    assert (done.out, len(span["n"]), span["x"]) == (
        "fine\n", 512, {"big": None, "nan": None, "lying": "<Lying>", "ok": True},
    )  # fmt: skip
    assert done.main.rows[-1]["k"] == "end"
