"""Takes the pictures of docs/ and README.md from the shipped sample, so that they never rot: ``python scripts/screenshots.py``.

Needs Chromium, playwright and matplotlib (all in requirements/dev.txt but the browser). ``--check`` compares what does not depend on
fonts: loop.svg, to the byte.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SAMPLE = "sample:h200x2-grpo"
COLOURS = 128
"""A palette keeps a screenshot below 100 kB."""


def small(png: bytes) -> bytes:
    """The same picture with a palette."""
    from PIL import Image  # noqa: PLC0415 - comes with matplotlib

    out = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


GROWN_S = 240
"""The live page is shown at this second of the sample."""


def growing(folder: Path) -> tuple[Any, int]:
    """The sample's first four minutes as a recording that goes on: its writer, and the Unix time of its end."""
    import polars as pl  # noqa: PLC0415 - after the arguments are read

    import dipstick  # noqa: PLC0415 - as above
    from dipstick.recording.schema import TABLES, TIME_COLUMNS  # noqa: PLC0415 - as above
    from dipstick.recording.writer import RecordingWriter  # noqa: PLC0415 - as above

    recording = dipstick.load(SAMPLE)
    start = recording.start_unix_ns
    writer = RecordingWriter.create(folder, origin="measured", host="node1", created_unix_ns=start)
    for name in TABLES:
        frame = recording.table(name)
        times = list(TIME_COLUMNS[name])
        ended = frame.filter(pl.max_horizontal(times) <= GROWN_S * 10**9) if times else frame
        writer.append(name, ended.with_columns(pl.col(times) + start))
    writer.flush()
    return writer, start + (GROWN_S + 2) * 10**9


@contextmanager
def live(folder: Path) -> Iterator[str]:
    """The address of a live page of it."""
    from dipstick.cli.live_feed import LiveFeed  # noqa: PLC0415 - after the arguments are read
    from dipstick.cli.live_web import running  # noqa: PLC0415 - as above
    from dipstick.cli.web_board import Board  # noqa: PLC0415 - as above
    from dipstick.cli.web_server import Server  # noqa: PLC0415 - as above
    from dipstick.cli.web_updates import Updates  # noqa: PLC0415 - as above
    from dipstick.recording.live import LiveRun  # noqa: PLC0415 - as above

    writer, now = growing(folder)
    board = Board()
    Updates(str(folder), LiveFeed(LiveRun(folder, "RUN"), lambda: now), board, 1.0).look()
    with running(Server(board)) as server:
        yield server.url
    writer.close()


def screens(page: Path) -> dict[str, bytes]:
    """The first screen, the tracks at the first receipt of the first check, and the live page."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this needs it

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        view = browser.new_context(
            viewport={"width": 1280, "height": 800}, reduced_motion="reduce"
        ).new_page()
        view.goto(page.as_uri())
        view.wait_for_selector("html[data-ready]", state="attached")
        view.wait_for_selector("#tracks[data-drawn]", state="attached")
        found = {"report-answer.png": view.screenshot()}
        before = view.get_attribute("#tracks", "data-drawn")
        view.locator(".cards .card:has(button[data-t0]) button.show").first.click()
        view.wait_for_selector(f'#tracks[data-drawn]:not([data-drawn="{before}"])', state="attached")
        found["report-receipt.png"] = view.screenshot()
        with live(page.parent / "RUN") as url:
            view.goto(url)
            view.wait_for_selector('html[data-ready] #live[data-now="recording"]', state="attached")
            view.wait_for_selector("#tracks[data-drawn]", state="attached")
            found["report-live.png"] = view.screenshot()
        browser.close()
    return found


def sample() -> tuple[Any, Any]:
    """The report and the recording."""
    import dipstick  # noqa: PLC0415 - after the arguments are read

    recording = dipstick.load(SAMPLE)
    return dipstick.explain(recording), recording


def loop() -> bytes:
    """docs/images/loop.svg."""
    from dipstick.show import format_of  # noqa: PLC0415 - after the arguments are read

    return format_of("loop.svg").render(*sample())


def pictures() -> dict[str, bytes]:
    """Everything, by file name."""
    from dipstick.show import FORMATS, format_of  # noqa: PLC0415 - after the arguments are read

    report, recording = sample()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_bytes(FORMATS[".html"].render(report, recording))
        shots = screens(page)
    drawn = {name: format_of(name).render(report, recording) for name in ("loop.svg", "trace.png")}
    return {
        name: small(content) if name.endswith(".png") else content
        for name, content in (drawn | shots).items()
    }


def main(argv: list[str] | None = None) -> int:
    """Write or check; names what was written or differs on stderr."""
    parser = argparse.ArgumentParser(description="Take the pictures of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if loop.svg differs")
    if parser.parse_args(argv).check:
        stale = (IMAGES / "loop.svg").read_bytes() != loop()
        print("loop.svg differs: python scripts/screenshots.py" * stale, file=sys.stderr)
        return int(stale)
    IMAGES.mkdir(exist_ok=True)
    for name, content in pictures().items():
        (IMAGES / name).write_bytes(content)
        print(f"wrote docs/images/{name} ({len(content):,} bytes)", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
