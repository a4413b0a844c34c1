"""dipstick's probe: records phases, reward jobs, hand-overs and collectives of the process it lives in.

Users call it through dipstick (``dipstick.span``); where dipstick is not installed, ``import dipstick_probe`` gives the
same three functions under ``dipstick run``. The segment's format is described in docs/probe.md.
"""

from __future__ import annotations

from .spans import instant, span, wrap

__all__ = ["instant", "span", "wrap"]
