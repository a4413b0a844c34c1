"""Fill the generated blocks of README.md and docs/*.md, so that what they show is what the program says.

    python scripts/update_docs.py            rewrite what is stale
    python scripts/update_docs.py --check    only say so, with status 1 (tests/test_docs.py does this)

A block stands between ``<!-- generated: KIND ARGUMENTS -->`` and ``<!-- /generated -->``. Kinds: ``run [PART] COMMAND``
(its real output on 80 columns; PART is ``[Waits|Notes]`` for the paragraphs that begin so, ``[<Waits]`` for all before
that one), ``json KEY...`` (that part of ``explain --json`` of the sample),
``rules``, ``barriers``, ``table NAME`` (columns of a recording table), ``waits_seen``, ``benchmarks``, ``costs``, ``crystal_codes``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import itertools
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"(<!-- generated: (?P<kind>\w+) ?(?P<arguments>[^\n]*?) -->\n)(?P<body>.*?)(<!-- /generated -->)",
    re.DOTALL,
)
SAMPLE = "sample:h200x2-grpo"
SAMPLES = ("h200x2-grpo", "h200x2-grpo-135m")
UNITS = {
    "_ns": "ns", "_pct": "percent, 0-100", "_b": "bytes", "_w": "W", "_mhz": "MHz", "_c": "°C", "_mib_s": "MiB/s",
    "_ms": "ms",
}  # fmt: skip
PLAIN = {"COLUMNS": "80", "LINES": "60", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}


@functools.cache
def output_of(command: str) -> str:
    """What a ``dipstick ...`` or ``crystal-rl ...`` command prints on stdout, in 80 columns without colour.

    Raises:
        ValueError: It is no command of ours, or it failed.
    """
    import crystal_rl.cli  # noqa: PLC0415 - tests replace the environment first
    import dipstick.cli  # noqa: PLC0415 - the same

    program, *arguments = shlex.split(command)
    mains = {"dipstick": dipstick.cli.main, "crystal-rl": crystal_rl.cli.main}
    if program not in mains:
        raise ValueError(f"not a command of ours: {command}")
    out, before = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), dict(os.environ)
    os.environ.pop("FORCE_COLOR", None)
    os.environ.update(PLAIN)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as talk:
            status = _status(mains[program], arguments)
    finally:
        os.environ.clear()
        os.environ.update(before)
    if status:
        raise ValueError(f"{command}: status {status}: {talk.getvalue()}")
    out.seek(0)
    return out.read()


def _status(main: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Exit status of the command line; argparse leaves ``--help`` with SystemExit."""
    try:
        return main(arguments)
    except SystemExit as error:
        return int(error.code or 0)


def run(arguments: str) -> str:
    """A console block: the command and its output, or a part of it."""
    wanted = re.match(r"\[(.+?)\] ", arguments)
    command = arguments[wanted.end() :] if wanted else arguments
    text = _same_help(output_of(command)).rstrip("\n")
    shown = part_of(text, wanted[1]) if wanted else text
    return "\n".join(["```text", f"$ {command}", *(line.rstrip() for line in shown.split("\n")), "```"])


def part_of(text: str, wanted: str) -> str:
    """The paragraphs that begin with one of the titles, or all before one; … stands for what was left out.

    Raises:
        ValueError: A title begins no paragraph.
    """
    paragraphs = text.split("\n\n")
    titles = tuple(wanted.removeprefix("<").split("|"))
    hits = [i for i, paragraph in enumerate(paragraphs) if paragraph.startswith(titles)]
    if len(hits) < len(titles):
        raise ValueError(f"no paragraph begins with each of {titles}")
    chosen = range(hits[0]) if wanted.startswith("<") else hits
    gaps = [b - a > 1 for a, b in itertools.pairwise([-1, *chosen, len(paragraphs)])]
    pieces = [
        piece for i, gap in zip(chosen, gaps, strict=False) for piece in (["…"] * gap + [paragraphs[i]])
    ]
    return "\n\n".join([*pieces, *["…"] * gaps[-1]])


def _same_help(text: str) -> str:
    """Python 3.13 writes ``-o, --output OUT`` where older ones write ``-o OUT, --output OUT``: the newer form."""
    return re.sub(r"(^|[ \[])(-\w) ([A-Z_.|]+), (--[\w-]+) \3", r"\1\2, \4 \3", text, flags=re.MULTILINE)


def json_part(arguments: str) -> str:
    """Members of the sample's JSON; arrays are cut to their first element."""
    whole = json.loads(output_of(f"dipstick explain {SAMPLE} --json"))
    part = {key: _first_only(functools.reduce(_member, key.split("."), whole)) for key in arguments.split()}
    return "\n".join(["```json", json.dumps(part, indent=2, ensure_ascii=False), "```"])


def _member(value: dict[str, Any], key: str) -> Any:
    return value[key]


