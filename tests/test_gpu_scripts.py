"""What takes a training environment to a GPU machine without a network, and what compares runs there."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import sys
import tarfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

import keep_recording
from dipstick.recording.reader import open_recording
from dipstick.verdicts.report import explain
from gpu import ab, pack, smollm2, unpack

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = "sample:h200x2-grpo-135m"


def archive(path: Path, name: str, data: bytes) -> Path:
    with tarfile.open(path, "w:xz") as out:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        out.addfile(entry, io.BytesIO(data))
    return path


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, into: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["unpack.py", str(folder), "--into", str(into)])
    assert unpack.main() == 0


def test_files_are_cut_where_a_load_is_full() -> None:
    """Files of 6, 7 and 3 bytes in loads of 10: the second is cut."""
    assert pack.cut([6, 7, 3], 10, 1) == [[(0, 0, 6), (1, 0, 4)], [(1, 4, 7), (2, 0, 3)]]


def test_a_scrap_of_room_is_left() -> None:
    """Where less than the smallest piece fits, the load is closed; the rest of a file may be smaller."""
    assert pack.cut([6, 7, 1], 8, 3) == [[(0, 0, 6)], [(1, 0, 7), (2, 0, 1)]]


def test_loads_come_out_as_they_went_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive in one load is unpacked, one in two loads joined first, a wheel in two only joined."""
    noise = np.random.default_rng(1).bytes(3000)
    monkeypatch.setattr(pack, "SMALLEST", 100)
    small = archive(tmp_path / "a.tar.xz", "pkg/a.py", b"a = 1\n")
    large = archive(tmp_path / "b.tar.xz", "pkg/b.bin", noise)
    wheel = tmp_path / "c.whl"
    wheel.write_bytes(noise)
    pack.main(tmp_path / "loads", [small, large, wheel], 3200)
    into = tmp_path / "env"
    for folder in sorted((tmp_path / "loads").iterdir()):
        load(folder, monkeypatch, into)
    assert (into / "site/pkg/a.py").read_bytes() == b"a = 1\n"
    assert (into / "site/pkg/b.bin").read_bytes() == noise
    assert (into / "c.whl").read_bytes() == noise


def test_a_damaged_load_is_refused(tmp_path: Path) -> None:
    """One wrong byte, and nothing of that file is unpacked."""
    path = archive(tmp_path / "a.tar.xz", "a.py", b"1")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(SystemExit, match="not the file that was packed"):
        unpack.unpack(path, digest, tmp_path / "env")
    assert not (tmp_path / "env").exists()


def test_the_ratio_of_pairs() -> None:
    """2 and 8 to 1: four times, and with one degree of freedom an interval of 2^12.7 either way."""
    found = ab.ratio("steps", [2.0, 8.0], [1.0, 1.0])
    assert found.ratio == pytest.approx(4.0)
    assert found.low == pytest.approx(4 / 2**12.7062, rel=1e-4)
    assert found.high == pytest.approx(4 * 2**12.7062, rel=1e-4)


def test_one_pair_has_no_interval() -> None:
    """One number says nothing about its spread."""
    assert ab.ratio("steps", [2.0], [2.0]) == ab.Ratio("steps", 1, 1.0, None, None)


def test_no_pair_is_an_error() -> None:
    """A ratio of nothing is not 1."""
    with pytest.raises(ValueError, match="no pair"):
        ab.ratio("steps", [], [])


def test_the_first_step_is_left_out() -> None:
    """It compiles and warms up; the whole training still counts it."""
    rows = [{"step_time": s, "loss": 0.0, "reward": 1.0, "step": i} for i, s in enumerate([9.0, 2.0, 3.0])]
    found = ab.times({"log_history": [*rows, {"train_runtime": 15.0}]})
    assert (found["steps_s"], found["train_s"], found["reward"]) == (5.0, 15.0, [1.0, 1.0, 1.0])


