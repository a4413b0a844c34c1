"""Settings in YAML, JSON, TOML and shell files, line by line: no parser of the checkout's choosing runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_loop import SETTINGS
from dipstick.verdicts.repo_model import Finding
from dipstick.verdicts.repo_walk import CONFIG, printable

if TYPE_CHECKING:
    from dipstick.verdicts.repo_context import Context

_NAMES: Final = "|".join(sorted(SETTINGS, key=len, reverse=True))
LINE: Final = re.compile(rf"""^[\s\-]*["']?({_NAMES})["']?\s*[:=]\s*["']?([^\s,"'#}}]+)""")
"""``save_steps: 20`` and ``save_steps = 20``."""
PAIR: Final = re.compile(rf'"({_NAMES})"\s*:\s*"?([^\s,"}}\]]+)')
"""``"save_steps": 20``."""
FLAG: Final = re.compile(rf"--({_NAMES})[\s=]+([^\s\\]+)")
"""``--save_steps 20`` and ``--save_steps=20`` in shell scripts."""
PATTERNS: Final = {".sh": FLAG, ".json": PAIR}
LONGEST: Final = 2_000


def find_config(context: Context) -> None:
    """Add the schedule settings of configuration files."""
    for file, text in context.texts.files.items():
        if not file.endswith(CONFIG) or "_" not in text:
            continue
        pattern = PATTERNS.get("." + file.rpartition(".")[2].lower(), LINE)
        for number, line in enumerate(text.splitlines(), start=1):
            for match in pattern.finditer(line[:LONGEST]):
                context.add(_setting(file, number, line, match))


def _setting(file: str, number: int, line: str, match: re.Match[str]) -> Finding:
    """One setting."""
    return Finding(
        kind="schedule",
        file=printable(file),
        line=number,
        code=printable(line),
        target=match.group(1),
        detail=printable(match.group(2), 80),
        sure="resolved",
    )
