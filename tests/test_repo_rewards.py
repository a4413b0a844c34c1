"""Reward functions, in the many ways in which training code names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dipstick.verdicts.repo import scan

if TYPE_CHECKING:
    from pathlib import Path

    from dipstick.verdicts.repo_model import Finding

IMPORT = "from trl import GRPOTrainer\n"


def rewards(root: Path, train: str, **others: str) -> list[Finding]:
    """Reward functions of ``train.py`` (and other modules, by name)."""
    (root / "train.py").write_text(train)
    for name, text in others.items():
        path = root / (name.replace(".", "/") + ".py")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    return list(scan(root).of("reward_function"))


def targets(root: Path, train: str, **others: str) -> list[tuple[str, str, str]]:
    """(target, place of its definition, how sure)."""
    return [(r.target, r.target_place, r.sure) for r in rewards(root, train, **others)]


@pytest.mark.parametrize(
    "expression",
    [
        "GRPOTrainer(model, reward_funcs=score)",
        "GRPOTrainer(model, score)",
        "GRPOTrainer(model, reward_funcs=[score])",
        "GRPOTrainer(model, reward_funcs=(score,))",
        "GRPOTrainer(model, reward_funcs=[*[score]])",
        "GRPOTrainer(model, reward_funcs=partial(score, width=2))",
        "GRPOTrainer(model, reward_funcs=update_wrapper(partial(score, width=2), score))",
        "GRPOTrainer(model, reward_funcs=[score] if fast else [score])",
        "GRPOTrainer(model, reward_funcs=funcs)",
        "GRPOTrainer(model, reward_funcs=appended)",
        "GRPOTrainer(**settings)",
        "GRPOTrainer(model, reward_funcs=[table[name] for name in names])",
        "GRPOTrainer(model, reward_funcs=make())",
        "GRPOTrainer(model, reward_funcs=(named := score))",
    ],
)
def test_however_it_is_written_the_function_is_found(tmp_path: Path, expression: str) -> None:
    """Lists, conditions, partials, names, ``**settings``, registries and factories all lead to ``score``."""
    train = f"""from functools import partial, update_wrapper
{IMPORT}
def score(completions, width=1):
    return [1.0 for _ in completions]

def make():
    return [score]

funcs = [score]
appended = []
appended.append(score)
settings = dict(model="m", reward_funcs=score)
table = {{"score": score}}
trainer = {expression}
"""

    assert {(name, place) for name, place, _ in targets(tmp_path, train)} == {("train.score", "train.py:4")}


def test_a_choice_made_at_run_time_is_by_name(tmp_path: Path) -> None:
    """Which entries of a registry are used is in a configuration."""
    train = IMPORT + (
        "def a(completions): ...\ndef b(completions): ...\nTABLE = {'a': a, 'b': b}\n"
        "GRPOTrainer(m, reward_funcs=[TABLE[n] for n in names])\n"
    )

    assert targets(tmp_path, train) == [
        ("train.a", "train.py:2", "by name"),
        ("train.b", "train.py:3", "by name"),
    ]


def test_an_object_with_call_is_a_reward_function(tmp_path: Path) -> None:
    """Its ``__call__`` is the target."""
    train = IMPORT + (
        "class Reward:\n    def __call__(self, completions):\n        return []\n"
        "GRPOTrainer(m, reward_funcs=[Reward()])\n"
    )

    assert targets(tmp_path, train) == [("train.Reward.__call__", "train.py:3", "resolved")]


def test_a_bound_method_is_a_reward_function(tmp_path: Path) -> None:
    """Through an instance, and through ``self``."""
    train = IMPORT + (
        "class Scorer:\n    def score(self, completions):\n        return []\n"
        "    def train(self):\n        GRPOTrainer(m, reward_funcs=self.score)\n"
        "scorer = Scorer()\nGRPOTrainer(m, reward_funcs=[scorer.score])\n"
    )

    assert targets(tmp_path, train) == [("train.Scorer.score", "train.py:3", "resolved")] * 2


@pytest.mark.parametrize(
    ("import_line", "files"),
    [
        ("from rewards import score", {"rewards": "def score(completions): ...\n"}),
        (
            "from rewards import score as score",
            {"rewards": "from core import score\n", "core": "def score(c): ...\n"},
        ),
        (
            "from pkg import score",
            {"pkg.__init__": "from .inner import score\n", "pkg.inner": "def score(c): ...\n"},
        ),
        ("from lib import score", {"src.lib": "def score(completions): ...\n"}),
        ("from deep.rewards import score", {"code.deep.rewards": "def score(completions): ...\n"}),
        ("from rewards import FUNCS as score", {"rewards": "def score(c): ...\nFUNCS = [score]\n"}),
    ],
)
def test_imports_are_followed(tmp_path: Path, import_line: str, files: dict[str, str]) -> None:
    """Siblings, re-exports, packages, ``src`` layouts, the only module of that name, lists in other modules."""
    found = rewards(tmp_path, f"{IMPORT}{import_line}\nGRPOTrainer(m, reward_funcs=score)\n", **files)

    assert [(r.target.rpartition(".")[2], r.target_line, r.sure) for r in found] == [("score", 1, "resolved")]


def test_a_function_outside_the_checkout_keeps_its_name(tmp_path: Path) -> None:
    """TRL's own rewards are not followed."""
    train = (
        IMPORT
        + "from trl.rewards import think_format_reward\nGRPOTrainer(m, reward_funcs=think_format_reward)\n"
    )

    assert targets(tmp_path, train) == [("trl.rewards.think_format_reward", "", "resolved")]


