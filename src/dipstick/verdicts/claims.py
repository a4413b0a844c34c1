"""Claims: what the user says, compiled to a registered test with typed parameters before any result is read.

A test is a function ``(evidence, *, parameters) -> Judged`` registered with :func:`claim_test`; its signature
is its interface and its docstring its documentation (``dipstick claims list``).
"""

from __future__ import annotations

import inspect
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from dipstick.errors import UsageError
from dipstick.judgement import Claim, Receipt, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dipstick.verdicts.evidence import Evidence

Judged = tuple[Verdict, tuple[Receipt, ...]]
MOST_CLAIMS = 200
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a test; ``default`` is None where it must be given."""

    name: str
    kind: type
    default: Any
    required: bool


@dataclass(frozen=True, slots=True)
class ClaimTest:
    """A registered test."""

    name: str
    run: Callable[..., Judged]
    doc: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """A compiled claim: what was said, and the test and parameters that will judge it."""

    say: str
    test: str
    parameters: dict[str, Any]


TESTS: dict[str, ClaimTest] = {}


def claim_test(run: Callable[..., Judged]) -> Callable[..., Judged]:
    """Register a test under its function's name."""
    hints = get_type_hints(run, include_extras=False) if not _lazy(run) else _plain_hints(run)
    known = [p for p in inspect.signature(run).parameters.values() if p.kind is p.KEYWORD_ONLY]
    parameters = tuple(
        Parameter(p.name, hints[p.name], None if p.default is p.empty else p.default, p.default is p.empty)
        for p in known
    )
    TESTS[run.__name__] = ClaimTest(run.__name__, run, inspect.getdoc(run) or "", parameters)
    return run


def _lazy(run: Callable[..., Judged]) -> bool:
    """Annotations are strings, and some name types that only the type checker imports."""
    return any(isinstance(p.annotation, str) for p in inspect.signature(run).parameters.values())


def _plain_hints(run: Callable[..., Judged]) -> dict[str, type]:
    """Parameter types are str, float, int or bool: their names are enough."""
    plain: dict[str, type] = {"str": str, "float": float, "int": int, "bool": bool}
    return {p.name: plain.get(str(p.annotation), str) for p in inspect.signature(run).parameters.values()}


def compiled(say: str, test: str, given: Mapping[str, Any]) -> Said:
    """Check a claim against its test's signature.

    Raises:
        UsageError: Unknown test or parameter, a missing one, or a value of the wrong kind; lists what is valid.
    """
    known = TESTS.get(test)
    if known is None:
        raise UsageError(
            f"there is no test {test!r}", where=f"claim {say!r}", fix=f"tests: {', '.join(sorted(TESTS))}"
        )
    names = {p.name for p in known.parameters}
    unknown = sorted(set(given) - names)
    if unknown:
        valid = ", ".join(sorted(names)) or "none"
        raise UsageError(
            f"{test} has no parameter {unknown[0]!r}", where=f"claim {say!r}", fix=f"parameters: {valid}"
        )
    values = {p.name: _value(p, given, say, test) for p in known.parameters}
    return Said(say, test, values)


def _value(parameter: Parameter, given: Mapping[str, Any], say: str, test: str) -> Any:
    if parameter.name not in given:
        if parameter.required:
            raise UsageError(
                f"{test} needs {parameter.name}=...",
                where=f"claim {say!r}",
                fix=f"dipstick claims show {test}",
            )
        return parameter.default
    value = given[parameter.name]
    try:
        return _as(parameter.kind, value)
    except ValueError as error:
        kind = parameter.kind.__name__
        raise UsageError(
            f"{parameter.name}={value!r} is no {kind}",
            where=f"claim {say!r}",
            fix=f"dipstick claims show {test}",
        ) from error


def _as(kind: type, value: Any) -> Any:
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if str(value).lower() not in words:
            raise ValueError(value)
        return words[str(value).lower()]
    if kind is str and not isinstance(value, str):
        raise ValueError(value)
    converted = kind(value)
    if converted != converted:  # noqa: PLR0124 - NaN judges nothing
        raise ValueError(value)
    return converted


def from_words(text: str) -> Said:
    """A claim of the command line: ``phase_longest phase=reward``, after an optional ``what is said:``.

    Example: ``"rewards cost most: paid_most_for phase=reward"``.
    """
    say, colon, rest = text.rpartition(": ")
    try:
        words = shlex.split(rest if colon else text)
    except ValueError as error:
        raise UsageError(f"unbalanced quotes: {error}", where=f"claim {text!r}") from error
    if not words:
        raise UsageError(
            "an empty claim", where=f"claim {text!r}", fix="TEST name=value ...; dipstick claims list"
        )
    pairs = [word.partition("=") for word in words[1:]]
    bad = [name for name, equals, _ in pairs if not equals]
    if bad:
        raise UsageError(f"{bad[0]!r} is not name=value", where=f"claim {text!r}", fix="TEST name=value ...")
    return compiled(say or text, words[0], {name: value for name, _, value in pairs})


def from_yaml(text: str, where: str) -> list[Said]:
    """The claims of a file: a list of ``{say: ..., test: ..., parameter: value}``.

    Raises:
        UsageError: No YAML, no list, too large, or a claim that does not compile.
    """
    import yaml  # noqa: PLC0415 - only for files

    if len(text) > MOST_BYTES:
        raise UsageError("the file is larger than 1 MiB", where=where)
    try:
        rows = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"not readable as YAML: {str(error).splitlines()[0]}", where=where) from error
    if not isinstance(rows, list) or len(rows) > MOST_CLAIMS:
        raise UsageError(
            f"expected a list of at most {MOST_CLAIMS} claims", where=where, fix='- {say: "...", test: NAME}'
        )
    return [_from_row(row, f"{where}, claim {i}") for i, row in enumerate(rows, 1)]


def _from_row(row: Any, where: str) -> Said:
    if not isinstance(row, dict) or not isinstance(row.get("test"), str):
        raise UsageError("a claim is {say: ..., test: NAME, ...}", where=where, fix="dipstick claims list")
    given = {str(name): value for name, value in row.items() if name not in {"say", "test"}}
    return compiled(str(row.get("say", row["test"])), row["test"], given)


def judge(evidence: Evidence, said: Sequence[Said]) -> tuple[Claim, ...]:
    """Run the compiled claims."""
    return tuple(_judge(evidence, one) for one in said)


def _judge(evidence: Evidence, said: Said) -> Claim:
    verdict, receipts = TESTS[said.test].run(evidence, **said.parameters)
    return Claim(said.say, said.test, said.parameters, verdict, receipts)
