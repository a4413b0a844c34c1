"""Starts the probe, then runs the ``sitecustomize`` that Python would have found without us.

Python imports this once, at the start of every interpreter that has this folder on ``PYTHONPATH``. Whatever
goes wrong in the probe stays in the probe: training starts as if it were not there.
"""

import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - pathlib would cost every start 5 ms


def _start_probe() -> None:
    """Import the probe and start it; silent on any failure."""
    try:
        __import__("dipstick_probe.boot")
        sys.modules["dipstick_probe.boot"].start()  # type: ignore[attr-defined] # loaded by name: see probe/__init__.py
    except Exception:  # noqa: BLE001, S110 - fail open: training must start
        pass


def _run_next() -> None:
    """Run the next ``sitecustomize`` on the path, under its own name; its errors are its own, as without us."""
    from importlib.machinery import PathFinder  # noqa: PLC0415 - loaded already, by the import system
    from importlib.util import module_from_spec  # noqa: PLC0415 - only where there is something to chain to

    rest = [entry for entry in sys.path if os.path.realpath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start_probe()
_run_next()
