"""Hooks go on, say what did not fit and why, and come off again."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.probe.dipstick_probe import patch
from dipstick.probe.dipstick_probe.patch import Target, install, uninstall
from dipstick.probe.dipstick_probe.state import STATE, drop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def shouted(original: Callable[..., Any]) -> Callable[..., Any]:
    """A maker whose effect can be seen."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return f"{original(*args, **kwargs)}!"

    return wrapper


class Base:
    """With one method that a subclass inherits."""

    def inherited(self) -> str:
        return "inherited"


class Model(Base):
    """With every kind of method."""

    constant = 5

    def method(self, x: int, *, scale: int = 1) -> str:
        return f"method{x * scale}"

    @staticmethod
    def static(x: int) -> str:
        return f"static{x}"

    @classmethod
    def of(cls, x: int) -> str:
        return f"{cls.__name__}{x}"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module with a version, a function, a builtin and two classes; hooks are off again afterwards."""
    made = ModuleType("pretend.deep")
    made.function = lambda x: f"function{x}"  # type: ignore[attr-defined]
    made.Model, made.Sub, made.builtin = Model, type("Sub", (Model,), {}), len  # type: ignore[attr-defined]
    package = ModuleType("pretend")
    package.__version__ = "1.2.3"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pretend", package)
    yield made
    uninstall()
    STATE.versions.clear()
    STATE.dirty = False


@pytest.fixture
def rows(module: ModuleType) -> Iterator[list[dict[str, Any]]]:
    """What the hooks said, as the file has it."""
    del module  # set up before, taken down after
    said: list[dict[str, Any]] = []

    def put(row: Any) -> None:
        said.extend(json.loads(row[0](row))["hooks"])

    STATE.put = put
    yield said
    STATE.put = drop


def test_every_kind_of_function_is_wrapped_as_what_it_is(
    module: ModuleType, rows: list[dict[str, Any]]
) -> None:
    """Static and class methods stay static and class methods, inherited ones are wrapped where they are asked for."""
    targets = ["function", "Model.method", "Model.static", "Model.of", "Sub.inherited"]
    install(module, [Target(target, shouted) for target in targets])
    m, sub = Model(), module.Sub()
    found = (
        module.function(1),
        m.method(2, scale=2),
        m.static(3),
        Model.static(3),
        Model.of(4),
        sub.inherited(),
        m.inherited(),
    )
    assert found == ("function1!", "method4!", "static3!", "static3!", "Model4!", "inherited!", "inherited")
    assert [row["bound"] for row in rows] == [True] * 5


@pytest.mark.usefixtures("rows")
def test_off_again_everything_is_the_very_object_it_was(module: ModuleType) -> None:
    """Own attributes are restored, inherited ones are inherited again."""
    before = {name: inspect.getattr_static(Model, name) for name in ("method", "static", "of", "inherited")}
    function = module.function
    install(
        module,
        [
            Target(t, shouted)
            for t in ("function", "Model.method", "Model.static", "Model.of", "Model.inherited")
        ],
    )
    uninstall()
    after = {name: inspect.getattr_static(Model, name) for name in before}
    assert (after, module.function) == (before, function)
    assert "inherited" not in vars(Model)


def test_what_does_not_fit_is_left_alone_and_said(module: ModuleType, rows: list[dict[str, Any]]) -> None:
    """Absent, no function, other parameters, no signature: each with the reason and the version seen."""
    targets = [
        Target("gone", shouted), Target("Model.gone", shouted), Target("Gone.method", shouted), Target("Model.constant", shouted),
        Target("Model", shouted), Target("Model.method", shouted, ("x", "temperature")), Target("Model.of", shouted, ("y",)),
    ]  # fmt: skip
    install(module, targets)
    assert [(row["target"].partition(":")[2], row["why"], row["version"]) for row in rows] == [
        ("gone", "absent", "1.2.3"),
        ("Model.gone", "absent", "1.2.3"),
        ("Gone.method", "no Gone", "1.2.3"),
        ("Model.constant", "is a int, not a function", "1.2.3"),
        ("Model", "is a type, not a function", "1.2.3"),
        ("Model.method", "takes (self, x, scale), not temperature", "1.2.3"),
        ("Model.of", "takes (cls, x), not y", "1.2.3"),
    ]
    assert Model().method(1) == "method1"


def test_a_maker_that_fails_binds_nothing(module: ModuleType, rows: list[dict[str, Any]]) -> None:
    """The target stays, the others are bound, and the row says which error it was, not what it said."""

    def broken(original: Callable[..., Any]) -> Callable[..., Any]:
        del original
        raise ZeroDivisionError("secret")

    install(module, [Target("Model.method", broken), Target("Model.static", shouted)])
    assert (Model().method(1), Model.static(1)) == ("method1", "static1!")
    assert [(row["bound"], row.get("why")) for row in rows] == [
        (False, "ZeroDivisionError while binding"),
        (True, None),
    ]


def test_a_wrapper_that_is_there_already_is_not_wrapped_again(
    module: ModuleType, rows: list[dict[str, Any]]
) -> None:
    """A name imported from where it was wrapped is a wrapper: bound, with one exclamation mark."""
    install(module, [Target("function", shouted)])
    install(module, [Target("function", shouted)])
    assert (module.function(1), [row["bound"] for row in rows]) == ("function1!", [True, True])


@pytest.mark.usefixtures("rows")
def test_somebody_elses_wrapper_on_top_stays(module: ModuleType) -> None:
    """Unsloth, say, wrapped us: taking ours off must not take theirs off."""
    install(module, [Target("function", shouted)])
    ours = module.function
    module.function = lambda x: f"<{ours(x)}>"  # type: ignore[attr-defined]
    theirs = module.function
    uninstall()
    assert (module.function is theirs, module.function(1)) == (True, "<function1!>")


def test_a_bound_row_says_where_the_function_is(module: ModuleType, rows: list[dict[str, Any]]) -> None:
    """File and line of the definition; a builtin has none."""
    install(module, [Target("Model.method", shouted), Target("builtin", shouted)])
    assert (rows[0]["file"], rows[0]["line"]) == (
        __file__,
        inspect.getsourcelines(Model.__dict__["method"].__wrapped__)[1],
    )
    assert "file" not in rows[1]


def test_a_module_without_targets_says_nothing(module: ModuleType, rows: list[dict[str, Any]]) -> None:
    """No empty row."""
    install(module, [])
    assert rows == []


@pytest.mark.parametrize("version", [None, 7])
def test_a_package_without_a_version_string(
    module: ModuleType, rows: list[dict[str, Any]], version: Any
) -> None:
    """The version is left out, never guessed."""
    sys.modules["pretend"].__version__ = version  # type: ignore[attr-defined]
    install(module, [Target("gone", shouted)])
    assert rows[0]["version"] is None


def test_a_package_whose_attributes_explode(
    module: ModuleType, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lazy package may run anything for ``__version__``."""

    class Exploding(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("lazy import failed")

    monkeypatch.setitem(sys.modules, "pretend", Exploding("pretend"))
    install(module, [Target("gone", shouted)])
    assert (rows[0]["why"], rows[0]["version"]) == ("absent", None)


@pytest.mark.usefixtures("module")
def test_the_version_is_asked_once() -> None:
    """And noted for the meta line."""
    assert (patch.version_of("pretend"), STATE.versions, STATE.dirty) == ("1.2.3", {"pretend": "1.2.3"}, True)
