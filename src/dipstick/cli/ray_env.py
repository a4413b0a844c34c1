"""Print the runtime_env that makes Ray workers load the probe.

A Ray cluster that is up already inherits nothing from `dipstick run`. Give its workers this:
ray.init(runtime_env=...), or ray job submit --runtime-env-json "$(dipstick ray-env RUN)". RUN must be a folder that
every node sees under the same path, and dipstick must be installed at the same path there.
"""

from __future__ import annotations

from dipstick.cli.output import answer
from dipstick.errors import EXIT_ANSWERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dipstick.cli.output import Talk

NAME = "ray-env"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument("run", metavar="RUN", help="the recording folder of the dipstick run that records")


def run(args: Namespace, _talk: Talk) -> int:
    """Print one JSON object."""
    import json  # noqa: PLC0415 - --help stays light
    import os  # noqa: PLC0415 - --help stays light
    from pathlib import Path  # noqa: PLC0415 - --help stays light

    from dipstick.capture.launch import probe_variables  # noqa: PLC0415 - --help stays light

    variables = probe_variables(Path(args.run), os.environ.get("PYTHONPATH", ""))
    answer(json.dumps({"env_vars": variables}))
    return EXIT_ANSWERED
