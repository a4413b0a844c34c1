"""A policy's answers to fresh problems, scored: no training."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crystal_rl import policies
from crystal_rl.environment import check_packages, engine_of, keep_float32_in_vllm, variables
from crystal_rl.errors import CrystalError
from crystal_rl.options import has_gpu
from crystal_rl.rank import plan
from crystal_rl.summary import Summary, summarise
from crystal_rl.worker import make_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from crystal_rl.problems import Problem
    from crystal_rl.prompts import Message
    from crystal_rl.rewards import Scored
    from crystal_rl.settings import Settings

    Generate = Callable[[Sequence[list[Message]]], list[str]]

HELD_OUT = 1_000_003
"""Added to the seed: problems that training with the same seed does not draw."""


@dataclasses.dataclass(frozen=True, slots=True)
class Evaluation:
    """What a policy is worth.

    Attributes:
        summary: Over all completions.
        metrics: As training logs them.
        scored: Each completion with its result.
    """

    summary: Summary
    metrics: dict[str, float]
    scored: tuple[Scored, ...]


def evaluate(settings: Settings, adapter: str | None, say: Callable[[str], None]) -> Evaluation:
    """Answer ``settings.tasks`` problems ``settings.completions`` times each.

    Args:
        settings: As for training; the problems are others.
        adapter: Folder of a LoRA adapter, or None.
        say: Told what takes long.

    Raises:
        CrystalError: Something is not installed, or there is no adapter in the folder.
    """
    check_packages(("torch", "transformers", "peft"))
    if adapter is not None and not (Path(adapter) / "adapter_config.json").is_file():
        raise CrystalError(
            "no LoRA adapter in this folder", where=adapter, fix="training leaves one in OUTPUT/final"
        )
    model, engine = policies.find(settings.model, say), engine_of(settings, say)
    os.environ.update(variables(has_gpu=has_gpu(), is_local=Path(model).is_dir()))
    with make_pool(plan(settings, 0), settings.workers) as pool:
        generate = generator(settings, model, engine, adapter)
        return score(settings, generate, pool)


def score(settings: Settings, generate: Generate, pool: Executor) -> Evaluation:
    """Draw, ask, score."""
    from crystal_rl.problems import draw  # noqa: PLC0415 - ASE
    from crystal_rl.prompts import chat  # noqa: PLC0415 - the same
    from crystal_rl.rewards import Judge, metrics  # noqa: PLC0415 - the same
    from crystal_rl.structures import shipped  # noqa: PLC0415 - the same
    from crystal_rl.surrogate import elements_of  # noqa: PLC0415 - the same

    problems: list[Problem] = draw(
        shipped(),
        settings.tasks,
        seed=settings.seed + HELD_OUT,
        goal=settings.goal,
        direction=settings.direction,
        max_atoms=settings.max_atoms,
    )
    asked = [index for index in range(len(problems)) for _ in range(settings.completions)]
    shots, rules = settings.examples, settings.instructions
    texts = generate([chat(problems[i], examples=shots, instructions=rules) for i in asked])
    scored = Judge(problems, elements_of(settings.surrogate), pool, settings).judge(0, texts, asked)
    summary = summarise([s.result for s in scored], [s.edits for s in scored], asked)
    return Evaluation(summary, metrics(scored), tuple(scored))


def generator(settings: Settings, model: str, engine: str, adapter: str | None) -> Generate:
    """What turns conversations into answers: vLLM, constrained if training was, or transformers."""
    return _vllm(settings, model, adapter) if engine == "vllm" else _transformers(settings, model, adapter)


def _transformers(settings: Settings, model: str, adapter: str | None) -> Generate:
    import torch  # noqa: PLC0415 - slow
    from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed  # noqa: PLC0415 - the same

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" and settings.dtype != "float32" else torch.float32
    tokenizer: Any = AutoTokenizer.from_pretrained(model, padding_side="left")
    policy: Any = _with_adapter(AutoModelForCausalLM.from_pretrained(model, dtype=dtype), adapter).to(device)
    set_seed(settings.seed)

    def generate(conversations: Sequence[list[Message]]) -> list[str]:
        answers: list[str] = []
        for begin in range(0, len(conversations), 64):
            prompts = tokenizer.apply_chat_template(
                list(conversations[begin : begin + 64]),
                add_generation_prompt=True,
                padding=True,
                return_tensors="pt",
                return_dict=True,
            ).to(device)
            prompts.pop("token_type_ids", None)
            with torch.inference_mode():
                ids = policy.generate(
                    **prompts,
                    max_new_tokens=settings.max_tokens,
                    do_sample=True,
                    temperature=settings.temperature,
                    top_k=0,
                )
            answers += tokenizer.batch_decode(
                ids[:, prompts["input_ids"].shape[1] :], skip_special_tokens=True
            )
        return answers

    return generate


def _with_adapter(policy: Any, adapter: str | None) -> Any:
    if adapter is None:
        return policy
    from peft import PeftModel  # noqa: PLC0415 - slow

    return PeftModel.from_pretrained(policy, adapter).merge_and_unload()


def _vllm(settings: Settings, model: str, adapter: str | None) -> Generate:
    if not has_gpu():
        keep_float32_in_vllm()
    from vllm import LLM, SamplingParams  # noqa: PLC0415 - slow, and absent on many machines
    from vllm.lora.request import LoRARequest  # noqa: PLC0415 - the same
    from vllm.sampling_params import StructuredOutputsParams  # noqa: PLC0415 - the same

    from crystal_rl.constrain import answer_pattern  # noqa: PLC0415 - light; beside its use
    from crystal_rl.surrogate import elements_of  # noqa: PLC0415 - the same

    pattern = answer_pattern(elements_of(settings.surrogate), settings.max_edits)
    engine = LLM(
        model=model,
        max_model_len=settings.max_context,
        gpu_memory_utilization=settings.vllm_memory,
        enable_lora=adapter is not None,
        max_lora_rank=max(8, settings.lora_rank),
        seed=settings.seed,
        **({} if has_gpu() else {"dtype": "float32", "enforce_eager": True}),
    )
    params = SamplingParams(
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        structured_outputs=StructuredOutputsParams(regex=pattern) if settings.constrain else None,
    )
    lora = LoRARequest("policy", 1, adapter) if adapter is not None else None

    def generate(conversations: Sequence[list[Message]]) -> list[str]:
        done = engine.chat(list(conversations), params, lora_request=lora, use_tqdm=False)
        return [each.outputs[0].text for each in done]

    return generate
