"""Who this process is: host, rank, command line without secrets. Runs at every start, so it imports next to nothing."""

from __future__ import annotations

import os
import sys

from .state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

HIDDEN = "***"
SECRET_WORDS = ("key", "token", "secret", "password", "passwd", "passphrase", "pwd", "credential", "auth")
SECRET_STARTS = (
    "hf_", "sk-", "sk_", "pk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "wandb_v1_", "nvapi-",
    "r8_", "AKIA", "ASIA", "eyJ",
)  # fmt: skip
LONGEST = 512
MOST_ARGUMENTS = 64


def describe(start_ns: int) -> dict[str, Any]:
    """The fields of the ``meta`` line."""
    return {
        "host": host(), "pid": os.getpid(), "ppid": os.getppid(), "start": start_ns, "rank": STATE.rank,
        "local_rank": number("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
        "world_size": number("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
        "python": "{}.{}.{}".format(*sys.version_info[:3]), "argv": list(scrubbed(arguments())),
        "versions": dict(STATE.versions), "role": STATE.role() or None,
    }  # fmt: skip


def host() -> str:
    """The node's name."""
    return os.uname().nodename


def rank() -> int | None:
    """The launcher's word: torchrun, accelerate and deepspeed set RANK, mpirun its own names."""
    return number("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def number(*names: str) -> int | None:
    """The first of these environment variables that holds a small number."""
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit() and len(text) < 10:  # noqa: PLR2004 - a rank, not a hostile integer
            return int(text)
    return None


def arguments() -> list[str]:
    """The command line as the process was started with it."""
    found = getattr(sys, "orig_argv", None)  # Python 3.10+
    if found:
        return list(found)
    try:
        with open("/proc/self/cmdline", "rb") as file:  # pathlib would cost every start 5 ms
            return [part.decode("utf-8", "replace") for part in file.read(1 << 16).split(b"\0")[:-1]]
    except OSError:
        return list(getattr(sys, "argv", []))


def scrubbed(command: list[str]) -> Iterator[str]:
    """The arguments without what looks like a secret: values of secret flags, credentials in URLs, known token forms.

    ``--api-key abc HF_TOKEN=x https://me:pw@host/a`` becomes ``--api-key *** HF_TOKEN=*** https://***@host/a``.
    Code after ``-c`` is dropped whole: it may hold anything.
    """
    hide_next = is_code = False
    for argument in command[:MOST_ARGUMENTS]:
        if is_code or (hide_next and not argument.startswith("-")):
            yield HIDDEN
            hide_next = is_code = False
            continue
        name, equals, value = argument.partition("=")
        is_secret = _is_secret(name)
        hide_next = is_secret and not equals and name.startswith("-")
        is_code = argument == "-c"
        yield f"{name}={HIDDEN}"[:LONGEST] if is_secret and equals else _without_tokens(argument, value)


def _is_secret(name: str) -> bool:
    words = name.lower().replace("-", "_").replace(".", "_").split("_")
    return any(word in SECRET_WORDS or word.rstrip("s") in SECRET_WORDS or word == "apikey" for word in words)


def _without_tokens(argument: str, value: str) -> str:
    if argument.startswith(SECRET_STARTS) or value.startswith(SECRET_STARTS):
        return HIDDEN
    scheme, found, rest = argument.partition("://")
    if found and any(_is_secret(part.partition("=")[0]) for part in rest.replace("?", "&").split("&")[1:]):
        rest = rest.partition("?")[0] + "?" + HIDDEN
    place, at, tail = rest.partition("@")
    if found and at and "/" not in place:
        rest = f"{HIDDEN}@{tail}"
    return (scheme + found + rest)[:LONGEST]
