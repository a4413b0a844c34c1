"""Why does my GPU utilization keep dipping? Explains colocated RL post-training runs, with receipts.

    >>> import dipstick
    >>> report = dipstick.explain("sample:h200x2-grpo")
    >>> report.answer.longest_phase
    'reward'

Your own phases, recorded under ``dipstick run`` and free otherwise (standard library only):

    >>> with dipstick.span("reward"):
    ...     pass

Importing this is cheap: Polars and NumPy are loaded by the first call.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from dipstick.model import Report
    from dipstick.probe.dipstick_probe import instant, span, wrap
    from dipstick.recording.reader import Recording

__version__ = "0.1.0"
__all__ = ["Recording", "Report", "__version__", "explain", "instant", "load", "span", "wrap"]

_LAZY = {"Recording": "dipstick.recording.reader", "Report": "dipstick.model"}
_MARKS = ("span", "instant", "wrap")


def load(path: str | PathLike[str]) -> Recording:
    """Open a recording.

    Args:
        path: A recording folder, or ``sample:NAME`` for a shipped one.

    Raises:
        RecordingError: It is no recording, is damaged beyond reading, or has a newer schema.
        UsageError: There is no sample of that name.
    """
    from pathlib import Path  # noqa: PLC0415 - importing dipstick stays cheap

    from dipstick.recording.reader import open_recording  # noqa: PLC0415 - loads Polars

    return open_recording(path if isinstance(path, str) else Path(path))


def explain(
    recording: Recording | str | PathLike[str],
    *,
    repo: str | PathLike[str] | None = None,
    claims_files: Sequence[str | PathLike[str]] = (),
    claims: Sequence[str] = (),
) -> Report:
    """Say where the seconds of a recording went, what the dips are, and who waited for whom.

    Args:
        recording: From :func:`load`, or what ``load`` takes.
        repo: A checkout of the training code: read, never imported or run. It settles what a recording
            without hooks cannot (what crosses to the workers, whether they wait for each other).
        claims_files: YAML files of claims (see docs/claims.md).
        claims: Claims in words: ``"what is said: TEST name=value ..."``.

    Returns:
        The finding; :mod:`dipstick.show` turns it into text, HTML, Markdown or JSON.

    Raises:
        RecordingError: As :func:`load`; EmptyRecordingError if there is nothing to explain.
        UsageError: A claim that names no test, or a parameter that the test does not have.
    """
    from pathlib import Path  # noqa: PLC0415 - importing dipstick stays cheap

    from dipstick.recording.reader import Recording  # noqa: PLC0415 - loads Polars
    from dipstick.verdicts.report import explain as find  # noqa: PLC0415 - loads Polars and NumPy
    from dipstick.verdicts.said import gather  # noqa: PLC0415 - loads NumPy

    files = [claims_files] if isinstance(claims_files, str) else claims_files
    said = gather([Path(name) for name in files], claims)
    opened = recording if isinstance(recording, Recording) else load(recording)
    return find(opened, repo=None if repo is None else Path(repo), claims=said)


if not TYPE_CHECKING:  # a type checker would take any name for an attribute

    def __getattr__(name: str) -> object:
        """``Recording``, ``Report`` and the marks for users' own phases, imported when first asked for."""
        from importlib import import_module  # noqa: PLC0415 - importing dipstick stays cheap

        if name in _MARKS:
            return getattr(_probe(), name)
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LAZY[name]), name)

    def _probe() -> object:
        """The probe of this process, or our own copy of it, whose marks do nothing.

        Under ``dipstick run`` the probe is there already, loaded by its other name: that one records.
        """
        import sys  # noqa: PLC0415 - importing dipstick stays cheap
        from importlib import import_module  # noqa: PLC0415 - importing dipstick stays cheap

        return sys.modules.get("dipstick_probe") or import_module("dipstick.probe.dipstick_probe")


def __dir__() -> list[str]:
    """Also what is loaded when first asked for."""
    return sorted({*globals(), *__all__})
