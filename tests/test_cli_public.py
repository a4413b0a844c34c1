"""The public names of the package are what `__all__` says, and do what the docstring shows."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

import dipstick
from dipstick.errors import RecordingError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC = ["Recording", "Report", "__version__", "explain", "instant", "load", "span", "wrap"]


def test_all_is_true() -> None:
    """Every name in it can be imported, and it is sorted."""
    assert dipstick.__all__ == PUBLIC
    assert [name for name in PUBLIC if getattr(dipstick, name, None) is None] == []
    assert set(PUBLIC) <= set(dir(dipstick))


def test_the_types_are_those_of_the_layers() -> None:
    """Loaded when first asked for."""
    from dipstick.model import Report  # noqa: PLC0415 - the point of the test
    from dipstick.recording.reader import Recording  # noqa: PLC0415 - the point of the test

    assert dipstick.Report is Report
    assert dipstick.Recording is Recording


def test_other_names_are_missing_as_in_any_module() -> None:
    """The usual AttributeError, so that hasattr and star imports work."""
    with pytest.raises(AttributeError, match="module 'dipstick' has no attribute 'span_it'"):
        _ = dipstick.span_it  # type: ignore[attr-defined] # that is the test


def test_the_version_is_that_of_the_project(root: Path) -> None:
    """One version, in two places that are kept equal here."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert dipstick.__version__ == project["version"]


def test_what_cannot_be_loaded_says_so(tmp_path: Path) -> None:
    """The errors of the reader come through."""
    with pytest.raises(RecordingError):
        dipstick.load(tmp_path / "nowhere")
    with pytest.raises(UsageError):
        dipstick.explain("sample:nothing")


def test_a_shipped_sample_is_explained_by_name_and_by_recording() -> None:
    """The example of the docstring; both ways give the same finding."""
    recording = dipstick.load("sample:h200x2-grpo")
    report = dipstick.explain(recording)
    assert isinstance(recording, dipstick.Recording)
    assert report.answer == dipstick.explain("sample:h200x2-grpo").answer
    assert report.answer.longest_phase == "reward"
