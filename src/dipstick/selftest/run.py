"""Run scenarios: draw, record, explain, compare."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import dipstick
from dipstick.errors import UsageError
from dipstick.selftest.confusion import Outcome, compare
from dipstick.selftest.findings import CLAIMS, read
from dipstick.selftest.scenarios import SCENARIOS, Scenario
from dipstick.selftest.write import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dipstick.model import Report


def choose(names: Sequence[str]) -> tuple[Scenario, ...]:
    """The named scenarios in their own order; all if none is named.

    Raises:
        UsageError: There is no such scenario; lists them.
    """
    known = [scenario.name for scenario in SCENARIOS]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"there is no scenario {unknown[0]!r}", fix=f"scenarios: {', '.join(known)}")
    return tuple(scenario for scenario in SCENARIOS if not names or scenario.name in names)


def run(names: Sequence[str], seed: int, *, processes: int = 1) -> Iterator[Outcome]:
    """Outcomes in the scenarios' order, as they are there.

    Args:
        names: Scenarios; none means all.
        seed: Same seed, same recordings, same verdicts.
        processes: Scenarios at the same time.
    """
    chosen = [scenario.name for scenario in choose(names)]
    if processes < 2 or len(chosen) < 2:  # noqa: PLR2004 - nothing to share out
        yield from (judge(name, seed) for name in chosen)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(judge, chosen, [seed] * len(chosen))


def judge(name: str, seed: int) -> Outcome:
    """One scenario. An exception of the product is an outcome, not the end of the others."""
    (scenario,) = choose([name])
    start = time.perf_counter()
    try:
        found = read(explained(scenario, seed))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this scenario's result
        return Outcome(name, scenario.about, (), _since(start), f"{type(error).__name__}: {error}")
    return Outcome(name, scenario.about, compare(scenario, found), _since(start))


def explained(scenario: Scenario, seed: int, explain: Callable[..., Report] = dipstick.explain) -> Report:
    """Record the scenario into a temporary folder and explain it."""
    with tempfile.TemporaryDirectory(prefix="dipstick-selftest-") as parent:
        folder = Path(parent) / scenario.name
        rng = np.random.default_rng([seed, 1])
        record(folder, scenario.scene(seed), scenario.sampling, rng, plain=scenario.plain)
        return explain(folder, claims=CLAIMS)


def _since(start: float) -> float:
    return time.perf_counter() - start
