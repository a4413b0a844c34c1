"""Makes src/crystal_rl/policies/tiny: a policy of a million parameters and its tokenizer, taught the grammar and nothing else.

    /path/to/venv/bin/python scripts/teach_tiny.py        torch, transformers, tokenizers, ase; 10 minutes on one CPU core

Its lessons are random edits that parse, apply and pass the checks of the crystal they are for. Which edit reaches a goal
is not in them: that is what GRPO is to find. The same versions on the same processor write the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from crystal_rl import rules
from crystal_rl.atoms import to_atoms
from crystal_rl.edits import apply
from crystal_rl.errors import Rejection
from crystal_rl.grammar import render
from crystal_rl.messages import Add, Exchange, Remove, Strain, Substitute
from crystal_rl.policies import TINY
from crystal_rl.problems import draw
from crystal_rl.prompts import chat
from crystal_rl.structures import shipped
from crystal_rl.surrogate import elements_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crystal_rl.messages import Edit
    from crystal_rl.problems import Problem

SEED = 20261130
VOCABULARY = 640
MAX_ATOMS = 12
GOALS = ("density", "volume_per_atom")
TWO_EDITS, WITH_SITE, IN_VOID = 0.15, 0.3, 0.8  # how often
SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
KINDS = ("substitute", "substitute", "substitute", "strain", "strain", "exchange", "remove", "add")


def lessons(count: int, dice: random.Random) -> list[tuple[str, str]]:
    """Questions and random sound answers."""
    elements = sorted(elements_of("chgnet"))
    made: list[tuple[str, str]] = []
    while len(made) < count:
        goal = dice.choice(GOALS)
        for problem in draw(shipped(), 200, seed=dice.getrandbits(32), goal=goal, max_atoms=MAX_ATOMS):
            edits = [random_edit(problem, elements, dice) for _ in range(1 + (dice.random() < TWO_EDITS))]
            if is_sound(problem, edits):
                asked = chat(problem, examples=0, instructions=False)[0]["content"]
                made.append((asked, render(edits)))
    return made[:count]


def random_edit(problem: Problem, elements: Sequence[str], dice: random.Random) -> Edit:
    """Any edit of elements that the crystal has; half of them name a site."""
    symbols = to_atoms(problem.crystal.structure).get_chemical_symbols()
    site = dice.randrange(len(symbols))
    one, at = symbols[site], site if dice.random() < WITH_SITE else None
    kind = dice.choice(KINDS)
    if kind == "substitute":
        return Substitute(one, dice.choice(elements), at)
    if kind == "exchange":
        return Exchange(one, dice.choice(symbols))
    if kind == "remove":
        return Remove(one, site)
    if kind == "add":
        place = None if dice.random() < IN_VOID else tuple(dice.randrange(20) / 20 for _ in range(3))
        return Add(dice.choice(elements), place)  # type: ignore[arg-type] # three numbers
    return Strain(dice.choice(("a", "b", "c", "all")), round(dice.uniform(-10, 10), 1))


def is_sound(problem: Problem, edits: Sequence[Edit]) -> bool:
    """Whether the edits apply and the result passes the checks."""
    try:
        rules.check(apply(to_atoms(problem.crystal.structure), edits))
    except Rejection:
        return False
    return True


def make_tokenizer(texts: Sequence[str], target: Path) -> PreTrainedTokenizerFast:
    """Byte-level BPE, single digits."""
    core = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    core.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=SPECIAL[0], eos_token=SPECIAL[1], model_max_length=512
    )
    made.chat_template = TEMPLATE
    made.save_pretrained(target)
    return made


def encoded(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], int]]:
    """Token ids of each lesson, and where its answer begins."""
    made = []
    for asked, answer in pairs:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": asked}], add_generation_prompt=True, tokenize=False
        )
        head = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        tail = tokenizer(answer + "<|end|>", add_special_tokens=False)["input_ids"]
        made.append((head + tail, len(head)))
    return made


def batch(rows: Sequence[tuple[list[int], int]], pad: int) -> dict[str, torch.Tensor]:
    """Padded on the right; a tenth of the loss is on the question, which teaches to read it."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row, _ in rows])
    weights = torch.tensor(
        [[0.1] * begin + [1.0] * (len(row) - begin) + [0.0] * (longest - len(row)) for row, begin in rows]
    )
    return {"ids": ids, "weights": weights}


def loss_of(model: LlamaForCausalLM, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted cross-entropy of the next token."""
    logits = model(input_ids=ids).logits[:, :-1]
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return (each * weights[:, 1:]).sum() / weights[:, 1:].sum()


def make_model(tokenizer: Any) -> LlamaForCausalLM:
    """0.9 million parameters."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=352,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def teach(model: LlamaForCausalLM, rows: list[tuple[list[int], int]], steps: int, pad: int) -> float:
    """AdamW with a cosine; the last loss."""
    dice = random.Random(SEED)  # noqa: S311 - reproducible, not secret
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.05)
    began, loss = time.monotonic(), torch.tensor(0.0)
    for step in range(steps):
        loss = loss_of(model, **batch(dice.sample(rows, 48), pad))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(
                f"step {step}/{steps}  loss {loss.item():.3f}  {time.monotonic() - began:.0f} s",
                file=sys.stderr,
            )
    return float(loss.item())


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--lessons", type=int, default=16_000)
    parser.add_argument("--output", type=Path, default=TINY)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(mode=True)
    pairs = lessons(args.lessons, random.Random(SEED))  # noqa: S311 - reproducible, not secret
    args.output.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer([text for pair in pairs[:4000] for text in pair], args.output)
    model = make_model(tokenizer)
    loss = teach(model, encoded(tokenizer, pairs), args.steps, tokenizer.pad_token_id)
    model.half().save_pretrained(args.output)
    about = {
        "seed": SEED,
        "lessons": args.lessons,
        "steps": args.steps,
        "loss": round(loss, 4),
        "torch": torch.__version__,
    }
    about["parameters"] = sum(p.numel() for p in model.parameters())
    (args.output / "taught.json").write_text(json.dumps(about, indent=2) + "\n")
    print(about)


if __name__ == "__main__":
    main()
