"""Types that crossed: qualified names, nested a little, never a value."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from multiprocessing.shared_memory import SharedMemory
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dipstick.probe.dipstick_probe.kinds import LONGEST, kinds_of
from test_probe_encode import Hostile

HERE = __name__


@dataclass
class Task:
    """What a user might send to a worker."""

    name: str = "secret name"
    atoms: list[float] = field(default_factory=lambda: [1.5])


class Slotted:
    """An object without a ``__dict__``."""

    __slots__ = ("x",)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), ""),
        ((1, "a", 2), "int, str"),
        ((["x", "y"],), "list[str]"),
        (([1, "x", None],), "list[int, str, None]"),
        (({"k": [1.0]},), "dict[str, list[float]]"),
        (([],), "list"),
        (([[[[1]]]],), "list[list[list[list]]]"),
        ((Task(),), f"{HERE}.Task{{str, list[float]}}"),
        (([Task()],), f"list[{HERE}.Task{{str, list}}]"),
        ((Slotted(),), f"{HERE}.Slotted"),
        ((len,), "builtin_function_or_method"),
        ((Task,), "type"),
        (("one value, not a tuple of arguments",), "str"),
    ],
)
def test_names_of_arguments(arguments: tuple[Any, ...], text: str) -> None:
    """Each kind once, in order; containers name what is in them, objects the kinds of their fields."""
    assert kinds_of(arguments).text == text


def test_no_value_is_ever_named() -> None:
    """Strings, numbers and field names of a payload stay out."""
    found = kinds_of((Task("patient 7"), {"patient 8": "patient 9"}, "patient 10", 4711)).text
    assert "patient" not in found
    assert "4711" not in found


def test_no_code_of_a_value_runs() -> None:
    """Not its ``__repr__``, ``__len__``, ``__iter__``, ``__getattr__`` or ``__class__``."""
    assert kinds_of((Hostile(), [Hostile()], {"a": Hostile()})).text == (
        "test_probe_encode.Hostile, list[test_probe_encode.Hostile], dict[str, test_probe_encode.Hostile]"
    )


def test_a_type_with_a_name_that_is_no_string() -> None:
    """A metaclass may answer anything to ``__module__``."""

    class Meta(type):
        @property
        def __module__(cls) -> Any:  # type: ignore[override] # hostile
            return 42

    found = kinds_of((1, Meta("Odd", (), {})()))
    assert found.text == "unknown"


def test_a_long_list_of_kinds_is_cut() -> None:
    """200 characters, and 16 arguments, are looked at."""
    many = tuple(type(f"LongName{i:04}" * 5, (), {})() for i in range(100))
    assert len(kinds_of(many).text) == LONGEST


def test_shared_memory_is_noticed() -> None:
    """A block crosses as its name: nothing is copied, and the hand-over says so."""
    block = SharedMemory(create=True, size=16)
    try:
        found = kinds_of(([block],))
        assert (found.is_shared, "multiprocessing.shared_memory.SharedMemory" in found.text) == (True, True)
    finally:
        block.close()
        block.unlink()


class FakeTensor:
    """Stands for ``torch.Tensor``: its device is read through the class, not the instance."""

    def __init__(self, where: str, *, shared: bool = False) -> None:
        self._where = where
        self._shared = shared

    @property
    def device(self) -> SimpleNamespace:
        return SimpleNamespace(type=self._where)

    def is_shared(self) -> bool:
        return self._shared


@pytest.fixture
def tensor(monkeypatch: pytest.MonkeyPatch) -> type[FakeTensor]:
    """A torch that has nothing but a tensor class."""
    torch = ModuleType("torch")
    torch.Tensor = FakeTensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(FakeTensor, "__module__", "torch")
    return FakeTensor


def test_a_tensor_says_where_it_lives(tensor: type[FakeTensor]) -> None:
    """On the host, on a GPU (a CUDA handle crosses), or in shared memory."""
    host, cuda, shared = (kinds_of((t,)) for t in (tensor("cpu"), tensor("cuda"), tensor("cpu", shared=True)))
    assert (host.text, host.devices, host.is_shared) == ("torch.FakeTensor[cpu]", {"host"}, False)
    assert (cuda.text, cuda.devices) == ("torch.FakeTensor[cuda]", {"host", "cuda"})
    assert shared.is_shared
