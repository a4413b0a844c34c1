"""Claims: what the user says, compiled to a registered test with typed parameters before any result is read.

A test is a function ``(evidence, *, parameters) -> Judged`` registered with :func:`claim_test`; its signature
is its interface and its docstring its documentation (``dipstick claims list``). Values are words: those of a
claims file are read as they stand there, so that both ways in have the same rules.
"""

from __future__ import annotations

import inspect
import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from dipstick.errors import UsageError
from dipstick.judgement import Claim, Receipt, Verdict
from dipstick.phases import PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dipstick.verdicts.evidence import Evidence

Judged = tuple[Verdict, tuple[Receipt, ...]]
MOST_CLAIMS = 200
MOST_BYTES = 1 << 18
"""A file of 200 claims takes a tenth of this; more would be read for seconds."""
MOST_WORDS = 2000
"""Characters of a claim in words; splitting a megabyte of them takes a minute."""
MOST_SAID = 60
"""Characters of a claim that an error repeats."""
CHOICES: dict[str, tuple[str, ...]] = {
    "phase": PHASES,
    "change": ("faster", "more_slots", "cap_jobs", "balance", "overlap_reward"),
    "of": ("step", "dip", "dips_per_minute", "longest_job", "total_work", "makespan", *PHASES),
}
"""Parameters that take one of a list of words, whatever the test."""
LEAST: dict[str, float] = {"rank": 0, "times": 0.001, "at_least": 0, "at_most": 0, "hollow_below": 0}
"""Smallest values: nothing is minus two times faster."""


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
    known, where = TESTS.get(test), f"claim {_short(say)}"
    if known is None:
        raise UsageError(
            f"there is no test {_short(test)}", where=where, fix=f"tests: {', '.join(sorted(TESTS))}"
        )
    names = {p.name for p in known.parameters}
    unknown = sorted(set(given) - names)
    if unknown:
        valid = ", ".join(sorted(names)) or "none"
        raise UsageError(
            f"{test} has no parameter {_short(unknown[0])}", where=where, fix=f"parameters: {valid}"
        )
    values = {p.name: _value(p, given, say, test) for p in known.parameters}
    return Said(say, test, values)


def _short(text: str) -> str:
    """The text in quotes, cut: an error that repeats a megabyte helps nobody."""
    return repr(text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]}…")


def _value(parameter: Parameter, given: Mapping[str, Any], say: str, test: str) -> Any:
    name, where = parameter.name, f"claim {_short(say)}"
    if name not in given:
        if parameter.required:
            raise UsageError(f"{test} needs {name}=...", where=where, fix=f"dipstick claims show {test}")
        return parameter.default
    value = given[name]
    try:
        converted = _as(parameter.kind, value)
    except (ValueError, TypeError, OverflowError) as error:
        what = f"{name}={value if isinstance(value, int | float) else _short(str(value))}"
        raise UsageError(
            f"{what} is no {parameter.kind.__name__}", where=where, fix=f"dipstick claims show {test}"
        ) from error
    if converted not in CHOICES.get(name, (converted,)):
        fix = f"{name}: {', '.join(CHOICES[name])}"
        raise UsageError(f"there is no {name} {_short(str(converted))}", where=where, fix=fix)
    if name in LEAST and converted < LEAST[name]:
        raise UsageError(f"{name}={converted} is below {LEAST[name]:g}", where=where)
    return converted


def _as(kind: type, value: Any) -> Any:
    """The value as the parameter's type; raises ValueError, TypeError or OverflowError where it is none."""
    if isinstance(value, bool) and kind is not bool:
        raise TypeError(value)
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if str(value).lower() not in words:
            raise ValueError(value)
        return words[str(value).lower()]
    if kind is str and not isinstance(value, str):
        raise TypeError(value)
    converted = kind(value)
    if kind is float and not math.isfinite(converted):  # NaN judges nothing, infinity everything
        raise ValueError(value)
    if kind is int and not isinstance(value, str) and converted != value:  # 2.7 is not 2
        raise ValueError(value)
    return converted


