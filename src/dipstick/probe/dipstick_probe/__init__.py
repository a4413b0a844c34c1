"""dipstick's probe: records phases, reward jobs, hand-overs and collectives of the process it lives in.

Users call it through dipstick (``dipstick.span``); where dipstick is not installed, ``import dipstick_probe`` gives the
same three functions under ``dipstick run``. docs/probe.md says what is recorded.
"""

from __future__ import annotations

from .marks import instant, span, wrap

__all__ = ["instant", "span", "wrap"]
