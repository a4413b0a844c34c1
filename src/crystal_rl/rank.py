"""One rank: its workers, its trainer. Started by :mod:`crystal_rl.launch`, or by torchrun.

python -m crystal_rl.rank OUTPUT/settings.json          with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from crystal_rl import journal
from crystal_rl.environment import hush, variables
from crystal_rl.errors import CrystalError
from crystal_rl.lifeline import end_with
from crystal_rl.options import has_gpu, visible_gpus
from crystal_rl.pool import WorkersBrokenError
from crystal_rl.settings import Settings, merged, plan_of
from crystal_rl.worker import Plan, Tail, make_pool
from dipstick.cli.output import Talk
from dipstick.errors import DipstickError

if TYPE_CHECKING:
    from crystal_rl.pool import WorkerPool

LAUNCHER = "CRYSTAL_RL_LAUNCHER"
"""Pid of the launcher: a rank ends with it."""
QUIET = "CRYSTAL_RL_QUIET"
"""Set: a rank says nothing but errors."""


def main(argv: list[str]) -> int:
    """Train as this rank; the exit status."""
    talk = Talk(program="crystal-rl", quiet=QUIET in os.environ)
    try:
        if LAUNCHER in os.environ:
            end_with(int(os.environ[LAUNCHER]))
        settings = merged(json.loads(Path(argv[0]).read_text()))
        run(settings, int(os.environ["RANK"]), talk)
    except DipstickError as error:
        talk.error(error.message())
        return error.exit_code
    except WorkersBrokenError as error:
        talk.error(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def run(settings: Settings, rank: int, talk: Talk) -> None:
    """Train.

    Args:
        settings: With ``model`` and ``engine`` resolved.
        rank: Of ``settings.ranks``.
        talk: Progress, on rank 0.
    """
    os.environ.update(variables(has_gpu=has_gpu(), is_local=Path(settings.model).is_dir()))
    hush()
    pool = make_pool(plan(settings, rank), settings.workers)  # before torch is here: spawning is cheap
    try:
        train(settings, rank, pool, talk)
    finally:
        pool.shutdown(cancel_futures=True)


def train(settings: Settings, rank: int, pool: WorkerPool, talk: Talk) -> None:
    """The trainer's part, with the workers starting at the same time."""
    from crystal_rl.problems import draw  # noqa: PLC0415 - ASE; after the variables are set
    from crystal_rl.progress import Progress  # noqa: PLC0415 - transformers; the same
    from crystal_rl.rewards import Judge, make_reward  # noqa: PLC0415 - the same
    from crystal_rl.structures import shipped  # noqa: PLC0415 - the same
    from crystal_rl.surrogate import elements_of  # noqa: PLC0415 - the same
    from crystal_rl.trainer import make_trainer  # noqa: PLC0415 - torch and TRL; the same

    output = Path(settings.output)
    problems = draw(
        shipped(),
        settings.tasks,
        seed=settings.seed,
        goal=settings.goal,
        direction=settings.direction,
        max_atoms=settings.max_atoms,
    )
    elements = elements_of(settings.surrogate)
    judge = Judge(problems, elements, pool, settings, rank)
    reward = make_reward(judge, journal.samples(output, rank))
    progress = Progress(output / journal.HISTORY, is_quiet=talk.quiet)
    trainer = make_trainer(settings, settings.model, problems, elements, reward, [progress])
    check_world(trainer.accelerator.num_processes, settings.ranks)
    hellos = pool.wait_ready()
    if rank == 0:
        told = ", ".join(f"{said.model} on {said.device}" for said in hellos[:1])
        talk.say(
            f"{settings.ranks} ranks, {settings.workers} workers each ({told}); generation: {settings.engine}"
        )
    last = journal.checkpoint(output, settings.ranks) if settings.resume else None
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    trainer.save_model(str(output / "final"))
    trainer.save_state()


def check_world(found: int, wanted: int) -> None:
    """Some launchers start one process and say nothing.

    Raises:
        CrystalError: Not as many processes found each other as were asked for.
    """
    if found != wanted:
        raise CrystalError(
            f"{wanted} ranks are wanted and {found} found each other",
            fix="crystal-rl train --ranks N starts them; under torchrun --nproc-per-node N give the same --ranks",
        )


def plan(settings: Settings, rank: int) -> Plan:
    """How this rank's workers start: device, and what is planted in them."""
    straggler, tail = plan_of(settings.straggler, "straggler"), plan_of(settings.tail, "tail")
    return Plan(
        surrogate=settings.surrogate,
        device=device(settings, int(os.environ.get("LOCAL_RANK", rank))),
        threads=settings.worker_threads,
        straggler_s=straggler[1] if straggler and straggler[0] == rank else 0.0,
        tail=Tail(*tail) if tail else None,
    )


def device(settings: Settings, local_rank: int, gpus: int | None = None) -> str:
    """Where a rank's workers run.

    Args:
        settings: ``placement`` and ``ranks``.
        local_rank: Of the rank on its host.
        gpus: How many the host has; None: look.

    Raises:
        CrystalError: There is no GPU, or none without a rank.
    """
    count = visible_gpus() if gpus is None else gpus
    placement = settings.placement
    if placement == "cpu" or (placement == "auto" and count == 0):
        return "cpu"
    if count == 0:
        raise CrystalError(f"placement {placement}: there is no GPU here", fix="--placement cpu")
    if placement == "own-gpu":
        ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", settings.ranks))
        free = count - ranks_here
        if free < 1:
            what = (
                f"placement own-gpu: {count} GPUs, {ranks_here} of them with a rank: none is left for workers"
            )
            raise CrystalError(what, fix="fewer --ranks, or --placement shared-gpu")
        return f"cuda:{ranks_here + local_rank % free}"
    return f"cuda:{local_rank % count}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
