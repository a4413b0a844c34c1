"""What every test may use: the repository's paths, and where the traces of ../shared are (skips where they are not)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from browsing import close_browser

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

# Examples may be slow on two shared cores, and CI must fail for the code, not for its luck: no deadline, fixed seed.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def traces() -> Path:
    """The folder of real traces beside the repository; the test is skipped where it is absent."""
    folder = ROOT.parent / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip(f"needs the real traces in {folder}")
    return folder


@pytest.fixture
def real() -> Path:
    """The folder of practitioners' files beside the repository, LOG.md among them; skipped where it is absent."""
    folder = ROOT.parent / "shared" / "real-files"
    if not folder.is_dir():
        pytest.skip(f"needs the real files in {folder}")
    return folder


@pytest.fixture(autouse=True, scope="module")
def _browser_of_the_module() -> Iterator[None]:
    """A browser that a test opened is closed with its module."""
    yield
    close_browser()
