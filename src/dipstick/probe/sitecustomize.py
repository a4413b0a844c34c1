"""Starts the probe, then runs the ``sitecustomize`` that Python would have found without us.

Python imports this once, at the start of every interpreter that has this folder on ``PYTHONPATH``. Whatever
goes wrong in the probe stays in the probe: training starts as if it were not there.
"""

import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))  # pathlib would cost every start 5 ms


_NO = ("", "0", "false", "no")


def _start_probe() -> None:
    """Start recording if ``dipstick run`` asked for it and nobody forbids it; silent on any failure.

    Environment: ``DIPSTICK_RUN_DIR`` (the recording), ``DIPSTICK_DISABLE`` (anything but 0, false, no: stay out),
    ``DIPSTICK_PROBE=0`` (the same).
    """
    run = os.environ.get("DIPSTICK_RUN_DIR", "")
    is_disabled = os.environ.get("DIPSTICK_DISABLE", "").strip().lower() not in _NO
    if not run or is_disabled or os.environ.get("DIPSTICK_PROBE") == "0":
        return
    try:
        __import__("dipstick_probe.boot")
        sys.modules["dipstick_probe.boot"].start(run)
    except Exception:  # noqa: S110 - fail open: training must start
        pass


def _run_next() -> None:
    """Run the next ``sitecustomize`` on the path, under its own name; its errors are its own, as without us."""
    from importlib.machinery import PathFinder  # noqa: PLC0415 - 1 ms; importlib.util would be 7

    rest = [entry for entry in sys.path if os.path.realpath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec  # noqa: PLC0415 - only where there is something to chain to

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start_probe()
_run_next()
