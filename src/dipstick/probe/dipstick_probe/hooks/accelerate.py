"""accelerate: backward, optimizer, clipping, gathers and waits of every trainer on top of it.

``gather`` and ``gather_object`` are wrapped where they are defined, before anybody binds them by name.
Ran for real with 1.15 (tests/live_trl.py).
"""

from __future__ import annotations

from ..patch import Target
from ..wrappers import Spec, timed

INTERNAL = ("accelerate/accelerator.py", "accelerate/utils/operations.py", "torch/optim/lr_scheduler.py")


def _spec(attr: str, name: str, phase: str | None = None, event: str | None = None) -> Target:
    return Target(attr, timed(Spec(name, phase, event=event, skip=INTERNAL)))


TABLE = {
    "accelerate.utils.operations": (
        _spec("gather", "gather"),
        _spec("gather_object", "gather_object"),
        _spec("broadcast_object_list", "broadcast_object_list", "collective_wait"),
    ),
    "accelerate.accelerator": (
        _spec("Accelerator.backward", "backward", "backward"),
        _spec("Accelerator.gather", "gather"),
        _spec("Accelerator.gather_for_metrics", "gather"),
        _spec("Accelerator.clip_grad_norm_", "clip_grad_norm_", "optimizer"),
        _spec("Accelerator.wait_for_everyone", "wait_for_everyone", "collective_wait"),
        _spec("Accelerator.save_state", "save_state", "checkpoint", "checkpoint"),
    ),
    "accelerate.optimizer": (_spec("AcceleratedOptimizer.step", "optimizer", "optimizer"),),
}
