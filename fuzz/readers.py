"""Coverage-guided fuzzing of the readers of binary formats with atheris; see README.md.

    python fuzz/readers.py TARGET [libFuzzer's options] [CORPUS ...]

An input is a file, or (``-records``) records that are framed with right checksums, since no fuzzer guesses those. A reader
may read it, in part or whole, or refuse it with an error of ours; anything else is a finding.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]


def split(data: bytes) -> list[bytes]:
    """Records of an input: each begins with its length in two bytes."""
    records, at = [], 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "little")
        records.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return records


def joined(records: list[bytes]) -> bytes:
    """The input that splits into these records."""
    return b"".join(len(record).to_bytes(2, "little") + record for record in records)


def attempt(data: bytes, name: str, form: str) -> None:
    """Read a file with these bytes as a format; errors of ours are answers."""
    from dipstick.errors import DipstickError
    from dipstick.importers import read_path
    from dipstick.importers.options import Options

    path = Path(tempfile.gettempdir()) / name
    path.write_bytes(data)
    try:
        read_path(path, Options(format=form))
    except DipstickError:
        return


def wire(data: bytes) -> None:
    """One protocol-buffer message, and every accessor on it."""
    from dipstick.importers.protowire import Message, WireError

    try:
        message = Message(data)
        for number in range(1, 20):
            message.text(number), message.integer(number), message.number(number)
            message.time_ns(number)
    except WireError:
        return


def wandb_file(data: bytes) -> None:
    """A ``.wandb`` file."""
    attempt(data, "fuzz.wandb", "wandb")


def wandb_records(data: bytes) -> None:
    """Records of a ``.wandb`` file, framed."""
    from wire import wandb_log

    wandb_file(wandb_log(split(data)))


def tf_file(data: bytes) -> None:
    """An event file."""
    attempt(data, "fuzz.tfevents", "tfevents")


def tf_records(data: bytes) -> None:
    """Events, framed."""
    from wire import tf_record

    tf_file(b"".join(map(tf_record, split(data))))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "wire": wire,
    "wandb": wandb_file,
    "wandb-records": wandb_records,
    "tfevents": tf_file,
    "tfevents-records": tf_records,
}


def seeds(target: str) -> list[bytes]:
    """Small valid inputs to begin with."""
    import struct

    import wire as w

    t = 1_796_053_333.0
    run = [
        w.wandb_header(), w.wandb_run(t, "0.21.0"), w.wandb_gpus(("H200", 1 << 37, "GPU-1")),
        w.wandb_stats(t + 1, {"gpu.0.gpu": 98.5, "gpu.1.smActive/l:a": "1e1", "cpu": 3}), w.wandb_output(t + 2, "step:1"),
        w.wandb_history({"train/loss": 0.5, "_timestamp": t + 3, "train/global_step": 1}, nested=True), w.wandb_exit(1, 9),
    ]  # fmt: skip
    events = [
        w.double(1, t) + w.blob(3, "brain.Event:2"), w.tf_event(t + 1, 1, w.tf_simple("train/loss", 0.5)),
        w.tf_event(t + 2, 2, w.tf_tensor("loss", 1, struct.pack("<f", 1.5)), w.tf_tensor("n", 9, listed=w.whole(10, 7))),
    ]  # fmt: skip
    return {
        "wire": run + events, "wandb": [w.wandb_log(run)], "wandb-records": [joined(run)],
        "tfevents": [b"".join(map(w.tf_record, events))], "tfevents-records": [joined(events)],
    }[target]  # fmt: skip


def main() -> None:
    """Fuzz one target until libFuzzer's limits are reached."""
    import atheris

    target = sys.argv.pop(1)
    with atheris.instrument_imports(include=["dipstick.importers"]):
        import dipstick.importers.tfevents
        import dipstick.importers.wandb_file  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds(target)):
            Path(folder, str(number)).write_bytes(seed)
        tempfile.tempdir = folder
        atheris.Setup([*sys.argv, folder], TARGETS[target])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
