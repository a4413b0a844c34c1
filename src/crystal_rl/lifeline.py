"""Ends this process when another one does: no rank outlives its launcher, no worker its rank."""

from __future__ import annotations

import os
import select
import threading


def end_with(pid: int) -> None:
    """Exit hard, with status 1, as soon as the process ``pid`` is gone, however it ended.

    Whoever is killed cannot tell its children; an orphan would wait for ever and hold its share of the GPU.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:  # gone already
        os._exit(1)
    threading.Thread(target=_wait, args=(fd,), name="crystal-lifeline", daemon=True).start()


def _wait(fd: int) -> None:
    select.select([fd], [], [])
    os._exit(1)
