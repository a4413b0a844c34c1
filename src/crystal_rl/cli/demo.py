"""The whole job on this machine: train for real, record it, explain it.

Eight GRPO steps of SmolLM2-135M with vLLM's CPU build colocated, on two gloo ranks, each with its CHGNet worker, under
`dipstick run`; then `dipstick explain` and report.html. 2-4 minutes on two CPU cores, 10 GB of memory; GPUs are left
alone. The model (93 MB, 540 MB when converted) is fetched once. scripts/demo sets the machine up and calls this.
"""

from __future__ import annotations

from dipstick.cli.options import positive
from dipstick.cli.output import answer
from dipstick.errors import EXIT_ANSWERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dipstick.cli.output import Talk

NAME = "demo"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="what to make: the recording, the policy, report.html (demo-run, demo-run-2, ...)",
    )
    parser.add_argument("--steps", metavar="N", type=positive, default=8, help="optimizer steps (8)")
    parser.add_argument(
        "--model",
        choices=("smollm2", "tiny"),
        default="smollm2",
        help="tiny: the 0.9 million parameters in this package, with transformers' generate; no download",
    )
    parser.add_argument(
        "--engine",
        choices=("auto", "vllm", "transformers"),
        default="auto",
        help="what generates; auto: vLLM if it is installed",
    )


def run(args: Namespace, talk: Talk) -> int:
    """Check, do it, say what it proves."""
    from crystal_rl import demo, policies  # noqa: PLC0415 - --help stays light
    from crystal_rl.environment import check_packages  # noqa: PLC0415 - the same

    check_packages()
    plan = demo.Plan(demo.free_folder(args.output), args.steps, args.model, args.engine)
    policies.find(args.model, talk.say)  # before anything is made: it may need the network
    said = demo.demo(plan, talk)
    answer(said)
    talk.next(demo.next_command(), "the same kind of loop on two H200s, where the dips are")
    return EXIT_ANSWERED
