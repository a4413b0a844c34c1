"""Train a language model with GRPO; what it can be told is below.

Settings come from a preset (cpu, gpu, tiny), a YAML file, and flags; later ones win. Without a GPU the preset is cpu:
SmolLM2-135M, two gloo ranks, vLLM's CPU build, a real GNN, everything small. Each rank has its own workers. Under
torchrun it is one of the ranks; elsewhere it starts them.

The output folder gets settings.json, history.jsonl (one line a step), samples.rank*.jsonl (each completion with its
result), checkpoints, and the adapter in final/.
"""

from __future__ import annotations

from dipstick.cli.output import answer, answer_json
from dipstick.errors import EXIT_ANSWERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from dipstick.cli.output import Talk

NAME = "train"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    from crystal_rl import options  # noqa: PLC0415 - light, but only for this verb's help

    options.add_arguments(parser)


def run(args: Namespace, talk: Talk) -> int:
    """Train, then say how the last quarter compares with the first."""
    from pathlib import Path  # noqa: PLC0415 - --help stays light

    from crystal_rl import journal, launch, options  # noqa: PLC0415 - the same

    settings = options.read(args)
    launch.train(settings, talk)
    ends = journal.quarters(Path(settings.output))
    if args.json:
        answer_json(ends)
    else:
        answer(summary(ends))
        talk.next(
            ["crystal-rl", "evaluate", "--adapter", f"{settings.output}/final"], "score the trained policy"
        )
    return EXIT_ANSWERED


def summary(ends: dict[str, Any]) -> str:
    """The run in one paragraph."""
    seconds = ends["seconds_a_step"]
    pace = f" of {seconds:.1f} s" if seconds is not None else ""
    said = [f"{ends['steps']} steps{pace}."]
    if ends["reward_first_quarter"] is not None and ends["valid_first_quarter"] is not None:
        said.append(
            f"Reward {ends['reward_first_quarter']:.3f} in the first quarter, "
            f"{ends['reward_last_quarter']:.3f} in the last; "
            f"valid {ends['valid_first_quarter']:.0%} and {ends['valid_last_quarter']:.0%}."
        )
    if ends["steps"] < ENOUGH:
        said.append(f"Fewer than {ENOUGH} steps: that it learns cannot be told from this.")
    return " ".join([*said, f"In {ends['output']}."])


ENOUGH = 40
