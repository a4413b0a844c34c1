"""The task runner: lint, types, tests. `scripts/test` makes .venv and calls it; nox adds no environments of its own."""

from __future__ import annotations

import sys

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.stop_on_first_error = False


def _python(session: nox.Session, *arguments: str) -> None:
    session.run(sys.executable, "-m", *arguments, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: every rule, and the formatter's opinion."""
    _python(session, "ruff", "check", ".")
    _python(session, "ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict, over source, tests, benchmarks and scripts."""
    _python(session, "mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Pytest; arguments after ``--`` go to it."""
    _python(session, "pytest", *session.posargs)
