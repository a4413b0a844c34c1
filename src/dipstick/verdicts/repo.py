"""``--repo PATH``: receipts from the user's training code, by reading it (never importing or running it).

For a run that is already finished, the recording can't say what crossed from one phase to the next; the
code can: which reward functions TRL calls, what they submit to which pool, where ranks gather, what
becomes of generated text, and on which schedule checkpoints and cache clears run. Every finding is a
place in the checkout, labelled ``static``; :mod:`dipstick.verdicts.repo_facts` turns them into verdicts.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from dipstick.verdicts.repo_config import find_config
from dipstick.verdicts.repo_context import Context
from dipstick.verdicts.repo_loop import find_gathers, find_generation, find_schedules
from dipstick.verdicts.repo_model import Finding, Kind, RepoFindings
from dipstick.verdicts.repo_pools import find_pools
from dipstick.verdicts.repo_rewards import find_rewards
from dipstick.verdicts.repo_walk import PYTHON, Limits, printable, read_checkout
from dipstick.verdicts.repo_workers import find_worker_sync

if TYPE_CHECKING:
    from dipstick.verdicts.repo_walk import Texts

INTERESTING: Final = re.compile(
    r"Trainer|Accelerator|reward_funcs|Executor|Pool|Process\(|\.submit\(|joblib|pebble|loky|gather|barrier|all_reduce"
    r"|broadcast|generate\(|\.chat\(|empty_cache|save_steps|Config\(|Arguments\(|save_model|save_pretrained|torch\.save"
)
"""Files without any of these words are only read if something leads to them."""


def scan(path: str | Path, limits: Limits | None = None) -> RepoFindings:
    """Read a checkout and list what matters for the mechanism claims.

    Args:
        path: Folder of the training code.
        limits: Bounds on what is read and how hard names are followed.

    Raises:
        DipstickError: The path is not a folder.
    """
    bounds = limits or Limits()
    texts = read_checkout(Path(path), bounds)
    files_read = len(texts.files)
    context = Context(texts, bounds)
    context.modules = [
        module
        for file, text in texts.files.items()
        if file.endswith(PYTHON)
        and INTERESTING.search(text)
        and (module := context.checkout.module(file)) is not None
    ]
    _search(context)
    return RepoFindings(
        root=printable(str(path)),
        findings=_ordered(context),
        files_read=files_read,
        skipped=tuple(texts.skipped),
        complete=_complete(context, texts),
    )


def _search(context: Context) -> None:
    """The finders, in the order in which they feed each other."""
    find_rewards(context)
    context.inference.promise(context.promises)
    find_pools(context)
    context.inference.promise(context.promises)
    context.reachable = context.follow.reach(context.rewards)
    find_gathers(context)
    find_generation(context)
    find_schedules(context)
    find_worker_sync(context)
    find_config(context)


def _ordered(context: Context) -> tuple[Finding, ...]:
    """Findings by kind, file and line, each once; which lead from a reward is known only now."""
    kinds: tuple[Kind, ...] = get_args(Kind)
    found = [finding for kind in kinds for finding in sorted(set(context.findings.get(kind, [])), key=_place)]
    names = {printable(scope.name) for scope in context.reachable}
    return tuple(
        replace(f, from_reward=f.from_reward or (f.inside != "" and f.inside in names)) for f in found
    )


def _place(finding: Finding) -> tuple[str, int, str]:
    """Order within a kind."""
    return finding.file, finding.line, finding.target


def _complete(context: Context, texts: Texts) -> bool:
    """Whether no limit cut the scan short."""
    return texts.complete and context.checkout.effort > 0