def test_pairs_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded run goes first in every other pair, and both ways come out as (recorded, bare)."""
    order = []

    def one(command: list[str], work: Path, name: str, *, recorded: bool) -> dict[str, object]:
        order.append((command, work, name, recorded))
        return {"recorded": recorded}

    monkeypatch.setattr(ab, "one", one)
    found = list(ab.paired(["train"], tmp_path, 2, 1e9))
    assert [recorded for _, _, _, recorded in order] == [True, False, False, True]
    assert found == [({"recorded": True}, {"recorded": False})] * 2


def test_a_bare_run_leaves_its_times(tmp_path: Path) -> None:
    """The command is told where to leave the Trainer's state."""
    state = {"log_history": [{"step_time": 1.0}, {"step_time": 2.0}, {"train_runtime": 4.0}]}
    script = f"import sys, pathlib; pathlib.Path(sys.argv[2], 'trainer_state.json').write_text({json.dumps(state)!r})"
    found = ab.one([sys.executable, "-c", script], tmp_path, "one", recorded=False)
    assert (found["steps_s"], found["train_s"], found["recorded"]) == (2.0, 4.0, False)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(name: str, kind: int, shape: list[int], data: bytes) -> smollm2.Gguf:
    values = text("llama.block_count") + struct.pack("<II", 4, 30)
    values += text("words") + struct.pack("<IIQ", smollm2.ARRAY, smollm2.STRING, 2) + text("a") + text("b")
    tensor = text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2) + values + tensor
    return smollm2.Gguf(head + b"\0" * (-len(head) % 32) + data)


def test_values_of_a_gguf_file() -> None:
    """Numbers, and lists of strings."""
    assert gguf("t", smollm2.F32, [1], b"\0" * 4).values == {"llama.block_count": 30, "words": ["a", "b"]}


def test_a_block_of_eight_bits() -> None:
    """Scale 0.5: the weight is half the integer."""
    data = struct.pack("<e32b", 0.5, *range(-16, 16))
    assert gguf("t", smollm2.Q8_0, [16, 2], data).weights("t").tolist() == [
        [i / 2 for i in range(-16, 0)],
        [i / 2 for i in range(16)],
    ]


def test_a_block_of_four_bits() -> None:
    """Scale 2, minimum -1; the low halves of the 16 bytes come first, then the high ones."""
    data = struct.pack("<ee16B", 2.0, -1.0, *([0x31] * 16))
    assert gguf("t", smollm2.Q4_1, [32], data).weights("t").tolist() == [1.0] * 16 + [5.0] * 16


def test_heads_are_put_back_in_halves() -> None:
    """llama.cpp stores a head's halves interleaved."""
    rows = np.array([[0.0], [2.0], [1.0], [3.0]], np.float32)
    assert smollm2.unpermuted(rows, 1).ravel().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_kept_recording_says_the_same(tmp_path: Path) -> None:
    """Every check and every number of the small copy is that of the recording."""
    size = keep_recording.keep(
        open_recording(SAMPLE).path, tmp_path / "kept", start_s=0, end_s=float("inf"), source=None
    )
    whole, copy = explain(open_recording(SAMPLE)), explain(open_recording(tmp_path / "kept"))
    assert (copy.answer, copy.checks, copy.claims) == (whole.answer, whole.checks, whole.claims)
    assert (copy.phases, copy.stragglers, copy.dips) == (whole.phases, whole.stragglers, whole.dips)
    assert size < 1_000_000


def test_a_kept_recording_can_be_cut(tmp_path: Path) -> None:
    """From second 50 to 100: samples in between, and spans that reach into it whole."""
    keep_recording.keep(
        open_recording(SAMPLE).path, tmp_path / "kept", start_s=50, end_s=100, source="a part"
    )
    kept, whole = open_recording(tmp_path / "kept"), open_recording(SAMPLE)
    times = kept.table("gpu")["t_ns"] + kept.start_unix_ns - whole.start_unix_ns
    assert times.is_between(50 * keep_recording.S, 100 * keep_recording.S).all()
    assert kept.manifest.source == "a part"
    assert 0 < kept.table("spans").height < whole.table("spans").height


def test_hosts_are_numbered() -> None:
    """Names of machines are nobody's business."""
    assert (
        keep_recording.hosts_hidden("sampler@node-7 lost node-7", ("node-7",)) == "sampler@host0 lost host0"
    )
