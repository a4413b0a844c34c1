"""Everything that can be set about training and evaluation: one frozen dataclass, from YAML, flags or Python.

Later wins: the defaults below, a preset (``presets/*.yaml``), ``--config FILE``, flags. What TRL can be told beyond this
goes into ``trl``, which is passed to ``GRPOConfig`` as it is.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from crystal_rl.errors import CrystalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

PRESETS = Path(__file__).parent / "presets"


def _set(default: Any, help_: str, group: str) -> Any:
    return field(default=default, metadata={"help": help_, "group": group})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """See the ``help`` of each field; ``crystal-rl train --help`` prints them."""

    output: str = _set("crystal-rl-out", "folder for checkpoints, logs and samples", "run")
    steps: int = _set(200, "optimizer steps", "run")
    ranks: int = _set(
        1, "processes, one GPU each (gloo on CPU, NCCL on GPUs); under torchrun its number counts", "run"
    )
    seed: int = _set(0, "of tasks, sampling and rattles: a rerun is equal", "run")
    resume: bool = _set(False, "go on from the last checkpoint in the output folder", "run")
    save_steps: int = _set(5, "a checkpoint every so many steps; 0: only at the end", "run")
    keep: int = _set(2, "checkpoints kept", "run")
    report_to: str = _set(
        "none", "wandb, tensorboard, trackio, ...: TRL's report_to; several with commas", "run"
    )

    model: str = _set("smollm2", "smollm2, tiny, a folder, or a name on the Hugging Face hub", "policy")
    dtype: Literal["auto", "float32", "bfloat16"] = _set(
        "auto", "auto: bfloat16 on a GPU, float32 on a CPU", "policy"
    )
    lora_rank: int = _set(16, "rank of the LoRA adapter; 0: train all weights", "policy")
    lora_targets: str = _set("all-linear", "modules that get an adapter, with commas", "policy")
    learning_rate: float = _set(1e-5, "peak, after no warm-up", "policy")

    completions: int = _set(32, "completions per prompt: the group whose rewards are compared", "generation")
    prompts: int = _set(1, "prompts per step, over all ranks", "generation")
    engine: Literal["auto", "vllm", "transformers"] = _set(
        "auto", "auto: vLLM, colocated, if it is installed", "generation"
    )
    vllm_memory: float = _set(0.3, "share of each GPU's memory that the colocated engine takes", "generation")
    max_tokens: int = _set(128, "longest completion, tokens", "generation")
    max_context: int = _set(1024, "longest prompt and completion together, tokens", "generation")
    temperature: float = _set(1.0, "of sampling", "generation")
    constrain: bool = _set(
        True, "decode within the grammar (vLLM only): nearly every answer is valid", "generation"
    )
    examples: int = _set(2, "answered questions before the question, at most 4", "generation")
    instructions: bool = _set(True, "state the grammar in the prompt", "generation")

    goal: str = _set("density", "property to change: density, volume_per_atom, formation_energy", "tasks")
    direction: Literal["either", "higher", "lower"] = _set("either", "where targets lie", "tasks")
    tasks: int = _set(200, "tasks drawn; steps go through them in a shuffled order", "tasks")
    max_atoms: int = _set(20, "largest cell to start from", "tasks")
    max_edits: int = _set(4, "edits that constrained decoding allows, 1 to 4", "tasks")

    surrogate: str = _set(
        "chgnet", "chgnet, chgnet-r2scan, sevennet, fake, or package.module:function", "workers"
    )
    workers: int = _set(2, "modification workers per rank", "workers")
    placement: Literal["auto", "cpu", "shared-gpu", "own-gpu"] = _set(
        "auto",
        "where they run: on the rank's own GPU (auto, if there is one), the CPU, or GPUs without a rank",
        "workers",
    )
    worker_threads: int = _set(1, "CPU threads of each worker", "workers")
    relax_steps: int = _set(100, "relaxation steps at most", "workers")
    fmax: float = _set(0.1, "a crystal is relaxed when no force is larger, eV/Å", "workers")
    deadline_s: float = _set(60.0, "seconds a worker may take for a task", "workers")

    straggler: str = _set("", "RANK:SECONDS: that rank's worker 0 waits so long before each task", "planted")
    tail: str = _set("", "P:SECONDS: each task takes longer by SECONDS with probability P", "planted")
    serial: bool = _set(False, "score one task after the other", "planted")
    transfer: float = _set(
        0.0, "MiB copied from the host to the device between reward and training", "planted"
    )

    trl: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "options of TRL's GRPOConfig: KEY=VALUE (YAML), repeatable", "group": "TRL"},
    )

    def __post_init__(self) -> None:
        for check, message in _CHECKS:
            if not check(self):
                raise UsageError(message.format(self), fix="see crystal-rl train --help")
        plan_of(self.straggler, "straggler")
        plan_of(self.tail, "tail")

    @property
    def per_rank(self) -> int:
        """Completions that each rank generates and scores in a step."""
        return self.completions * self.prompts // self.ranks


_CHECKS: tuple[tuple[Any, str], ...] = (
    (lambda s: s.steps >= 1, "steps is {0.steps}: at least 1 is needed"),
    (lambda s: s.ranks >= 1, "ranks is {0.ranks}: at least 1 is needed"),
    (lambda s: s.workers >= 1, "workers is {0.workers}: at least 1 is needed"),
    (lambda s: s.completions >= 2, "completions is {0.completions}: a group needs 2 to compare"),  # noqa: PLR2004
    (
        lambda s: s.completions * s.prompts % s.ranks == 0,
        "{0.prompts} prompts x {0.completions} completions cannot be shared by {0.ranks} ranks",
    ),
    (lambda s: 1 <= s.max_edits <= 4, "max_edits is {0.max_edits}: 1 to 4"),  # noqa: PLR2004
    (lambda s: 0 < s.vllm_memory < 1, "vllm_memory is {0.vllm_memory}: a share between 0 and 1"),
    (lambda s: s.temperature > 0, "temperature is {0.temperature}: sampling needs more than 0"),
    (lambda s: s.transfer >= 0, "transfer is {0.transfer} MiB: not negative"),
    (lambda s: s.examples >= 0, "examples is {0.examples}: not negative"),
)


def plan_of(text: str, name: str) -> tuple[float, float] | None:
    """``"1:0.5"`` as (1.0, 0.5); None for the empty text.

    Raises:
        UsageError: It has another form.
    """
    if not text:
        return None
    try:
        first, second = (float(part) for part in text.split(":"))
    except ValueError:
        first = second = math.nan
    is_rank = name == "straggler" and first.is_integer()
    if not (second >= 0 and math.isfinite(second) and (is_rank or (name == "tail" and 0 <= first <= 1))):
        form = {"straggler": "RANK:SECONDS, as in 1:0.5", "tail": "P:SECONDS, as in 0.05:3"}[name]
        raise UsageError(f"{name} is {text!r}", fix=form)
    return first, second


# --- from text ---------------------------------------------------------------------------------------------------


def fields() -> tuple[dataclasses.Field[Any], ...]:
    """The fields in the order of the help."""
    return dataclasses.fields(Settings)


def types() -> dict[str, Any]:
    """Each field's type."""
    return get_type_hints(Settings)


