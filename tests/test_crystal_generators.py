"""Where answers come from outside training: vLLM and transformers, asked through modules that stand in for them.

Neither is installed where the other tests run. What is checked is what they are told, and what becomes of what they say.
"""

from __future__ import annotations

import functools
import logging
import sys
import types
import warnings
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from crystal_rl import environment, evaluate
from crystal_rl.constrain import answer_pattern
from crystal_rl.settings import Settings, merged

if TYPE_CHECKING:
    from collections.abc import Sequence

ELEMENTS = ("Cl", "K", "Na")
QUESTIONS = [[{"role": "user", "content": f"q{i}"}] for i in range(3)]


def module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> types.ModuleType:
    """A module that can be imported under this name, its packages too."""
    made = types.ModuleType(name)
    vars(made).update(members)
    monkeypatch.setitem(sys.modules, name, made)
    parent, _, last = name.rpartition(".")
    if parent:
        above = sys.modules.get(parent) or module(monkeypatch, parent)
        monkeypatch.setattr(above, last, made, raising=False)
    return made


# --- vLLM --------------------------------------------------------------------------------------------------------


class Engine:
    """Stands in for vLLM's LLM: keeps what it was told, answers each question with its own words."""

    made: list[Engine]

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.asked: list[tuple[Any, Any, bool]] = []
        Engine.made.append(self)

    def chat(self, questions: list[Any], params: Any, *, lora_request: Any, use_tqdm: bool) -> list[Any]:
        """One output a question, in order."""
        self.asked.append((params, lora_request, use_tqdm))
        return [SimpleNamespace(outputs=[SimpleNamespace(text=f"to {q[-1]['content']}")]) for q in questions]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A vLLM that records."""
    Engine.made = []
    made = module(monkeypatch, "vllm", LLM=Engine, SamplingParams=lambda **given: given)
    module(monkeypatch, "vllm._custom_ops", _supports_onednn=True)
    module(monkeypatch, "vllm.lora")
    module(monkeypatch, "vllm.lora.request", LoRARequest=lambda *given: given)
    module(monkeypatch, "vllm.sampling_params", StructuredOutputsParams=lambda **given: given)
    module(monkeypatch, "trl")
    module(monkeypatch, "trl.generation")
    module(monkeypatch, "trl.generation.vllm_generation", LLM=Engine)
    monkeypatch.setattr("crystal_rl.surrogate.elements_of", lambda _: ELEMENTS)
    return made


def told(
    monkeypatch: pytest.MonkeyPatch, adapter: str | None = None, *, gpu: bool = False, **changes: Any
) -> Engine:
    """The engine, after it was asked three questions."""
    monkeypatch.setattr(evaluate, "has_gpu", lambda: gpu)
    generate = evaluate.generator(merged(changes), "model", "vllm", adapter)
    assert generate(QUESTIONS) == ["to q0", "to q1", "to q2"]
    (engine,) = Engine.made
    return engine


@pytest.mark.usefixtures("vllm")
def test_vllm_is_told_what_training_would_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model, lengths, memory, temperature, seed; no bar of its own."""
    engine = told(monkeypatch, max_context=300, max_tokens=20, temperature=0.7, vllm_memory=0.4, seed=9)
    wanted = {"model": "model", "max_model_len": 300, "gpu_memory_utilization": 0.4, "seed": 9}
    assert wanted.items() <= engine.given.items()
    ((params, lora, bar),) = engine.asked
    assert (params["max_tokens"], params["temperature"], lora, bar) == (20, 0.7, None, False)


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize("edits", [1, 3])
def test_vllm_decodes_within_the_grammar_as_in_training(monkeypatch: pytest.MonkeyPatch, edits: int) -> None:
    """The same pattern, of the surrogate's elements."""
    ((params, _, _),) = told(monkeypatch, max_edits=edits).asked
    assert params["structured_outputs"] == {"regex": answer_pattern(ELEMENTS, edits)}


