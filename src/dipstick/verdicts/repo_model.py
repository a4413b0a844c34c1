"""What a scan of a checkout finds: places in the code, read and never run, labelled ``static``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "trainer", "reward_function", "pool", "pool_submit", "gather", "generate", "schedule", "worker_sync"
]
"""``trainer``: a GRPOTrainer is built. ``reward_function``: one of its reward functions. ``pool``: a worker
pool or process is made. ``pool_submit``: work is handed to it. ``gather``: ranks meet. ``generate``: text or
tokens are generated. ``schedule``: a setting or call that decides when checkpoints, cache clears and the
like happen. ``worker_sync``: a synchronization primitive in code that runs in the workers."""

Sure = Literal["resolved", "by name"]
"""``resolved``: followed through imports and assignments to its definition. ``by name``: it looks like one."""

UNKNOWN: Final = "?"
"""A payload type that could not be inferred."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in the code.

    Attributes:
        kind: What it is.
        file: Path inside the checkout, with forward slashes.
        line: Line of the call or setting, from 1.
        code: That line, trimmed to 200 printable characters.
        target: Qualified name of what is called, submitted or set; empty if unknown.
        target_file: Where the target is defined, if inside the checkout.
        target_line: Its line.
        payload: Types of what is handed over, in order; ``?`` for unknown.
        tensors: Whether the payload holds torch tensors; None if that can't be told.
        detail: What else there is to say (transport, value of a setting, text or tokens).
        inside: Qualified name of the function around it; empty at module level.
        from_reward: Whether a reward function leads here through calls that could be followed.
        sure: How the target was found.
        origin: Always ``static``: read from the code, not measured.
    """

    kind: Kind
    file: str
    line: int
    code: str
    target: str = ""
    target_file: str = ""
    target_line: int | None = None
    payload: tuple[str, ...] = ()
    tensors: bool | None = None
    detail: str = ""
    inside: str = ""
    from_reward: bool = False
    sure: Sure = "by name"
    origin: Literal["static"] = "static"

    @property
    def place(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"

    @property
    def target_place(self) -> str:
        """``file:line`` of the target's definition; empty if it is outside the checkout."""
        return f"{self.target_file}:{self.target_line}" if self.target_file else ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or folder that was not read, and why."""

    file: str
    why: str


@dataclass(frozen=True, slots=True)
class RepoFindings:
    """Everything found in one checkout.

    Attributes:
        root: The checkout's folder, as given.
        findings: In order of kind, file and line.
        files_read: Files whose text was read.
        skipped: What was left out.
        complete: False if a limit (files, bytes, findings, effort) cut the scan short: then absence
            of a finding proves nothing.
    """

    root: str
    findings: tuple[Finding, ...]
    files_read: int
    skipped: tuple[Skipped, ...]
    complete: bool

    def of(self, kind: Kind) -> tuple[Finding, ...]:
        """The findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind == kind)
