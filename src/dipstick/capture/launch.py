"""What CMD is started with: its environment and its program, found as a shell would."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dipstick.errors import DipstickError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROBE: Final = Path(__file__).resolve().parent.parent / "probe"
RUN_DIR, ENABLE, DISABLE = "DIPSTICK_RUN_DIR", "DIPSTICK_PROBE", "DIPSTICK_DISABLE"
SEGMENTS: Final = "probe"
"""Folder in the recording that the probes of all processes write into."""


class CannotStartError(DipstickError):
    """CMD can't be started; the exit status is a shell's: 127 not found, 126 found but not executable."""

    def __init__(self, what: str, *, where: str, exit_code: int) -> None:
        super().__init__(what, where=where)
        self.exit_code = exit_code


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether the user keeps the probe out (``DIPSTICK_DISABLE=1``)."""
    return environment.get(DISABLE, "").strip().lower() not in {"", "0", "false", "no"}


def probe_variables(run: Path, pythonpath: str, probe: Path = PROBE) -> dict[str, str]:
    """The variables that make every Python process of the run load the probe.

    Args:
        run: The recording's folder.
        pythonpath: ``PYTHONPATH`` so far. An empty entry in it means the working directory, and is spelled out:
            an empty entry is never passed on.
        probe: The probe's folder.

    Returns:
        ``DIPSTICK_RUN_DIR``, ``DIPSTICK_PROBE`` and ``PYTHONPATH`` with the probe's folder first.
    """
    kept = [entry or str(Path.cwd()) for entry in pythonpath.split(os.pathsep)] if pythonpath else []
    path = [str(probe), *(entry for entry in kept if entry != str(probe))]
    return {RUN_DIR: str(run.resolve()), ENABLE: "1", "PYTHONPATH": os.pathsep.join(path)}


def environment_for(run: Path, environment: Mapping[str, str], probe: Path = PROBE) -> dict[str, str]:
    """The environment of CMD: the user's, plus the probe unless it is disabled."""
    if is_disabled(environment):
        return dict(environment)
    return {**environment, **probe_variables(run, environment.get("PYTHONPATH", ""), probe)}


def without_probe(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for our own helpers: a probe that a surrounding ``dipstick run`` put there is taken out."""
    cleaned = {name: value for name, value in environment.items() if name not in {RUN_DIR, ENABLE}}
    entries = cleaned.pop("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in entries if entry and Path(entry) != PROBE]
    return cleaned | ({"PYTHONPATH": os.pathsep.join(kept)} if kept else {})


def find_program(command: Sequence[str], path: str | None) -> str:
    """The file that a shell would run.

    Args:
        command: The program and its arguments.
        path: ``PATH`` of the environment.

    Raises:
        CannotStartError: There is no such file, or it may not be executed.
    """
    name = command[0]
    folders = [""] if "/" in name else (path if path is not None else os.defpath).split(os.pathsep)
    found = [file for folder in folders if (file := Path(folder or ".", name)).is_file()]
    usable = next((file for file in found if os.access(file, os.X_OK)), None)
    if usable is None and not found:
        raise CannotStartError("no such program.", where=name, exit_code=127)
    if usable is None:
        raise CannotStartError("it may not be executed.", where=str(found[0]), exit_code=126)
    return str(usable)
