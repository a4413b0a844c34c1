"""Starts the ranks of one host and watches them: if one ends badly, so do the others.

``torchrun`` does the same and much more; under it (``RANK`` is set) this starts nothing and trains as that rank.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from crystal_rl import journal, policies, rank
from crystal_rl.environment import check_packages, engine_of, variables
from crystal_rl.errors import CrystalError
from crystal_rl.options import has_gpu
from crystal_rl.settings import written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crystal_rl.settings import Settings
    from dipstick.cli.output import Talk

PATIENCE_S = 15.0
"""For ranks that are asked to end."""


def train(settings: Settings, talk: Talk) -> None:
    """Train on all ranks; what is left behind is in ``settings.output``.

    Raises:
        CrystalError: Something is missing, or a rank failed.
    """
    check_packages()
    settings = ready(settings, talk)
    if "RANK" in os.environ:
        rank.run(settings, int(os.environ["RANK"]), talk)
        return
    journal.begin(Path(settings.output), resume=settings.resume, ranks=settings.ranks)
    file = Path(settings.output) / journal.SETTINGS
    file.write_text(json.dumps(written(settings), indent=2) + "\n")
    command = [sys.executable, "-m", "crystal_rl.rank", str(file)]
    status = wait(start(settings.ranks, command, settings, {rank.QUIET: "1"} if talk.quiet else {}))
    if status:
        raise CrystalError(f"training ended with status {status}", where=settings.output, fix=_HINT)


_HINT = "the lines above say why; --resume goes on from the last checkpoint"


def ready(settings: Settings, talk: Talk) -> Settings:
    """With the model fetched and the engine decided."""
    ranks = int(os.environ.get("WORLD_SIZE", settings.ranks))
    model, engine = policies.find(settings.model, talk.say), engine_of(settings, talk.say)
    return dataclasses.replace(settings, model=model, engine=engine, ranks=ranks)  # type: ignore[arg-type] # a literal


def start(
    ranks: int, command: Sequence[str], settings: Settings, more: Mapping[str, str]
) -> list[subprocess.Popen[bytes]]:
    """One process a rank, in our process group: Ctrl-C reaches them all; ``more`` goes into their environment."""
    shared = {
        **os.environ,
        **more,
        **variables(has_gpu=has_gpu(), is_local=Path(settings.model).is_dir()),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        rank.LAUNCHER: str(os.getpid()),
    }
    return [
        subprocess.Popen(command, env={**shared, "RANK": str(n), "LOCAL_RANK": str(n)})  # noqa: S603 - ourselves
        for n in range(ranks)
    ]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(processes: list[subprocess.Popen[bytes]], *, look_every_s: float = 0.2) -> int:
    """Wait for all; the first bad status ends the others. SIGTERM is passed on."""
    before = signal.signal(signal.SIGTERM, lambda *_: _ask(processes, signal.SIGTERM))
    try:
        while True:
            codes = [process.poll() for process in processes]
            bad = next((code for code in codes if code), 0)
            if bad or None not in codes:
                return bad
            time.sleep(look_every_s)
    finally:
        _end(processes)
        signal.signal(signal.SIGTERM, before)


def _ask(processes: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Ask, wait a little, then insist."""
    _ask(processes, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
