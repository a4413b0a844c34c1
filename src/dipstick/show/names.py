"""Names that are nobody else's business, and what stands for each: the same one everywhere in a file.

Hosts become ``host1``, users ``user1``, command lines ``command1``, URLs ``url1``, addresses ``address1``. A path
becomes ``path1``, but for source files the last part stays, because a receipt is worth nothing without it:
``/home/ann/acme/train.py`` becomes ``folder1/train.py``, and a file of a well-known package keeps its place there
(``site-packages/trl/trainer/grpo_trainer.py``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dipstick.judgement import WEAKEST_FIRST
from dipstick.model import STATES
from dipstick.phases import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable

VOCABULARY: Final = frozenset({*PHASES, *STATES, *WEAKEST_FIRST, "all", "gpu", "job", "some", "work", "utilization", "reward_worker", "trainer", "engine"})  # fmt: skip
"""Words of ours: a host that is called like one is replaced where it is a host, not in running text."""

_GENERIC_USERS: Final = frozenset({"app", "data", "home", "jovyan", "ray", "root", "runner", "shared", "ubuntu", "user", "users", "work", "workspace"})  # fmt: skip
"""Accounts that name nobody; as words they may mean something else (Ray, data)."""

_PUBLIC: Final = frozenset({
    "accelerate", "concurrent", "datasets", "deepspeed", "joblib", "loky", "megatron", "multiprocessing", "nemo_rl", "openrlhf", "pebble",
    "peft", "ray", "sglang", "slime", "torch", "transformers", "trl", "verl", "vllm",
})  # fmt: skip
"""Packages whose files anybody can look up."""

_SHORTEST: Final = 3
"""A shorter host or user is replaced only where the whole field is its name: ``a`` is a word, too."""
_LONG_ENOUGH: Final = 6
"""The same for command lines and files."""
_SOURCE: Final = re.compile(r"\.(?:py|pyx|cu|cuh|c|cc|cpp|h|hpp|rs|ipynb|sh)$", re.IGNORECASE)
_PACKAGE: Final = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|python3\.\d+)/(?P<tail>(?P<package>\w+)[/.].*)$"
)
_OWNER: Final = re.compile(
    r"(?:^|[/\\])(?:home|Users|scratch|u)[/\\]+(?P<user>[^/\\\s:'\"]+)|~(?P<tilde>[\w.-]+)/"
)
_ADDRESS: Final = r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
_URL: Final = r"[A-Za-z][\w+.-]{0,20}://[^\s'\"<>`]+"
_PATH: Final = r"(?<![\w.)\]])(?:~[\w.-]*|[A-Za-z]:|\.{1,2})?(?:[/\\](?=[^\s/\\<>\"'`])[^\s/\\:'\"<>|,;()\[\]{}`]+)+[/\\]?"
"""From a slash that no word stands before (``/a/b``, ``~/a``, ``C:\\a``, ``./a``), so that ``and/or`` and ``1 / 2`` are none."""


class Names:
    """The names of one recording, and a function of text.

    Args:
        hosts: As recorded.
        files: Source files of spans, hand-overs and receipts.
        commands: Command lines.
        texts: Anything else that was recorded: users' names are looked for in their paths.
    """

    def __init__(
        self, hosts: Iterable[str], files: Iterable[str], commands: Iterable[str], texts: Iterable[str] = ()
    ) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._hosts = self._learn_hosts(hosts)
        known_files, known_commands = sorted({*files} - {""}), sorted({*commands} - {""})
        self._users = self._learn_users((*known_files, *known_commands, *texts))
        self._exact = {command: self._pseudonym("command", command) for command in known_commands}
        self._exact |= {file: self.file(file) for file in known_files}
        words = {
            host: new
            for host, new in self._hosts.items()
            if len(host) >= _SHORTEST and host not in VOCABULARY
        }
        self._words = words | {user: new for user, new in self._users.items() if len(user) >= _SHORTEST}
        self._pattern = self._compile()
        self._done: dict[str, str] = {}

    def host(self, name: str) -> str:
        """What stands for a host; an empty name stays empty."""
        return self._hosts.get(name.lower(), self.text(name))

    def file(self, path: str) -> str:
        """``folder1/train.py`` for ``/home/ann/acme/train.py``; the file's own name goes, too, if it holds a host or user."""
        package = _PACKAGE.search(path.replace("\\", "/"))
        if package and package["package"] in _PUBLIC:
            return f"site-packages/{package['tail']}"
        folder, _, name = path.replace("\\", "/").rpartition("/")
        if not _SOURCE.search(name):
            return self._pseudonym("path", path) if folder else self._whole(name, "path")
        shown = self._whole(name, "file")
        return f"{self._pseudonym('folder', folder)}/{shown}" if folder else shown

    def text(self, text: str) -> str:
        """The text with every name in it replaced."""
        if text in VOCABULARY or not text:
            return text
        if text not in self._done:
            self._done[text] = self._exact.get(text) or self._pattern.sub(self._stand_in, text)
        return self._done[text]

    def _whole(self, name: str, kind: str) -> str:
        """A file's name, if no host's or user's is in it."""
        low = name.lower()
        known = (word for word in (*self._hosts, *self._users) if len(word) >= _SHORTEST)
        return self._pseudonym(kind, name) if any(word in low for word in known) else name

    def _stand_in(self, match: re.Match[str]) -> str:
        found, kind = match[0], match.lastgroup or ""
        if kind == "exact":
            return self._exact[found]
        if kind == "word":
            return self._words[found.lower()]
        return self.file(found) if kind == "path" else self._pseudonym(kind, found)

    def _compile(self) -> re.Pattern[str]:
        """Longest first, so that ``node1.lab`` is not taken for ``node1``."""

        def any_of(names: Iterable[str]) -> str:
            return "|".join(re.escape(name) for name in sorted(names, key=lambda n: (-len(n), n))) or r"(?!)"

        edge, end = r"(?<![^\W_])", r"(?![^\W_])"
        groups = {
            "exact": any_of(name for name in self._exact if len(name) >= _LONG_ENOUGH),
            "url": _URL,
            "word": f"{edge}(?i:{any_of(self._words)}){end}",
            "address": _ADDRESS,
            "path": _PATH,
        }
        return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in groups.items()))

    def _pseudonym(self, kind: str, name: str) -> str:
        """``host1``, ``host2`` ... in the order in which they are met."""
        if (kind, name) not in self._given:
            number = sum(known == kind for known, _ in self._given) + 1
            self._given[kind, name] = f"{kind}{number}"
        return self._given[kind, name]

    def _learn_hosts(self, hosts: Iterable[str]) -> dict[str, str]:
        """``node1.lab.example`` and its first label ``node1`` are one host."""
        found: dict[str, str] = {}
        for host in sorted({h.lower() for h in hosts} - {""}):
            label = host.partition(".")[0]
            short = label if label and not label.isdigit() else host
            found[host] = self._pseudonym("host", short)
            found.setdefault(short, found[host])
        return found

    def _learn_users(self, texts: Iterable[str]) -> dict[str, str]:
        """Whose home directories the texts name."""
        names = {(m["user"] or m["tilde"]).lower() for text in texts for m in _OWNER.finditer(text)}
        named = sorted(names - _GENERIC_USERS - VOCABULARY)
        return {name: self._pseudonym("user", name) for name in named}
