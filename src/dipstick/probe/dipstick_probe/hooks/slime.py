"""slime: ``Timer.start``/``end`` on every training rank. Fixture only: it is not on PyPI and runs on Ray and SGLang.

``train_wait`` is slime's inverse timer: everything outside ``train()``. It is a container here, so that the phases
inside it (sleep, wake_up, update_weights) keep their names and the rest stays unattributed.
"""

from __future__ import annotations

from ..patch import Target
from ..timers import Timers, labelled

TIMERS = Timers(
    {
        "train_wait": None, "data_preprocess": "other", "ref_log_probs": "logprobs", "log_probs": "logprobs",
        "actor_train": "backward", "sleep": "other", "wake_up": "other", "update_weights": "weight_sync",
        "save_model": "checkpoint", "ref_model_update": "other",
    },
    step_label="train", skip=("slime/utils/timer.py", "slime/observability/timer.py"),
    events={"sleep": "sleep", "wake_up": "wake", "update_weights": "weight_sync", "save_model": "checkpoint"},
)  # fmt: skip

_EDGES = (
    Target("Timer.start", labelled(TIMERS, starts=True), ("name",)),
    Target("Timer.end", labelled(TIMERS, starts=False), ("name",)),
)
TABLE = {"slime.utils.timer": _EDGES, "slime.observability.timer": _EDGES}
forget = TIMERS.forget
