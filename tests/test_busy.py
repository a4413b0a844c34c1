"""Unions of intervals and exclusive shares of windows, against instants counted one by one."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.importers import busy
from dipstick.importers.busy import (
    COLUMNS,
    COMM,
    COPY_BUS,
    COPY_DEVICE,
    WORK,
    Device,
    Union,
    covered_until,
    extent,
    is_communication,
    merge,
    window_of,
)

MS = 1_000_000
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=20)
ACTIVITIES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=20
)


def array(*pairs: tuple[int, int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Intervals as rows."""
    return np.asarray(pairs, np.int64).reshape(-1, 2)


def instants(pairs: list[tuple[int, int]]) -> set[int]:
    """Unit intervals that (start, length) pairs cover."""
    return {t for start, length in pairs for t in range(start, start + length)}


@given(SPANS)
def test_a_union_covers_each_instant_once(spans: list[tuple[int, int]]) -> None:
    """Merged intervals are sorted, apart, and cover exactly the instants of all of them."""
    found = merge(array(*((start, start + length) for start, length in spans)))
    assert (found[1:, 0] > found[:-1, 1]).all()
    assert {t for start, end in found for t in range(start, end)} == instants(spans)


@given(SPANS, st.integers(0, 80))
def test_time_covered_before_an_instant(spans: list[tuple[int, int]], at: int) -> None:
    """What is covered before an instant is the number of covered unit intervals before it."""
    found = merge(array(*((start, start + length) for start, length in spans)))
    assert covered_until(found, np.asarray([at])).tolist() == [sum(t < at for t in instants(spans))]


def test_nothing_covers_nothing() -> None:
    """No interval, no time."""
    assert covered_until(array(), np.asarray([0, 5])).tolist() == [0, 0]
    assert merge(array()).shape == (0, 2)


def test_pauses_are_closed_only_up_to_the_given_length() -> None:
    """A pause of 1 is closed by a tolerance of 1, one of 2 is not."""
    assert merge(array((0, 2), (3, 4), (6, 7)), 1).tolist() == [[0, 4], [6, 7]]


@given(SPANS)
def test_a_union_that_is_merged_as_it_grows_is_the_same(spans: list[tuple[int, int]]) -> None:
    """However often the held intervals are merged, the union does not change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(busy, "HELD", 3)
        union = Union()
        for start, length in spans:
            union.add(start, start + length)
        assert union.intervals().tolist() == merge(array(*((s, s + n) for s, n in spans))).tolist()


def test_memory_is_bounded_by_closing_short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the most intervals that are kept, pauses of a microsecond are closed first, longer ones stay; it is known which."""
    monkeypatch.setattr(busy, "HELD", 10)
    monkeypatch.setattr(busy, "MOST_INTERVALS", 12)
    union = Union()
    for burst in range(10):
        for i in range(4):
            union.add(burst * 100_000 + i * 1500, burst * 100_000 + i * 1500 + 600)
    assert union.closed_ns == 1000
    assert union.intervals().tolist() == [[b * 100_000, b * 100_000 + 5100] for b in range(10)]


@given(ACTIVITIES)
def test_shares_are_exclusive_and_add_up(activities: list[tuple[int, int, int]]) -> None:
    """In every window work counts first, then device copies, bus copies, communication; together they are what is active."""
    device = Device()
    for kind, start, length in activities:
        device.add(kind, start * MS // 4, (start + length) * MS // 4)
    left: set[int] = set()
    exclusive = []
    for kind in range(4):
        mine = instants([(start, length) for k, start, length in activities if k == kind])
        exclusive.append(mine - left)
        left |= mine
    rows = device.windows(0, 13 * MS)
    for kind, column in enumerate(COLUMNS):
        expected = [100 * sum(t // 4 == window for t in exclusive[kind]) / 4 for window in range(13)]
        assert rows[column].to_list() == pytest.approx(expected)
    assert rows.select(pl.sum_horizontal(COLUMNS)).to_series().to_list() == pytest.approx(
        rows["gr_active_pct"].to_list()
    )
    facts = device.facts()
    assert facts["busy_s"] == pytest.approx(sum(facts[f"{c.removesuffix('_pct')}_s"] for c in COLUMNS))
    assert facts["busy_s"] == pytest.approx(len(left) / 4000)


def test_windows_start_where_the_trace_does_and_cover_its_end() -> None:
    """A trace of 2.5 ms from 7.2 ms on has three windows of 1 ms, the last one reaching beyond the end."""
    device = Device()
    device.add(WORK, 7_200_000, 7_700_000)
    rows = device.windows(7_200_000, 9_700_000)
    assert rows.select("t_ns", "window_ns", "gr_active_pct").rows() == [
        (8_200_000, MS, 50.0), (9_200_000, MS, 0.0), (10_200_000, MS, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("span_s", "width_ms"),
    [(0, 1), (60, 1), (61, 10), (600, 10), (3600, 100), (50_000, 1000), (10**6, 60_000)],
)
def test_the_longer_the_trace_the_wider_its_windows(span_s: int, width_ms: int) -> None:
    """At most 60,000 windows a GPU: 1 ms up to a minute, 10 ms up to ten, 100 ms up to 100 minutes."""
    assert window_of(span_s * 10**9) == width_ms * MS


def test_an_absurd_span_still_has_few_windows() -> None:
    """Times 300 years apart do not make a table that fills the memory."""
    device = Device()
    device.add(WORK, 0, 5)
    device.add(COMM, 9 * 10**18, 9 * 10**18 + 5)
    assert device.windows(0, 9 * 10**18 + 5).height <= busy.MOST_WINDOWS + 1


def test_the_extent_is_that_of_all_gpus() -> None:
    """From the first start to the last end, whichever GPU it was; None where nothing ran."""
    first, second = Device(), Device()
    first.add(COPY_BUS, 5, 9)
    second.add(COPY_DEVICE, 2, 3)
    assert extent([first, second, Device()]) == (2, 9)
    assert extent([Device()]) is None


@pytest.mark.parametrize(
    ("name", "talks"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", True),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", True),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", True),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", False),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", False),
        ("", False),
    ],
)
def test_kernels_that_talk_to_other_gpus_are_known_by_name(name: str, talks: bool) -> None:  # noqa: FBT001 - a case
    """NCCL's old and new names, vLLM's own all-reduce; a reduction inside one GPU is work."""
    assert is_communication(name) is talks