@pytest.mark.usefixtures("vllm")
def test_without_the_constraint_vllm_may_say_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a policy that was trained so."""
    ((params, _, _),) = told(monkeypatch, constrain=False).asked
    assert params["structured_outputs"] is None


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize(("rank", "most"), [(4, 8), (16, 16), (64, 64)])
def test_an_adapter_is_asked_with_each_question(
    monkeypatch: pytest.MonkeyPatch, rank: int, most: int
) -> None:
    """VLLM takes ranks of 8 and more, and must be told the largest."""
    engine = told(monkeypatch, "out/final", lora_rank=rank)
    assert (engine.given["enable_lora"], engine.given["max_lora_rank"]) == (True, most)
    assert engine.asked[0][1] == ("policy", 1, "out/final")


@pytest.mark.usefixtures("vllm")
def test_without_an_adapter_vllm_prepares_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would cost memory."""
    assert told(monkeypatch).given["enable_lora"] is False


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize("gpu", [True, False])
def test_vllm_on_a_cpu_stays_in_float32_and_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch, *, gpu: bool
) -> None:
    """Half precision is emulated there and compiling takes two minutes; a GPU keeps vLLM's own choice."""
    given = told(monkeypatch, gpu=gpu).given
    assert ("dtype" in given, "enforce_eager" in given) == (not gpu, not gpu)


def test_float32_reaches_the_engine_that_trl_makes(vllm: types.ModuleType) -> None:
    """TRL names no dtype: the name that it calls is replaced; linear weights stay where a sync can write them."""
    environment.keep_float32_in_vllm()
    generation = sys.modules["trl.generation.vllm_generation"]
    generation.LLM(model="m", gpu_memory_utilization=0.3)
    assert Engine.made[0].given == {
        "model": "m",
        "gpu_memory_utilization": 0.3,
        "dtype": "float32",
        "enforce_eager": True,
        "use_tqdm_on_load": False,
    }
    assert vllm._custom_ops._supports_onednn is False
    assert isinstance(generation.LLM, functools.partial)


# --- transformers ------------------------------------------------------------------------------------------------


class Ids:
    """Token ids of a batch: rows of questions, or of questions with their answers."""

    def __init__(self, rows: Sequence[str], width: int) -> None:
        self.rows = list(rows)
        self.shape = (len(self.rows), width)

    def __getitem__(self, at: tuple[slice, slice]) -> Ids:
        """All rows without the first columns."""
        _, columns = at
        return Ids([row[columns.start :] for row in self.rows], 0)


class Batch(dict[str, Any]):
    """What a tokenizer returns."""

    def to(self, device: str) -> Batch:
        """On a device."""
        self["device"] = device
        return self


class Tokenizer:
    """Pads questions on the left to ten characters; an answer is what follows."""

    asked: list[dict[str, Any]]

    def apply_chat_template(self, questions: list[Any], **given: Any) -> Batch:
        """A batch."""
        Tokenizer.asked.append(given)
        return Batch(input_ids=Ids([q[-1]["content"].rjust(10) for q in questions], 10), token_type_ids=None)

    def batch_decode(self, ids: Ids, *, skip_special_tokens: bool) -> list[str]:
        """The text."""
        assert skip_special_tokens
        return [row.strip() for row in ids.rows]


class Policy:
    """Answers each question with its own words."""

    def __init__(self) -> None:
        self.given: list[dict[str, Any]] = []
        self.where = ""

    def to(self, device: str) -> Policy:
        """On a device."""
        self.where = device
        return self

    def generate(self, **given: Any) -> Ids:
        """Questions with their answers."""
        self.given.append(given)
        return Ids([f"{row}to {row.strip()}" for row in given["input_ids"].rows], 0)


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Policy:
    """A policy behind modules that stand in for torch, transformers and PEFT."""
    made = Policy()
    seeds: list[int] = []
    Tokenizer.asked = []

    def remembered(what: Any, **told: Any) -> Any:
        vars(made).update(told)
        return what

    def load(name: str, dtype: str) -> Any:
        return remembered(made, name=name, dtype=dtype)

    def load_tokenizer(_: str, padding_side: str) -> Any:
        return remembered(Tokenizer(), side=padding_side)

    def load_adapter(_: Policy, adapter: str) -> Any:
        return remembered(SimpleNamespace(merge_and_unload=lambda: made), adapter=adapter)

    cuda = SimpleNamespace(is_available=lambda: False)
    module(monkeypatch, "torch", cuda=cuda, float32="f32", bfloat16="bf16", inference_mode=nullcontext)
    module(
        monkeypatch,
        "transformers",
        AutoModelForCausalLM=SimpleNamespace(from_pretrained=load),
        AutoTokenizer=SimpleNamespace(from_pretrained=load_tokenizer),
        set_seed=seeds.append,
    )
    module(monkeypatch, "peft", PeftModel=SimpleNamespace(from_pretrained=load_adapter))
    remembered(made, seeds=seeds, cuda=cuda)
    return made