def from_words(text: str) -> Said:
    """A claim of the command line: ``phase_longest phase=reward``, after an optional ``what is said:``.

    Example: ``"rewards cost most: paid_most_for phase=reward"``.
    """
    say, colon, rest = text.rpartition(": ")
    if len(text) > MOST_WORDS:
        raise UsageError(f"longer than {MOST_WORDS} characters", where=f"claim {_short(text)}")
    try:
        words = shlex.split(rest if colon else text)
    except ValueError as error:
        raise UsageError(f"unbalanced quotes: {error}", where=f"claim {_short(text)}") from error
    if not words:
        raise UsageError(
            "an empty claim", where=f"claim {_short(text)}", fix="TEST name=value ...; dipstick claims list"
        )
    pairs = [word.partition("=") for word in words[1:]]
    bad = [name for name, equals, _ in pairs if not equals]
    if bad:
        raise UsageError(
            f"{_short(bad[0])} is not name=value", where=f"claim {_short(text)}", fix="TEST name=value ..."
        )
    return compiled(say or text, words[0], _once([(n, v) for n, _, v in pairs], f"claim {_short(text)}"))


def _once(pairs: Sequence[tuple[Any, Any]], where: str) -> dict[Any, Any]:
    """The pairs as a dict; a name that is given twice is an error, not the last one."""
    names = [str(name) for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{_short(twice)} is given twice", where=where)
    return dict(pairs)


def from_yaml(text: str, where: str) -> list[Said]:
    """The claims of a file: a list of ``{say: ..., test: ..., parameter: value}``.

    Nothing is built from the file but strings: every scalar is read as it stands there, and the nested aliases
    with which a few lines can stand for gigabytes are no scalars.

    Raises:
        UsageError: No YAML, no list, too large, or a claim that does not compile.
    """
    import yaml  # noqa: PLC0415 - only for files

    check_size(len(text), where)
    try:
        node = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"not readable as YAML: {_problem(error)}", where=where) from error
    if not isinstance(node, yaml.SequenceNode) or len(node.value) > MOST_CLAIMS:
        raise UsageError(
            f"expected a list of at most {MOST_CLAIMS} claims", where=where, fix='- {say: "...", test: NAME}'
        )
    return [_from_node(row, f"{where}, claim {i}") for i, row in enumerate(node.value, 1)]


def check_size(size: int, where: str) -> None:
    """Refuse what is too large for a claims file.

    Raises:
        UsageError: More than 256 KiB.
    """
    if size > MOST_BYTES:
        raise UsageError(f"the file is larger than {MOST_BYTES >> 10} KiB", where=where)


def _problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f" in line {mark.line + 1}" if mark is not None else ""
    return (getattr(error, "problem", None) or str(error).partition("\n")[0] or "nested too deeply") + place


def _from_node(node: Any, where: str) -> Said:
    """One claim from a YAML mapping whose keys and values are plain words."""
    import yaml  # noqa: PLC0415 - only for files

    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    if not pairs or not all(isinstance(part, yaml.ScalarNode) for pair in pairs for part in pair):
        raise UsageError("a claim is {say: ..., test: NAME, ...}", where=where, fix="dipstick claims list")
    row = _once([(name.value, value.value) for name, value in pairs], where)
    if not row.get("test"):
        raise UsageError("a claim is {say: ..., test: NAME, ...}", where=where, fix="dipstick claims list")
    given = {name: value for name, value in row.items() if name not in {"say", "test"}}
    try:
        return compiled(row.get("say") or row["test"], row["test"], given)
    except UsageError as error:
        raise UsageError(error.what, where=where, fix=error.fix) from error


def judge(evidence: Evidence, said: Sequence[Said]) -> tuple[Claim, ...]:
    """Run the compiled claims."""
    return tuple(_judge(evidence, one) for one in said)


def _judge(evidence: Evidence, said: Said) -> Claim:
    verdict, receipts = TESTS[said.test].run(evidence, **said.parameters)
    return Claim(said.say, said.test, said.parameters, verdict, receipts)
