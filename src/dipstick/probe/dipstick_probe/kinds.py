"""What kind of thing a value is: qualified type names, nested a little, never a value.

Nothing of the object runs: no ``__repr__``, ``__len__``, ``__iter__`` or ``__getattr__`` of a foreign type is called.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEEPEST = 3
WIDEST = 8
"""Items of a container, and attributes of an object, that are looked at."""
LONGEST = 200

_names: dict[type, str] = {}


class Kinds:
    """What is known of some values that cross a border.

    Attributes:
        text: ``list[str]``, ``app.Task{int, numpy.ndarray}``, ``torch.Tensor[cuda]``; joined by ``, ``.
        devices: ``host`` and, for tensors there, ``cuda``.
        is_shared: A shared memory block or a tensor in shared memory is among them.
    """

    __slots__ = ("devices", "is_shared", "text")

    def __init__(self) -> None:
        self.text = ""
        self.devices: set[str] = {"host"}
        self.is_shared = False

    def of(self, value: Any, depth: int = DEEPEST) -> str:
        """The kind of one value, nested down to ``depth`` levels."""
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str, bytes, bytearray):
            return _name(kind)
        if kind in (list, tuple, set, frozenset):
            return self._container(kind, list(_first(value)), depth)
        if kind is dict:
            return self._mapping(list(_first(value.items())), depth)
        if kind.__module__.startswith("torch") and _is_tensor(value):
            return self._tensor(value, kind)
        if kind.__module__ == "multiprocessing.shared_memory":
            self.is_shared = True
        return self._object(value, kind, depth)

    def _container(self, kind: type, items: list[Any], depth: int) -> str:
        if not items or depth <= 0:
            return _name(kind)
        return f"{_name(kind)}[{self._set_of(items, depth - 1)}]"

    def _mapping(self, items: list[tuple[Any, Any]], depth: int) -> str:
        if not items or depth <= 0:
            return "dict"
        keys, values = ([item[i] for item in items] for i in (0, 1))
        return f"dict[{self._set_of(keys, 0)}, {self._set_of(values, depth - 1)}]"

    def _tensor(self, value: Any, kind: type) -> str:
        """A tensor says where it lives; one in shared memory crosses as a handle."""
        torch = sys.modules["torch"]
        device = str(torch.Tensor.device.__get__(value).type)
        self.devices.add("cuda" if device == "cuda" else "host")
        self.is_shared = self.is_shared or (device == "cpu" and bool(torch.Tensor.is_shared(value)))
        return f"{_name(kind)}[{device}]"

    def _object(self, value: Any, kind: type, depth: int) -> str:
        """An object's name and the kinds in its own ``__dict__``; nothing of its class runs."""
        try:
            fields = object.__getattribute__(value, "__dict__")
        except Exception:  # no __dict__, or a hostile one
            fields = None
        if depth <= 1 or type(fields) is not dict or not fields or issubclass(kind, type) or callable(value):
            return _name(kind)
        return f"{_name(kind)}{{{self._set_of(list(_first(fields.values())), depth - 2)}}}"

    def _set_of(self, items: list[Any], depth: int) -> str:
        return ", ".join(dict.fromkeys(self.of(item, depth) for item in items))


def kinds_of(values: Any) -> Kinds:
    """The kinds of a call's arguments, or of one value.

    ``([1, 2], "a")`` gives ``list[int], str``.

    Args:
        values: A tuple of arguments; anything else is one value.
    """
    found = Kinds()
    try:
        items = values[: 2 * WIDEST] if type(values) is tuple else (values,)
        found.text = ", ".join(dict.fromkeys(found.of(item) for item in items))[:LONGEST]
    except Exception:  # a type with hostile attributes: nothing is known of it
        found.text = found.text or "unknown"
    return found


def _name(kind: type) -> str:
    known = _names.get(kind)
    if known is None:
        if len(_names) > 1024:  # noqa: PLR2004 - classes made in a loop must not be kept alive
            _names.clear()
        module, name = kind.__module__, kind.__qualname__
        plain = all(isinstance(part, str) for part in (module, name))  # a metaclass may say anything
        known = (name if module == "builtins" else f"{module}.{name}") if plain else "unknown"
        _names[kind] = known = "None" if kind is type(None) else str.__str__(known)
    return known


def _first(items: Any) -> Any:
    """The first few items of an exact builtin container."""
    for count, item in enumerate(items):
        if count >= WIDEST:
            return
        yield item


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return isinstance(tensor, type) and issubclass(type(value), tensor)