def test_a_reward_model_is_named_and_gets_text(tmp_path: Path) -> None:
    """TRL tokenizes for it."""
    (found,) = rewards(tmp_path, IMPORT + "GRPOTrainer(m, reward_funcs='org/reward-model')\n")

    assert (found.target, found.payload, found.tensors) == ("org/reward-model", ("list[text]",), False)


@pytest.mark.parametrize(
    ("signature", "payload", "tensors"),
    [
        ("completions", "list[text]", False),
        ("completions: list[str]", "list[str]", False),
        ("completions: 'list[list[dict[str, str]]]'", "list[list[dict[str, str]]]", False),
        ("completions: torch.Tensor", "torch.Tensor", True),
        ("**kwargs", "list[text]", False),
    ],
)
def test_what_the_completions_are(tmp_path: Path, signature: str, payload: str, *, tensors: bool) -> None:
    """By annotation, else by TRL's contract."""
    train = f"import torch\n{IMPORT}def score({signature}): ...\nGRPOTrainer(m, reward_funcs=score)\n"

    (found,) = rewards(tmp_path, train)

    assert (found.payload, found.tensors) == ((payload,), tensors)


def test_a_subclass_of_the_trainer_counts(tmp_path: Path) -> None:
    """Also where it passes its rewards to ``super().__init__``."""
    train = IMPORT + (
        "class Mine(GRPOTrainer):\n    def __init__(self, model):\n"
        "        super().__init__(model, reward_funcs=[self.score])\n"
        "    def score(self, completions): ...\n"
        "def other(completions): ...\nMine(m, reward_funcs=other)\n"
    )

    assert [name for name, _, _ in targets(tmp_path, train)] == ["train.Mine.score", "train.other"]


def test_other_trainers_with_reward_functions_count_and_those_without_do_not(tmp_path: Path) -> None:
    """RLOO has them, SFT has none."""
    train = (
        "from trl import RLOOTrainer, SFTTrainer\ndef score(completions): ...\n"
        "RLOOTrainer(m, reward_funcs=score)\nSFTTrainer(m, args)\n"
    )
    (tmp_path / "train.py").write_text(train)

    found = scan(tmp_path)

    assert [t.target for t in found.of("trainer")] == ["trl.RLOOTrainer"]
    assert [r.target for r in found.of("reward_function")] == ["train.score"]


def test_a_parameter_is_followed_to_its_callers(tmp_path: Path) -> None:
    """``train(funcs)`` is called with ``[score]``."""
    train = IMPORT + (
        "def train(funcs):\n    GRPOTrainer(m, reward_funcs=funcs)\n"
        "def score(completions): ...\ntrain([score])\n"
    )

    assert [name for name, _, _ in targets(tmp_path, train)] == ["train.score"]


def test_what_can_not_be_followed_is_listed_by_its_words(tmp_path: Path) -> None:
    """A name from nowhere: by name, no definition, payload unknown."""
    (found,) = rewards(
        tmp_path, IMPORT + "import registry\nGRPOTrainer(m, reward_funcs=registry.lookup(cfg))\n"
    )

    assert (found.target, found.target_file, found.sure) == ("registry.lookup", "", "by name")
    assert found.tensors is None