def asked(policy: Policy, count: int = 3, adapter: str | None = None, **changes: Any) -> list[str]:
    questions = [[{"role": "user", "content": f"q{i}"}] for i in range(count)]
    answers = evaluate.generator(merged(changes), "model", "transformers", adapter)(questions)
    assert policy.where
    return answers


def test_transformers_answers_without_repeating_the_question(policy: Policy) -> None:
    """The prompt's tokens are cut off: padding is on the left, so all prompts are equally long."""
    assert asked(policy) == ["to q0", "to q1", "to q2"]
    assert vars(policy)["side"] == "left"


def test_transformers_samples_as_training_does(policy: Policy) -> None:
    """The whole distribution at its temperature, from the run's seed; no more tokens than allowed."""
    asked(policy, temperature=0.5, max_tokens=17, seed=4)
    (given,) = policy.given
    assert (given["do_sample"], given["temperature"], given["top_k"]) == (True, 0.5, 0)
    assert given["max_new_tokens"] == 17
    assert vars(policy)["seeds"] == [4]
    assert "token_type_ids" not in given


@pytest.mark.parametrize(("count", "batches"), [(1, [1]), (64, [64]), (150, [64, 64, 22])])
def test_many_questions_are_asked_in_batches(policy: Policy, count: int, batches: list[int]) -> None:
    """So that memory stays bounded; the order stays, too."""
    assert asked(policy, count) == [f"to q{i}" for i in range(count)]
    assert [len(given["input_ids"].rows) for given in policy.given] == batches


@pytest.mark.parametrize(
    ("gpu", "dtype", "wanted"),
    [
        (False, "auto", ("cpu", "f32")),
        (True, "auto", ("cuda", "bf16")),
        (True, "float32", ("cuda", "f32")),
        (False, "bfloat16", ("cpu", "f32")),
    ],
)  # fmt: skip
def test_device_and_precision(policy: Policy, gpu: bool, dtype: Any, wanted: tuple[str, str]) -> None:  # noqa: FBT001 - a row
    """Half precision on a GPU only, unless it is refused."""
    vars(policy)["cuda"].is_available = lambda: gpu
    asked(policy, dtype=dtype)
    assert (policy.where, vars(policy)["dtype"]) == wanted


def test_an_adapter_is_merged_into_the_weights(policy: Policy) -> None:
    """Once, before the first question; without one nothing is."""
    asked(policy)
    assert "adapter" not in vars(policy)
    asked(policy, adapter="out/final")
    assert vars(policy)["adapter"] == "out/final"


# --- remarks -----------------------------------------------------------------------------------------------------


def test_remarks_of_libraries_about_themselves_are_hushed() -> None:
    """Nothing that anybody could act on; other warnings, and those of other modules, are heard."""
    logger = logging.getLogger("torch._library.triton")
    level = logger.level
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            environment.hush()
            warnings.warn_explicit("x", FutureWarning, "f", 1, module="vllm.triton_utils.dispatcher")
            warnings.warn_explicit("y", FutureWarning, "f", 1, module="trl.trainer")
            warnings.warn_explicit("z", UserWarning, "f", 1, module="vllm.config")
        assert [str(each.message) for each in heard] == ["y", "z"]
        assert not logger.isEnabledFor(logging.WARNING)
        assert logger.isEnabledFor(logging.ERROR)
    finally:
        logger.setLevel(level)


def test_what_evaluates_needs_no_more_than_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch, transformers, PEFT: evaluation does without TRL, accelerate and data sets."""
    seen: list[tuple[str, ...]] = []

    def check(names: tuple[str, ...]) -> None:
        seen.append(names)
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluate, "check_packages", check)
    with pytest.raises(KeyboardInterrupt):
        evaluate.evaluate(Settings(), None, pytest.fail)
    assert seen == [("torch", "transformers", "peft")]
