"""The pictures of the documentation: there, small, and of this version; and the vendored JavaScript."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import screenshots
import vendor

if TYPE_CHECKING:
    from pathlib import Path


def test_every_picture_of_the_documentation_exists_and_is_small(root: Path) -> None:
    """Below 100 kB each, so that a clone stays light; and no picture is left over in their folder."""
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    shown = {
        (page.parent / name).resolve()
        for page in pages
        for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text())
    }
    assert {path for path in shown if not path.is_file()} == set()
    images = root / "docs" / "images"
    assert {path for path in shown if path.parent == images} == set(images.iterdir())
    assert {path.name for path in shown if path.stat().st_size > 100_000} == set()


def test_the_picture_of_the_loop_is_of_this_version(capsys: pytest.CaptureFixture[str]) -> None:
    """To the byte: run scripts/screenshots.py after a change of the picture."""
    assert screenshots.main(["--check"]) == 0
    assert "differs" not in capsys.readouterr().err


def test_a_screenshot_is_made_small() -> None:
    """A palette of 128 colours; the size in pixels stays."""
    image = pytest.importorskip("PIL.Image", reason="needs pillow, which comes with matplotlib")
    import io  # noqa: PLC0415 - only here

    out = io.BytesIO()
    image.effect_noise((200, 100), 80).convert("RGB").save(out, "PNG")
    made = image.open(io.BytesIO(screenshots.small(out.getvalue())))
    assert (made.size, made.mode) == ((200, 100), "P")
    assert len(screenshots.small(out.getvalue())) < len(out.getvalue())


def test_what_is_vendored_is_named_with_its_licence() -> None:
    """The version in the file is the one that the script pins."""
    (package,) = vendor.PACKAGES
    version = re.search(r"uplot-([\d.]+)\.tgz", package.url)
    assert version is not None
    assert f"(v{version[1]})" in (vendor.VENDOR / "uPlot.js").read_text()[:80]
    assert "The MIT License" in (vendor.VENDOR / "uPlot.LICENSE").read_text()
    assert {path.name for path in vendor.VENDOR.iterdir()} == set(package.files.values())


def test_another_tarball_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash is checked before anything is unpacked."""
    import io  # noqa: PLC0415 - only here

    monkeypatch.setattr("urllib.request.urlopen", lambda *_a, **_k: io.BytesIO(b"something else"))
    with pytest.raises(SystemExit, match="expected sha512-"):
        vendor.fetch(vendor.PACKAGES[0])
