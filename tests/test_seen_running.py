"""Who was working on a GPU around a spike."""

from __future__ import annotations

import pytest

from dipstick.verdicts.seen_running import seen_running
from records import HOST, Row, memory, ns, process


def row(t: float, pid: int, percent: float | None, *, gpu: int = 0) -> Row:
    """What the driver told of one process."""
    return {"host": HOST, "gpu": gpu, "t_ns": ns(t), "window_ns": ns(1), "pid": pid, "mem_pct": percent}


ROWS = [
    row(9.5, 7, 20.0),
    row(10.2, 7, 60.0),
    row(10.2, 6, 5.0, gpu=1),
    row(10.4, 8, 70.0),
    row(12.0, 9, 90.0),
]


def seen(
    spikes: list[tuple[int, float, float]], rows: list[Row] = ROWS
) -> list[list[tuple[int, str | None, float]]]:
    """Pid, role and percentage of everybody seen at each spike."""
    recording = memory(gpu_process=rows, processes=[process(7, rank=None, gpu=0, role="cron")])
    return [
        [(p["pid"], p["role"], p["mem_pct"]) for p in found]
        for found in seen_running(recording, [(HOST, *spike) for spike in spikes])
    ]


def test_each_spike_has_its_own_company_the_busiest_first() -> None:
    """Within a second of it, on its GPU, each process at its highest; a role that nobody recorded is None."""
    assert seen([(0, 10.0, 10.5), (1, 10.0, 10.5), (0, 20.0, 21.0), (2, 10.0, 10.5)]) == [
        [(8, None, 70.0), (7, "cron", 60.0)],
        [(6, None, 5.0)],
        [],
        [],
    ]


@pytest.mark.parametrize(("t", "there"), [(8.9, False), (9.0, True), (11.4, True), (11.5, False)])
def test_around_means_a_second_either_way(t: float, *, there: bool) -> None:
    """A spike from 10.0 to 10.5 looks at [9.0, 11.5)."""
    assert bool(seen([(0, 10.0, 10.5)], [row(t, 7, 1.0)])[0]) is there


def test_equals_are_in_the_order_of_their_pids() -> None:
    """The same recording gives the same list."""
    assert [pid for pid, _, _ in seen([(0, 10.0, 10.5)], [row(10.0, p, 30.0) for p in (9, 7, 8)])[0]] == [
        7,
        8,
        9,
    ]


@pytest.mark.parametrize("percent", [0.0, None])
def test_a_process_that_accessed_no_memory_is_no_suspect(percent: float | None) -> None:
    """Nor is one of which the driver did not tell."""
    assert seen([(0, 10.0, 10.5)], [row(10.0, 7, percent)]) == [[]]


def test_without_spikes_or_rows_there_is_nobody() -> None:
    """Nothing in, nothing out."""
    assert seen([]) == []
    assert seen([(0, 10.0, 10.5)], []) == [[]]


def test_every_host_has_a_gpu_0_and_a_pid_7() -> None:
    """Two hosts, the same GPU index and pid: each spike has its own host's process, with its own role."""
    there = {"host": "node2"}
    recording = memory(
        gpu_process=[row(10.0, 7, 20.0), row(10.1, 7, 50.0) | there, row(10.2, 8, 5.0) | there],
        processes=[process(7, rank=0, gpu=0), process(7, rank=None, gpu=0, host="node2", role="cron")],
    )

    here, other = seen_running(recording, [(HOST, 0, 10.0, 10.5), ("node2", 0, 10.0, 10.5)])

    assert here == [{"pid": 7, "role": "trainer", "mem_pct": 20.0}]
    assert other == [{"pid": 7, "role": "cron", "mem_pct": 50.0}, {"pid": 8, "role": None, "mem_pct": 5.0}]


def test_a_host_without_a_name_is_one_too() -> None:
    """Imported telemetry may not say where it was read."""
    recording = memory(gpu_process=[row(10.0, 7, 20.0) | {"host": None}])

    assert seen_running(recording, [("", 0, 10.0, 10.5)]) == [[{"pid": 7, "role": None, "mem_pct": 20.0}]]