def merged(*layers: Mapping[str, Any]) -> Settings:
    """Settings from layers of given values, later over earlier; ``trl`` is merged key by key.

    Raises:
        UsageError: A name that is no setting, or a value of another type.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            checked = _checked(name, value)
            values[name] = {**values.get("trl", {}), **checked} if name == "trl" else checked
    return Settings(**values)


def _checked(name: str, value: Any) -> Any:
    known = types()
    if name not in known:
        raise UsageError(f"there is no setting {name!r}", fix=f"settings: {', '.join(known)}")
    wanted = known[name]
    if get_origin(wanted) is Literal:
        if value not in get_args(wanted):
            raise UsageError(f"{name} is {value!r}", fix=f"one of {', '.join(get_args(wanted))}")
        return value
    plain = get_origin(wanted) or wanted
    if plain is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    is_bool = isinstance(value, bool)
    if isinstance(plain, UnionType) or not isinstance(value, plain) or (is_bool and plain is not bool):
        raise UsageError(f"{name} is {value!r}: {plain.__name__} expected")
    return value


def read(path: Path) -> dict[str, Any]:
    """A YAML file of settings.

    Raises:
        CrystalError: It cannot be read, or is no mapping.
    """
    import yaml  # noqa: PLC0415 - only where there is a file

    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CrystalError(f"cannot read the settings: {error}", where=str(path)) from error
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise CrystalError("settings are a mapping of names to values", where=str(path))
    return found


def preset(name: str) -> dict[str, Any]:
    """The settings of a shipped preset.

    Raises:
        UsageError: There is no such preset.
    """
    path = PRESETS / f"{name}.yaml"
    choices = sorted(file.stem for file in PRESETS.glob("*.yaml"))
    if name not in choices:
        raise UsageError(f"there is no preset {name!r}", fix=f"one of {', '.join(choices)}")
    return read(path)


def written(settings: Settings) -> dict[str, Any]:
    """All settings as plain values: what ``merged`` takes."""
    return dataclasses.asdict(settings)
