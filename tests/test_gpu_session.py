"""The one call of a GPU session, and the CUDA check that it runs, rehearsed without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from live import cuda_check
from probed import Probed, Row, Segment

ROOT = Path(__file__).resolve().parent.parent
STUB = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
  *keep_recording.py*) mkdir -p "$3"; echo kept > "$3/manifest.json" ;;
  *"dipstick run"*) for w in "$@"; do if [ "$w" = "${FAILS:-none}" ]; then exit 3; fi; done ;;
esac
"""


def session(folder: Path, *parts: str, **more: str) -> tuple[list[str], list[str], Path]:
    """Run session.sh with a Python that only notes what it was asked; (its calls, table.txt, $OUT)."""
    stub = folder / "python"
    stub.write_text(STUB)
    stub.chmod(0o755)
    smi = folder / "nvidia-smi"
    smi.write_text("#!/bin/sh\nfor i in $(seq 1 ${GPUS:-2}); do echo GPU $i; done\n")
    smi.chmod(0o755)
    out, calls = folder / "out", folder / "calls"
    environment = os.environ | {
        "PYTHON": str(stub), "PATH": f"{folder}:{os.environ['PATH']}", "INTO": str(folder / "into"), "OUT": str(out),
        "CALLS": str(calls), "MODEL": str(folder),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "benchmarks/gpu/session.sh", *parts],  # noqa: S607 - the path's bash
        env=environment | more, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return calls.read_text().splitlines(), (out / "table.txt").read_text().splitlines(), out


def named(table: list[str]) -> list[tuple[str, str]]:
    """(part, exit status) of each line."""
    return [(line.partition(":")[0], line.partition("status ")[2].split()[0]) for line in table]


def test_all_parts_run_in_order_and_leave_their_results(tmp_path: Path) -> None:
    """The recordings first: what the lease was for is home before the measurements begin."""
    calls, table, out = session(tmp_path, "first", "second")

    assert named(table) == [(part, "0") for part in ("train", "check", "ab", "crystal", "transfer")]
    assert {p.name for p in out.iterdir()} >= {
        "train.tar.gz", "crystal.tar.gz", "transfer.tar.gz", "train.screen.txt", "cuda_check.txt", "log.txt", "table.txt",
    }  # fmt: skip
    assert sum("keep_recording.py" in call for call in calls) == 3


@pytest.mark.parametrize("gpus", ["1", "2", "4"])
def test_there_are_as_many_ranks_as_gpus(gpus: str, tmp_path: Path) -> None:
    """One alone without a launcher."""
    calls, _, _ = session(tmp_path, "train", "crystal", "ab", GPUS=gpus)
    (train,) = [call for call in calls if "dipstick run" in call and "trl_grpo" in call]
    (crystal,) = [call for call in calls if "dipstick run" in call and "crystal_rl" in call]
    (ab,) = [call for call in calls if "ab.py" in call]

    launched = f"--nproc-per-node {gpus} examples/trl_grpo/train.py"
    assert [launched in call for call in (train, ab)] == [gpus != "1"] * 2
    assert f"--ranks {gpus} --workers 2" in crystal
    assert "--steps 20" in crystal
    assert f"--prompts {gpus} --completions 24" in crystal


def test_without_a_name_the_first_call_is_made(tmp_path: Path) -> None:
    """The second needs the model that the first one leaves."""
    _, table, _ = session(tmp_path)

    assert named(table) == [(part, "0") for part in ("train", "check", "ab")]


@pytest.mark.parametrize("parts", [("train", "check", "ab"), ("crystal", "transfer")])
def test_the_limits_of_a_call_fit_into_it(parts: tuple[str, ...]) -> None:
    """Each part may take all of its own limit, and the last still begins with it: 570 s less 20 for packing."""
    script = (ROOT / "benchmarks/gpu/session.sh").read_text()
    limits = {part: int(seconds) for part, seconds in re.findall(r"\[(\w+)\]=\$\{\w+:-(\d+)\}", script)}

    assert f'"{" ".join(parts)}"' in script
    assert sum(limits[part] for part in parts) <= 570 - 20


def test_the_transfer_is_planted(tmp_path: Path) -> None:
    """So that a recording with a known cause comes home."""
    calls, _, _ = session(tmp_path, "transfer")

    assert any("--steps 4 --transfer 4096" in call for call in calls)


def test_a_part_that_fails_stops_nothing_and_its_recording_comes_home(tmp_path: Path) -> None:
    """The transfer fails: what was recorded until then is kept, and the check runs."""
    _, table, out = session(tmp_path, "transfer", "check", FAILS="--transfer")

    assert named(table) == [("transfer", "3"), ("check", "0")]
    assert (out / "transfer.tar.gz").exists()


def test_no_part_begins_that_has_no_time_left(tmp_path: Path) -> None:
    """40 s for the session: 20 of them are kept for packing, and nothing is worth the other 20."""
    _, table, _ = session(tmp_path, "crystal", "check", SESSION_SECONDS="40")

    assert [line.partition(",")[0] for line in table] == ["crystal: not begun", "check: not begun"]


def test_a_part_that_is_none_is_said(tmp_path: Path) -> None:
    """A slip of the pen costs nothing but itself."""
    _, table, _ = session(tmp_path, "trian", "check")

    assert table[0] == "trian: no such part"
    assert named(table[1:]) == [("check", "0")]


# The CUDA check's reading of what the probe wrote


def ran(out: str, *rows: Row) -> Probed:
    """A script that printed this and left these rows."""
    return Probed(0, out, "", [Segment(Path("a.jsonl"), list(rows))])


def clear(start: int, end: int, **more: object) -> Row:
    return {
        "k": "event",
        "n": "cache_clear",
        "a": start,
        "b": end,
        "detail": '{"reserved_before_b": 1}',
        **more,
    }


def collective(number: int) -> Row:
    return {"k": "coll", "n": "all_reduce", "a": 0, "b": 1, "i": number}


OUT = "cleared 100 200\ncaptured 2.0\n"
REST = (collective(1), collective(2), {"k": "device", "coll": [[1, 0.5]]})


def test_the_clear_of_a_graph_capture_is_not_the_script_s(tmp_path: Path) -> None:
    """torch.cuda.graph clears the cache by itself: the one inside the script's own call counts."""
    del tmp_path
    done = ran(OUT, clear(20, 30), clear(110, 190), clear(300, 310, detail=""), *REST)

    assert cuda_check.own_clears(done) == [clear(110, 190)]
    assert all(cuda_check.single(done).values())


@pytest.mark.parametrize("clears", [[], [clear(20, 30)], [clear(110, 120), clear(130, 140)]])
def test_a_clear_that_was_missed_or_written_twice_fails(clears: list[Row]) -> None:
    """None inside the call, or two."""
    assert cuda_check.single(ran(OUT, *clears, *REST))["the cache clear was seen once"] is False


def test_a_script_that_died_early_fails_without_a_traceback() -> None:
    """It printed nothing: no clear is its own."""
    assert cuda_check.own_clears(ran("", clear(110, 190))) == []


@pytest.mark.parametrize("call", ["first", "second"])
def test_what_a_call_leaves_can_come_home(call: str, tmp_path: Path) -> None:
    """Eight files at most come back from one call; one more, and which are missing is chance."""
    calls, _, out = session(tmp_path, call)
    written = {Path(word).name for line in calls for word in line.split() if word.startswith(f"{out}/")}

    assert len(written | {path.name for path in out.rglob("*")}) <= 8
