"""A stretch of a recording at full resolution: what is read, and that it is what the whole page would have shown there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import dipstick
from dipstick.errors import RecordingError
from dipstick.phases import CODE
from dipstick.show import page, page_range
from dipstick.show.page_range import MOST_SAMPLES, Detail
from records import cycle, on_disk, process, span, utilization
from test_show_pack import opened

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.recording.reader import Recording

Head = dict[str, Any]
Arrays = list[list[int]]
STEPS = 12
PERCENT = [95.0] * 20 + [5.0] * 15 + [60.0] * 10 + [90.0] * 5


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Twelve steps of 10 s on one GPU at 5 Hz, in files; each step's reward is another line of the code."""
    spans = [
        row | {"file": "train.py", "line": 10 + step}
        for step in range(STEPS)
        for row in cycle(0, step, 10.0 * step, (4, 3, 2, 1))
    ]
    gpu = utilization(PERCENT * STEPS, power_w=300.0, mem_used_b=8 * 2**30, mem_util_pct=30.0)
    return on_disk(
        tmp_path_factory.mktemp("run") / "RUN",
        spans=spans,
        gpu=gpu,
        processes=[process(900, rank=0, gpu=0)],
    )


@pytest.fixture(scope="module")
def detail(recorded: Recording) -> Detail:
    """The same, analysed."""
    return Detail(dipstick.explain(recorded), recorded)


def stretch(detail: Detail, start: float, end: float, points: int = 8000) -> tuple[Head, Arrays]:
    """Header and arrays of an answer."""
    return opened(detail.text(start, end, points))


def cells(arrays: Arrays, packed: Head, start: float, end: float) -> list[tuple[int, ...]]:
    """Start, end, and value of what touches the stretch, cut at its edges; in ticks and steps."""
    t0, length, low = (arrays[packed[key]] for key in ("t0", "len", "low"))
    a, b = round(10_000 * start), round(10_000 * end)
    found = [(max(a, t), min(b, t + n), v) for t, n, v in zip(t0, length, low, strict=True)]
    return [cell for cell in found if cell[1] > cell[0]]


@pytest.mark.parametrize(("start", "end"), [(0, 10), (33, 47), (110, 120), (33.3, 33.9)])
def test_every_sample_is_there_as_in_the_whole(
    detail: Detail, recorded: Recording, start: float, end: float
) -> None:
    """Reading from the middle changes no sample's place and no value, at either edge: more is read than is asked for."""
    whole, all_arrays = opened(page.data(dipstick.explain(recorded), recorded)[0])
    head, arrays = stretch(detail, start, end)
    assert [chart["key"] for chart in head["signals"]] == ["util", "memory", "access", "power"]
    for mine, theirs in zip(head["signals"], whole["signals"], strict=True):
        (part,), (line,) = mine["lines"], theirs["lines"]
        expected = cells(all_arrays, line, start, end)
        assert cells(arrays, part, start, end) == expected
        assert len(expected) >= 5 * (end - start) - 3
        assert part["column_s"] == 0


def test_states_are_those_of_the_analysis(detail: Detail, recorded: Recording) -> None:
    """Nothing is judged again from a part: the codes are the page's own."""
    whole, all_arrays = opened(page.data(dipstick.explain(recorded), recorded)[0])
    head, arrays = stretch(detail, 30, 60)
    found = cells(arrays, head["states"][0], 30, 60)
    assert found == cells(all_arrays, whole["states"][0], 30, 60)
    assert found != []


def test_phases_know_their_code_by_the_pages_numbers(detail: Detail, recorded: Recording) -> None:
    """A site's number means the same line in the answer as in the page that asked: step 5's reward is line 15."""
    whole, _ = opened(page.data(dipstick.explain(recorded), recorded, detail)[0])
    head, arrays = stretch(detail, 50, 60)
    rank = head["ranks"][0]
    codes, sites = arrays[rank["low"]], arrays[rank["site"]]
    assert rank["rank"] == 0
    assert whole["sites"][sites[codes.index(CODE["reward"])]]["place"] == "train.py:15"
    assert "sites" not in head


