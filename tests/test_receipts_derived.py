"""Every receipt derived again, where names are hostile, hosts are two, samples are polled or missing."""

from __future__ import annotations

import math
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.cli.query import ask
from dipstick.show.receipts import command
from dipstick.verdicts import claims
from dipstick.verdicts.claims import TESTS
from dipstick.verdicts.report import explain
from records import Row, memory, ns, utilization
from worlds import event, evidence_of, healthy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dipstick.judgement import Receipt
    from dipstick.recording.reader import Recording

HOSTILE = ("no'de; DROP TABLE gpu; --", '$(touch x) `id` "two"\\ \x1b[31m\n\u202e')


def with_memory(rows: list[Row]) -> list[Row]:
    """Memory access of 80 % in every fifth sample or so, and 60 GiB in use."""
    return [
        r | {"mem_util_pct": 80.0 if i % 37 < 2 else 0.0, "mem_used_b": (60 + i % 3) * 2**30}
        for i, r in enumerate(rows)
    ]


def hostile() -> dict[str, list[Row]]:
    """Two hosts with one GPU 0 each; names that would run in a shell or end a string."""
    world = healthy(14)

    def moved(row: Row) -> Row:
        second = row.get("rank") == 1 or row.get("gpu") == 1
        on_gpu = {"gpu": 0} if row.get("gpu") == 1 else {}
        return row | {"host": HOSTILE[second]} | on_gpu

    tables = world.rows() | {"gpu": with_memory(world.gpu())}
    tables = {name: [moved(r) for r in rows] for name, rows in tables.items()}
    tables["jobs"] = [
        r | {"job": HOSTILE[i % 2], "payload_types": HOSTILE[i % 2], "payload_b": 7}
        for i, r in enumerate(tables["jobs"])
    ]
    tables["events"] = [event(HOSTILE[0], t, t + 0.5) for t in world.starts[2:-1:3]]
    tables["gpus"] = [{"host": host, "gpu": 0, "mem_total_b": 100 * 2**30} for host in HOSTILE]
    return tables


def polled() -> dict[str, list[Row]]:
    """A poll every 0.5 s of a counter that averages over a second."""
    world = healthy(14, profiled=False)
    slow = [
        r | {"source": "poll", "window_ns": ns(1)}
        for i, r in enumerate(with_memory(world.gpu()))
        if i % 5 < 2
    ]
    return world.rows() | {"gpu": slow}


def many_gpus() -> dict[str, list[Row]]:
    """Two GPUs a rank, one of no rank, one with holes in its samples."""
    world = healthy(14)
    own = with_memory(world.gpu())
    copies = [r | {"gpu": r["gpu"] + 2} for i, r in enumerate(own) if i % 11]
    owners = world.rows()["processes"] + [r | {"gpu": r["gpu"] + 2} for r in world.rows()["processes"]]
    stray = utilization([30.0] * 400, gpu=7, mem_util_pct=5.0)
    return world.rows() | {"gpu": own + copies + stray, "processes": owners}


def engine_only() -> dict[str, list[Row]]:
    """No utilization: graphics-engine active stands in for it."""
    tables = healthy(14).rows()
    del tables["gpu"]
    return tables


def resumed() -> dict[str, list[Row]]:
    """Steps 100 to 113 of a longer run, the first of which lost its backward."""
    tables = healthy(14).rows()
    spans = [
        r | {"step": r["step"] + 100}
        for r in tables["spans"]
        if not (r["step"] == 0 and r["name"] == "backward")
    ]
    return tables | {"spans": spans, "jobs": [r | {"step": r["step"] + 100} for r in tables["jobs"]]}


WORLDS = {f.__name__: f for f in (hostile, polled, many_gpus, engine_only, resumed)}


@cache
def recording(name: str) -> Recording:
    """One of them."""
    return memory(**WORLDS[name]())


@cache
def receipts(name: str) -> tuple[Receipt, ...]:
    """Of all checks, the scorecard, and every registered claim."""
    return tuple(dict.fromkeys(_receipts(name)))


def _receipts(name: str) -> Iterator[Receipt]:
    report = explain(recording(name))
    for found in (*report.checks, *report.claims):
        yield from found.receipts  # type: ignore[attr-defined] # checks and claims have them
    given: dict[tuple[str, ...], list[str]] = {
        ("phase",): ["phase=generate", "phase=reward", "phase=gather_wait"],
        ("rank",): ["rank=0", "rank=1"],
        ("pid",): ["pid=1000", "pid=1011"],
        (): [""],
    }
    words = [
        f"{test.name} {parameters}".strip()
        for test in TESTS.values()
        for parameters in given[tuple(p.name for p in test.parameters if p.required)]
    ]
    for claim in claims.judge(evidence_of(recording(name)), [claims.from_words(text) for text in words]):
        yield from claim.receipts


def first_number(row: tuple[Any, ...]) -> float | None:
    """The first number of a result."""
    return next((float(v) for v in row if isinstance(v, int | float) and not isinstance(v, bool)), None)


@pytest.mark.parametrize("name", WORLDS)
def test_every_query_gives_its_number_again(name: str) -> None:
    """To a millionth."""
    wrong = []
    for receipt in receipts(name):
        result = ask(recording(name), receipt.query)
        again = first_number(result.row(0)) if result.height else None
        if again is None or not math.isclose(again, receipt.value or 0.0, rel_tol=1e-6, abs_tol=1e-6):
            wrong.append((receipt.text, receipt.query, receipt.value, again))

    assert len(receipts(name)) > 20
    assert wrong == []


@pytest.mark.parametrize("name", WORLDS)
def test_every_command_is_three_words_and_the_query(name: str) -> None:
    """As a shell splits it; hostile ones are written with escapes that only bash reads back."""
    for receipt in receipts(name):
        line = command(receipt, "my run")
        assert line.isprintable()
        if "$'" not in line:
            assert shlex.split(line) == ["dipstick", "query", "my run", receipt.query]


def test_hostile_hosts_are_in_the_queries_as_data() -> None:
    """Doubled quotes and nothing else."""
    hosts = [r.query for r in receipts("hostile") if "host = " in r.query]

    assert hosts
    assert any(HOSTILE[0].replace("'", "''") in query for query in hosts)
    assert any(HOSTILE[1] in query for query in hosts)
