"""Putting wrappers on and taking them off again.

A hook module is a table: module to wait for -> targets. A target names an attribute, the wrapper to make, and the
parameters it relies on. What does not fit is left alone and reported, with the version seen.
"""

from __future__ import annotations

import inspect
import sys
from types import BuiltinFunctionType

from . import encode
from .state import STATE
from .wrappers import definition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any

    from .wrappers import Maker

MARK = "__dipstick__"
"""Attribute of a wrapper: what it wraps."""


class Target:
    """One attribute to wrap.

    Attributes:
        attr: Dotted path inside the module: ``GRPOTrainer._calculate_rewards``.
        make: Takes the original function, gives the wrapper.
        needs: Parameters that the wrapper reads; without them the target stays as it is.
    """

    __slots__ = ("attr", "make", "needs")

    def __init__(self, attr: str, make: Maker, needs: tuple[str, ...] = ()) -> None:
        self.attr = attr
        self.make = make
        self.needs = needs


class Misfit(Exception):  # noqa: N818 - not an error: the reason a target stays as it is
    """A target is not what the hook was written for."""


class _Bound:
    """A wrapper in place, and what to put back."""

    __slots__ = ("had_own", "name", "owner", "placed", "raw")

    def __init__(self, owner: Any, name: str, raw: Any, placed: Any, *, had_own: bool) -> None:
        self.owner = owner
        self.name = name
        self.raw = raw
        self.placed = placed
        self.had_own = had_own

    def remove(self) -> None:
        """Put the original back, unless somebody has wrapped the wrapper meanwhile (it is off by then)."""
        try:
            if vars(self.owner).get(self.name) is not self.placed:
                return
            if self.had_own:
                setattr(self.owner, self.name, self.raw)
            else:
                delattr(self.owner, self.name)
        except Exception:  # noqa: S110 - a module that is half gone: nothing to restore
            pass


_bound: list[_Bound] = []


def install(module: ModuleType, targets: Sequence[Target]) -> None:
    """Wrap what fits and write a ``hooks`` row that says what did and what did not."""
    rows = [_try(module, target) for target in targets]
    if rows:
        STATE.put((_hooks_line, module.__name__, rows))


def uninstall() -> None:
    """Take every wrapper off, last one first."""
    while _bound:
        _bound.pop().remove()


def replace(owner: Any, name: str, value: Any) -> None:
    """Set an attribute so that :func:`uninstall` restores it."""
    had_own = name in vars(owner)
    raw = vars(owner)[name] if had_own else None
    setattr(owner, name, value)
    _bound.append(_Bound(owner, name, raw, vars(owner).get(name, value), had_own=had_own))


def _try(module: ModuleType, target: Target) -> dict[str, Any]:
    row: dict[str, Any] = {"target": f"{module.__name__}:{target.attr}", "bound": False}
    try:
        original = _wrap(module, target)
    except Misfit as misfit:
        row["why"] = str(misfit)
    except Exception as error:  # fail open: whatever it is, the target stays as it was
        row["why"] = f"{type(error).__name__} while binding"
    else:
        row["bound"] = True
        where = definition(original)
        if where is not None:
            row["file"], row["line"] = where
    return row


def _wrap(module: ModuleType, target: Target) -> Callable[..., Any]:
    """Place the wrapper and return the original function."""
    owner, name, raw = _find(module, target.attr)
    function: Any = raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
    if getattr(function, MARK, None) is not None:
        return function.__wrapped__  # type: ignore[no-any-return] # our own wrapper, imported from where it was placed
    if not callable(function) or isinstance(raw, type):
        raise Misfit(f"is a {type(raw).__name__}, not a function")
    _check(function, target.needs)
    wrapper = target.make(function)
    setattr(wrapper, MARK, target.attr)
    replace(owner, name, _like(raw, owner, wrapper))
    return function  # type: ignore[no-any-return] # checked to be callable


def _like(raw: Any, owner: Any, wrapper: Any) -> Any:
    """The wrapper as what it replaces: a static or class method; a builtin in a class does not bind either."""
    if isinstance(raw, (staticmethod, classmethod)):
        return type(raw)(wrapper)
    if isinstance(owner, type) and isinstance(raw, BuiltinFunctionType):
        return staticmethod(wrapper)
    return wrapper


def _find(module: ModuleType, attr: str) -> tuple[Any, str, Any]:
    """The owner, the last name, and the raw attribute (a staticmethod object, not its function)."""
    *path, name = attr.split(".")
    owner: Any = module
    for part in path:
        owner = getattr(owner, part, None)
        if owner is None:
            raise Misfit(f"no {part}")
    try:
        return owner, name, inspect.getattr_static(owner, name)
    except AttributeError:
        raise Misfit("absent") from None


def _check(function: Callable[..., Any], needs: tuple[str, ...]) -> None:
    if not needs:
        return
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise Misfit("has no signature to check") from None
    missing = [name for name in needs if name not in parameters]
    if missing:
        raise Misfit(f"takes ({', '.join(parameters)}), not {', '.join(missing)}")


def version_of(package: str) -> str | None:
    """A package's version, from what is imported already. Runs on the writer's thread: no lazy import may start here."""
    known = STATE.versions.get(package)
    if known is not None:
        return known
    module = sys.modules.get(package)
    names = {} if module is None else vars(module)
    found = names.get("__version__") or (names.get("_objects") or {}).get(
        "__version__"
    )  # transformers' lazy module
    metadata = sys.modules.get("importlib.metadata")
    if not isinstance(found, str) and metadata is not None:
        try:
            found = metadata.version(package)
        except Exception:  # not installed under this name
            found = None
    if isinstance(found, str):
        STATE.versions[package] = str.__str__(found)
        STATE.dirty = True
        return STATE.versions[package]
    return None


def _hooks_line(row: tuple[Any, str, list[dict[str, Any]]]) -> str:
    """``(_hooks_line, module, rows)``: encoded late, when the package knows its version."""
    _, module, rows = row
    try:
        version = version_of(module.partition(".")[0])
    except Exception:  # a package's __getattr__ may do anything
        version = None
    return encode.line((None, "hooks", {"hooks": [{**each, "version": version} for each in rows]}))