def test_no_track_has_more_than_was_asked_for(detail: Detail) -> None:
    """Two minutes at 5 Hz in 200 cells: columns with their least and most, and how wide they are."""
    head, arrays = stretch(detail, 0, 120, 200)
    lines = [line for chart in head["signals"] for line in chart["lines"]]
    assert max(len(arrays[line["t0"]]) for line in lines) <= 200
    assert [line["column_s"] for line in lines] == [pytest.approx(1.2, abs=0.02)] * 4
    assert (min(arrays[lines[0]["low"]]), max(arrays[lines[0]["high"]])) == (50, 950)


def test_very_many_tracks_share_what_one_answer_may_hold(
    detail: Detail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five tracks and room for 1,500 cells: 300 each, whatever was asked for; 200 at least."""
    for room, each in ((1500, 300), (10, 200)):
        monkeypatch.setattr(page_range, "MOST_CELLS", room)
        head, arrays = stretch(detail, 0, 120)
        lines = [line for chart in head["signals"] for line in chart["lines"]]
        assert {len(arrays[line["t0"]]) for line in lines} <= set(range(each // 2 - 2, each + 1))


def test_a_stretch_without_anything_is_empty(detail: Detail) -> None:
    """After the end of the run: no cells, no error."""
    head, arrays = stretch(detail, 500, 600)
    lines = [line for chart in head["signals"] for line in chart["lines"]]
    assert [arrays[line["t0"]] for line in lines if line] == []
    assert arrays[head["ranks"][0]["t0"]] == []
    assert arrays[head["states"][0]["t0"]] == []


def test_a_span_that_began_long_before_is_known(tmp_path: Path) -> None:
    """One span covers the stretch and both its edges: its place is said."""
    spans = [span("trainer.generate", 0, 100, file="gen.py", line=3)]
    recording = on_disk(
        tmp_path / "RUN", spans=spans, gpu=utilization([95.0] * 500), processes=[process(900, rank=0, gpu=0)]
    )
    detail = Detail(dipstick.explain(recording), recording)
    head, arrays = stretch(detail, 50, 51)
    (site,) = set(arrays[head["ranks"][0]["site"]])
    assert detail.sites.row(site, named=True)["file"] == "gen.py"


def test_only_the_stretch_is_read(
    detail: Detail, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each table by time range, with 2 s more on both sides; who the processes are has no time."""
    read: dict[str, tuple[int | None, int | None]] = {}
    load = recorded.table

    def noted(name: str, **how: Any) -> Any:
        read[name] = (how.get("start_ns"), how.get("end_ns"))
        return load(name, **how)

    monkeypatch.setattr(recorded, "table", noted)
    stretch(detail, 20, 30)
    near = (18_000_000_000, 32_000_000_000)
    assert read == {"gpu": near, "gpu_counters": near, "spans": near, "processes": (None, None)}


def test_the_longest_stretch_is_a_bounded_read(detail: Detail) -> None:
    """So many samples at 5 Hz on one GPU."""
    assert detail.longest_s == pytest.approx(MOST_SAMPLES * 0.2)


def test_an_answer_leaves_no_table_in_memory(detail: Detail, recorded: Recording) -> None:
    """A server holds a recording as long as its page: between answers without its rows; and they are read again."""
    first = detail.text(20, 30, 1000)
    assert not recorded._cache
    recorded.table("gpu")
    recorded.forget()
    assert not recorded._cache
    assert detail.text(20, 30, 1000) == first


def test_files_that_are_gone_are_no_hole_in_the_run(tmp_path: Path) -> None:
    """A recording that was deleted or rewritten under the page: an error, not an answer without samples."""
    recording = on_disk(
        tmp_path / "RUN", gpu=utilization(PERCENT * 2), spans=cycle(0, 0, 0.0, (4, 3, 2, 1)),
        processes=[process(900, rank=0, gpu=0)],
    )  # fmt: skip
    detail = Detail(dipstick.explain(recording), recording)
    for file in (tmp_path / "RUN" / "gpu").rglob("*.parquet"):
        file.unlink()
    for _ in range(2):
        with pytest.raises((RecordingError, OSError)):
            detail.text(3, 4, 200)