def _first_only(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _first_only(item) for key, item in value.items()}
    if isinstance(value, list) and len(value) > 2 and isinstance(value[0], dict):  # noqa: PLR2004 - a pair is short
        return [_first_only(value[0]), f"… {len(value) - 1} more"]
    return [_first_only(item) for item in value] if isinstance(value, list) else value


def table_of(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *[[cell.replace("|", "\\|") for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rules(_: str) -> str:
    """TRL's map in the order in which it is tried."""
    from dipstick.phases import TRL_RULES  # noqa: PLC0415 - see output_of

    rows = [(f"`{r.name}`", f"`{r.inside}`" if r.inside else "", f"`{r.phase}`", r.part) for r in TRL_RULES]
    return table_of(("span name", "only inside", "phase", "part"), rows)


def barriers(_: str) -> str:
    """Where TRL's ranks meet."""
    from dipstick.phases import TRL_BARRIERS  # noqa: PLC0415 - see output_of

    rows = [(b.name, f"`{b.arrive_at_end_of}`", f"`{b.wait_phase}`") for b in TRL_BARRIERS]
    return table_of(("barrier", "a rank arrives at the end of", "its wait is"), rows)


def columns(arguments: str) -> str:
    """Columns of one table with type and unit."""
    from dipstick.recording.schema import CATEGORIES, REQUIRED_TIMES, TABLES  # noqa: PLC0415 - see output_of

    required = REQUIRED_TIMES.get(arguments, ())
    rows = [
        (
            f"`{name}`",
            str(dtype) + (" (few values)" if name in CATEGORIES else ""),
            _unit(name),
            "never" * (name in required),
        )
        for name, dtype in TABLES[arguments].items()
    ]
    return table_of(("column", "type", "unit", "null"), rows)


def _unit(column: str) -> str:
    return next((unit for suffix, unit in UNITS.items() if column.endswith(suffix)), "")


def waits_seen(_: str) -> str:
    """How much of the known waits the state rules find, with the counters and without them."""
    rows = [_waits_row(name, counters=counters) for name in SAMPLES for counters in (True, False)]
    head = (
        "sample",
        "signals",
        "gather_wait",
        "of it `spinning`",
        "of it hollow",
        "outside waits",
        "of it hollow",
    )
    return table_of(head, rows)


def _waits_row(name: str, *, counters: bool) -> tuple[str, ...]:
    import dipstick  # noqa: PLC0415 - see output_of
    from dipstick.model import HOLLOW_STATES  # noqa: PLC0415 - see output_of
    from dipstick.phases import WAIT_PHASES  # noqa: PLC0415 - see output_of

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / name
        hidden = shutil.ignore_patterns() if counters else shutil.ignore_patterns("gpu_counters")
        shutil.copytree(ROOT / "src" / "dipstick" / "samples" / name, copy, ignore=hidden)
        found = dipstick.explain(copy).phases
    rows = [] if found is None else [(row.phase, row.states) for row in found.rows if row.states]
    wait = [states for phase, states in rows if phase == "gather_wait"]
    rest = [states for phase, states in rows if phase not in WAIT_PHASES]
    in_wait, outside = (sum(sum(states.values()) for states in part) for part in (wait, rest))
    spinning = sum(states["spinning"] for states in wait)
    hollow = [sum(states[state] for states in part for state in HOLLOW_STATES) for part in (wait, rest)]
    signals = "counters" if counters else "power, clock, utilization"
    return (
        f"`{name}`", signals, f"{in_wait:.1f} s", f"{spinning / in_wait:.1%}", f"{hollow[0] / in_wait:.1%}",
        f"{outside:.1f} s", f"{hollow[1] / outside:.1%}",
    )  # fmt: skip


def crystal_codes(_: str) -> str:
    """Every code of crystal_rl in the order in which it is tried, with its stage's reward."""
    from crystal_rl.errors import CODES  # noqa: PLC0415 - see output_of

    rows = [
        (code.stage, "none" if code.reward is None else f"{code.reward:g}", f"`{code.name}`", code.when)
        for code in CODES.values()
    ]
    return table_of(("stage", "reward", "code", "when"), rows)


def benchmarks(_: str) -> str:
    """The last results, with limits and the machine."""
    benches = json.loads((ROOT / "benchmarks" / "results.json").read_text())["benches"]
    rows = [
        _bench_row(name, bench, result)
        for name, bench in benches.items()
        for result in bench.get("results", [])
    ]
    head = (
        "bench",
        "what",
        "seconds (CPU)",
        "peak memory",
        "reference: seconds (CPU)",
        "ratio",
        "limit",
        "measured on",
    )
    return table_of(head, rows)


def costs(_: str) -> str:
    """What recording costs, from benchmarks/results.json."""
    benches = json.loads((ROOT / "benchmarks" / "results.json").read_text())["benches"]
    rows = [
        (
            name, one["what"], one["cost"], one["reference"], f"{one['ratio']:.3g} ×",
            "–" if one["ratio_limit"] is None else f"≤ {one['ratio_limit']:g} ×", _seen_on(bench),
        )
        for name, bench in benches.items()
        for one in bench.get("costs", [])
    ]  # fmt: skip
    return table_of(("bench", "what", "CPU", "reference", "ratio", "limit", "measured on"), rows)


def _seen_on(bench: dict[str, Any]) -> str:
    cores = f"{bench['cores']} cores (load before {bench['load']:g})"
    return f"{bench['date']}, {cores}, Python {bench['python']}"


def _bench_row(name: str, bench: dict[str, Any], result: dict[str, Any]) -> tuple[str, ...]:
    limits = [f"≤ {result['ratio_limit']:g} ×"] if result["ratio_limit"] else []
    limits += [f"≤ {result['peak_limit_mib']:g} MiB"] if result["peak_limit_mib"] else []
    return (
        name, result["what"], f"{result['seconds']:.3g} ({result['cpu_s']:.3g})", f"{result['peak_mib']:,.0f} MiB",
        f"{result['reference']}: {result['reference_seconds']:.3g} ({result['reference_cpu_s']:.3g})",
        f"{result['ratio']:.3g} ×", ", ".join(limits) or "–",
        _seen_on(bench),
    )  # fmt: skip


def pages(_: str) -> str:
    """The page in Chromium, as last measured."""
    rows = json.loads((ROOT / "benchmarks" / "page.json").read_text()).values()
    head = (
        "recording",
        "samples",
        "spans",
        "page",
        "written in (CPU)",
        "first paint",
        "tracks drawn",
        "a frame: median, p90",
        "measured on",
    )
    return table_of(head, [_page_row(row) for row in rows])


def _page_row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["run"], f"{row['samples']:,}", f"{row['spans']:,}", f"{row['bytes'] / 1e6:.2f} MB", f"{row['render_cpu_s']:.1f} s",
        f"{row['first_paint_ms']} ms", f"{row['ready_ms']} ms", f"{row['frame_ms_median']}, {row['frame_ms_p90']} ms",
        f"{row['date']}, {row['cores']} cores, no graphics card (load before {row['load']:g})",
    )  # fmt: skip


RESULTS = ROOT / "benchmarks" / "calibration" / "results"


def calibration(kind: str) -> str:
    """Every simulated cell of one kind (level, power) in benchmarks/calibration/results, as it was run."""
    rows = [
        json.loads(line) for path in sorted(RESULTS.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    mine = [row for row in rows if row["kind"] == kind]
    cells = [_level_row(row) if kind == "level" else _power_row(row) for row in mine]
    heads = {
        "level": ("scenario", "cell", "what", "runs", "rate", "nominal", "p (binomial)", "after Holm"),
        "power": ("scenario", "cell", "what", "runs", "rate", "methods' table"),
    }
    return table_of(heads[kind], cells)


def _level_row(row: dict[str, Any]) -> tuple[str, ...]:
    p = row.get("p", row.get("p_binomial"))
    judged = row.get("judgement") or row.get("holm") or "reported"
    nominal = "–" if row["nominal"] is None else f"{row['nominal']:.2f}"
    return (*_named_cell(row), f"{row['rate']:.3f}", nominal, "–" if p is None else f"{p:.2g}", judged)


def _power_row(row: dict[str, Any]) -> tuple[str, ...]:
    table = "–" if row.get("table") is None else f"{row['table']:.2f}"
    return (*_named_cell(row), f"{row['rate']:.2f}", table)


def _named_cell(row: dict[str, Any]) -> tuple[str, ...]:
    return row["scenario"], row["cell"], row.get("figure", row.get("what", "")), str(row["runs"])


KINDS: dict[str, Callable[[str], str]] = {
    "run": run, "json": json_part, "rules": rules, "barriers": barriers,
    "waits_seen": waits_seen, "table": columns, "crystal_codes": crystal_codes,
    "benchmarks": benchmarks, "costs": costs, "pages": pages, "calibration": calibration,
}  # fmt: skip


def updated(text: str) -> tuple[str, list[str]]:
    """The text with every block filled, and which blocks were stale."""
    stale: list[str] = []

    def fill(block: re.Match[str]) -> str:
        body = KINDS[block["kind"]](block["arguments"]) + "\n"
        if body != block["body"]:
            stale.append(f"{block['kind']} {block['arguments']}".strip())
        return f"{block[1]}{body}{block[5]}"

    return BLOCK.sub(fill, text), stale


def main(argv: list[str] | None = None) -> int:
    """Rewrite or check; names each stale block on stderr."""
    parser = argparse.ArgumentParser(description="Fill the generated blocks of the documentation.")
    parser.add_argument("files", nargs="*", type=Path, help="default: README.md and docs/*.md")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if a block is stale")
    options = parser.parse_args(argv)
    found = False
    for path in options.files or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text, stale = updated(path.read_text(encoding="utf-8"))
        for what in stale:
            print(f"{path}: {'stale' if options.check else 'updated'}: {what}", file=sys.stderr)
        found |= bool(stale)
        if stale and not options.check:
            path.write_text(text, encoding="utf-8")
    return int(found and options.check)


if __name__ == "__main__":
    sys.exit(main())
