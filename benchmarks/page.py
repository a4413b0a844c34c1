"""Measures the page of a recording in Chromium: size, first paint, when the tracks are drawn, and how long a frame takes.

    python benchmarks/page.py RUN [RUN ...]      results go to benchmarks/page.json; docs/performance.md shows them

Needs Chromium and playwright. Frames are those of 40 zooms and moves by keyboard over the whole run, each from the key to the next
frame after the drawing; Chromium here has no graphics card, so it paints on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "page.json"
FRAMES = """async () => {
  const root = document.getElementById('tracks'), keys = ['ArrowUp', 'ArrowRight', 'ArrowLeft', 'ArrowDown'], times = [];
  document.getElementById('timeline').scrollIntoView();
  for (let i = 0; i < 40; i++) {
    await new Promise(requestAnimationFrame);
    const start = performance.now();
    root.dispatchEvent(new KeyboardEvent('keydown', { key: keys[i % 4], bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - start);
  }
  return times;
}"""


def render(run: str, path: Path) -> dict[str, Any]:
    """Write the page; what it was made of and what that took."""
    import dipstick  # noqa: PLC0415 - after the arguments are read
    from dipstick.show import FORMATS  # noqa: PLC0415 - as above

    recording = dipstick.load(run)
    report = dipstick.explain(recording)
    start = time.process_time()
    content = FORMATS[".html"].render(report, recording)
    cpu = time.process_time() - start
    path.write_bytes(content)
    samples = sum(recording.table(name).height for name in ("gpu", "gpu_counters"))
    return {
        "run": run if run.startswith("sample:") else f"{report.run.gpus} GPUs, {report.run.seconds / 3600:.3g} h (synthetic)",
        "samples": samples, "spans": recording.table("spans").height, "bytes": len(content), "render_cpu_s": round(cpu, 2),
    }  # fmt: skip


def measure(path: Path) -> dict[str, Any]:
    """Open the page and move about in it."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this needs it

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
        ready = page.evaluate("performance.now()")
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        frames = page.evaluate(FRAMES)
        browser.close()
    return {
        "first_paint_ms": round(paint), "ready_ms": round(ready), "frame_ms_median": round(statistics.median(frames)),
        "frame_ms_p90": round(statistics.quantiles(frames, n=10)[-1]),
    }  # fmt: skip


def main() -> int:
    """Measure each recording and remember the results by its size."""
    parser = argparse.ArgumentParser(description="Measure the page of recordings in Chromium.")
    parser.add_argument("runs", metavar="RUN", nargs="+")
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for run in parser.parse_args().runs:
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.html"
            found = render(run, path) | measure(path)
        where = {
            "date": datetime.now(UTC).date().isoformat(),
            "cores": os.cpu_count(),
            "load": round(load, 1),
            "python": platform.python_version(),
        }
        known[found["run"]] = found | where
        print(json.dumps(found), file=sys.stderr)
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
