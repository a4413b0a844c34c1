"""Explain a real recorded run; needs no GPU.

The run is shipped with dipstick: TRL's GRPOTrainer with vLLM in colocate mode and GNN reward workers, on two H200, 405 seconds.
"""

from __future__ import annotations

from dipstick.cli import explain
from dipstick.errors import EXIT_ANSWERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dipstick.cli.output import Talk

NAME = "demo"
SAMPLE = "sample:h200x2-grpo"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    explain.add_output_arguments(parser)


def run(args: Namespace, talk: Talk) -> int:
    """Explain the sample, then say what to do with one's own run."""
    explain.show(SAMPLE, args, talk)
    if not args.json:
        talk.say(f"This was {SAMPLE}, a real run on two H200. Your own, from the logs you have:")
        talk.next(["dipstick", "import", "LOGS", "-o", "RUN"], "then: dipstick explain RUN")
    return EXIT_ANSWERED
