"""Console logs of OpenRLHF, SkyRL, NeMo-RL, slime and prime-rl: rows of numbers, and timers with a time stamp."""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from dipstick.errors import ImportFormatError
from dipstick.importers.rl_lines import SNIFF, Said, said
from dipstick.importers.rl_text import Line, looks_like, read_lines
from dipstick.importers.step_clock import SAYS, StepClock
from dipstick.importers.timing_keys import TIMINGS
from dipstick.importers.timings import LONGEST_S, binding_of, driver, put_spans, timing_of
from dipstick.importers.training_rows import LogRow, TrainingRows
from dipstick.phases import CONTAINER, STEP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dipstick.importers.base import Head, Sink
    from dipstick.importers.options import Options

FORMAT: Final = "rl-log"
NAME: Final = "console log of OpenRLHF, SkyRL, NeMo-RL, slime or prime-rl"

WHOLE: Final = frozenset(timing.key for timing in TIMINGS.values() if timing.phase == STEP)
"""Keys that hold a step's total."""
SAME_NS: Final = 50_000_000
"""SkyRL writes seconds with two decimals: the stamp of a timer's start is closer, if it is the start of this timer."""
MOST_OPEN: Final = 1000
_BATCH: Final = 20_000


def sniff(head: Head) -> float:
    """One of their lines at the head, or further into a log."""
    return 0.8 if not head.is_dir and looks_like(head.path, head.text, SNIFF) else 0.0


def read(path: Path, options: Options, sink: Sink) -> None:
    """Read what the lines of the framework say that wrote most of the first thousand.

    Raises:
        ImportFormatError: No line says anything.
    """
    told = _told(path, sink, options)
    first = list(islice(told, 1000))
    if not first:
        raise ImportFormatError("no line of a framework that is known is in it.", where=str(path),
                                fix="Known: OpenRLHF 'Global step N: {…}', SkyRL 'Finished: …, time cost', NeMo-RL '• Total step time', "
                                    "slime 'perf N: {…}', prime-rl 'Step N | Time: …'.")  # fmt: skip
    framework = Counter(one.framework for _, one in first).most_common(1)[0][0]
    mine = [(line, one) for line, one in first if one.framework == framework]
    stamped = sum(line.t_ns is not None for line, _ in mine) > len(mine) // 2
    if stamped:
        whole = all(line.second for line, _ in mine if line.t_ns is not None)
        sink.clock("unix" if options.tz else "local", resolution_ns=10**9 * whole)
    else:
        sink.clock("relative")
    log = _Log(sink, stamped=stamped)
    for line, one in chain(first, told):
        if one.framework == framework:
            log.take(line, one)
    log.close()


def _told(path: Path, sink: Sink, options: Options) -> Iterator[tuple[Line, Said]]:
    """Lines that say something; a line without a stamp has the last one's, for it was printed no earlier."""
    last: int | None = None
    for line in read_lines(path, sink, options.tz):
        last = line.t_ns if line.t_ns is not None else last
        one = said(line.text)
        if one is not None:
            yield (line if line.t_ns is not None else Line(line.text, last, line.second)), one


class _Log:
    """Puts the parts of each step together; timers with a stamp are spans as they are."""

    def __init__(self, sink: Sink, *, stamped: bool) -> None:
        self._sink = sink
        self._stamped = stamped
        self._rows = TrainingRows(sink)
        self._clock = None if stamped else StepClock(runs=True)
        self._step: int | None = None
        self._values: dict[str, float] = {}
        self._at: int | None = None
        self._count = 0
        self._spans: list[dict[str, object]] = []
        self._timers: dict[str, int] = {}
        self._started: dict[str, int] = {}

    def take(self, line: Line, one: Said) -> None:
        """One thing that the log says."""
        if one.kind in {"start", "end"}:
            self._timer(line, one)
            return
        if one.kind == "step" or (one.step is not None and one.step != self._step):
            self._flush()
            self._step = one.step
        if any(key in WHOLE for key in one.values) or not any(key in WHOLE for key in self._values):
            self._at = line.t_ns  # the line with the step's total ends the step, whatever is said of it later
        self._values |= one.values
        if one.kind == "row":
            self._flush()

    def _timer(self, line: Line, one: Said) -> None:
        """A timer's end, measured where it is stamped; without a stamp its seconds belong to the step at hand."""
        timing = timing_of(one.name)
        is_step = timing is not None and (timing.phase == STEP or one.name == "perf/train_time")
        if one.kind == "start":
            if line.t_ns is not None and (one.name in self._started or len(self._started) < MOST_OPEN):
                self._started[one.name] = line.t_ns
            return
        if self._stamped and line.t_ns is not None:
            self._measured(line.t_ns, one)
        else:
            self._values |= one.values
        if is_step:
            if not self._stamped:
                self._step = self._count + 1
                self._flush()
            self._count += 1

    def _measured(self, end_ns: int, one: Said) -> None:
        """[stamp - seconds, stamp]."""
        self._sink.saw(1)
        timing = timing_of(one.name)
        phase = timing.phase if timing is not None and timing.phase not in {CONTAINER, STEP} else None
        name = timing.name if timing is not None else one.name.rpartition("/")[2]
        self._timers[one.name] = self._timers.get(one.name, 0) + 1
        begin = end_ns - round(min(one.values[one.name], LONGEST_S) * 1e9)
        started = self._started.pop(one.name, begin)
        begin = started if abs(started - begin) <= SAME_NS else begin
        self._spans.append({
            "rank": 0, "t0_ns": begin, "t1_ns": end_ns, "phase": phase,
            "name": name, "step": self._count + 1, "origin": "measured",
        })  # fmt: skip
        if len(self._spans) >= _BATCH:
            self._write()

    def _flush(self) -> None:
        values, self._values = self._values, {}
        if not values:
            return
        self._sink.saw(1)
        at = self._at if self._clock is None else self._clock.at(self._step, values)
        if at is None:
            self._sink.drop("no time stamp before the row", 1)
        else:
            self._rows.add(LogRow(at, self._step, values))

    def _write(self) -> None:
        spans, self._spans = self._spans, []
        put_spans(self._sink, spans)

    def close(self) -> None:
        """Write what is left; say which spans were measured."""
        self._flush()
        self._write()
        self._rows.close()
        if self._clock is not None:
            self._sink.note("warning", f"{self._sink.file}: {SAYS}")
        if self._timers:
            self._sink.rows("processes", driver())
            self._sink.bind(*(b for name in self._timers if (b := binding_of(name)) is not None))
            self._sink.note("info", f"{self._sink.file}: {sum(self._timers.values()):,} timers end with a time stamp: their spans are measured "
                            "(stamp minus seconds), in the driver only")  # fmt: skip
