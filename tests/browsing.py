"""A real browser for tests: Debian's Chromium, driven by Playwright; skips with a reason where either is absent."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTH, HEIGHT = 1280, 800
_READY_MS = 60_000
"""Long enough for two busy cores; it is no measurement."""
_OPEN = ExitStack()


@dataclass
class Visit:
    """One open page and what happened while it was.

    Attributes:
        page: Playwright's page.
        trouble: Console messages and errors.
        requests: Every URL that the page asked for, its own first.
    """

    page: Any
    trouble: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def js(self, code: str) -> Any:
        """What an expression in the page is."""
        return self.page.evaluate(code)

    def drawn(self) -> tuple[float, float]:
        """From when to when the tracks show, once they are drawn."""
        self.wait("#tracks[data-drawn]")
        a, b = self.js("document.getElementById('tracks').dataset.drawn").split()
        return float(a), float(b)

    def until_drawn(self, before: tuple[float, float]) -> tuple[float, float]:
        """The same after it has changed."""
        was = " ".join(f"{t:.4f}" for t in before)
        self.wait(f'#tracks[data-drawn]:not([data-drawn="{was}"])')
        return self.drawn()

    def wait(self, selector: str) -> None:
        """Until there is such an element; a selector, because the page's policy forbids to poll with a script."""
        self.page.wait_for_selector(selector, state="attached", timeout=_READY_MS)


def chromium() -> str:
    """The browser's path; the test is skipped where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    return found


@cache
def _browser() -> Any:
    """One browser for all tests of a module: Playwright allows one at a time, and starting it takes seconds."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    path = chromium()
    playwright = api.sync_playwright().start()
    browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
    _OPEN.callback(_browser.cache_clear)
    _OPEN.callback(playwright.stop)
    _OPEN.callback(browser.close)
    return browser


def close_browser() -> None:
    """End the browser, if one is open: while it is, Playwright's event loop runs in this thread and no other can."""
    _OPEN.close()


@contextmanager
def visit(
    path: Path | str, *, scheme: Literal["light", "dark"] = "light", scripts: bool = True, ready: bool = True
) -> Iterator[Visit]:
    """The file or address, open in a window of 1280 x 800 of its own; ``ready`` waits for its tracks."""
    context = _browser().new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme=scheme,
        java_script_enabled=scripts,
        reduced_motion="reduce",
    )
    seen = Visit(context.new_page())
    seen.page.on("console", lambda message: seen.trouble.append(message.text))
    seen.page.on("pageerror", lambda error: seen.trouble.append(str(error)))
    seen.page.on("dialog", lambda dialog: seen.trouble.append(f"dialog: {dialog.message}"))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.goto(path if isinstance(path, str) else path.as_uri())
    if scripts and ready:
        seen.wait("html[data-ready]")
    yield seen
    context.close()
