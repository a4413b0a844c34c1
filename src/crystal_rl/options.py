"""Settings as command-line flags: one flag a field, typed by the field, grouped as the fields are."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from crystal_rl import settings
from crystal_rl.errors import UsageError

if TYPE_CHECKING:
    from crystal_rl.settings import Settings


DEVICES = Path("/dev")


def add_arguments(parser: argparse.ArgumentParser, groups: tuple[str, ...] = ()) -> None:
    """A flag for each setting of these groups (all by default), ``--preset`` and ``--config``."""
    parser.add_argument(
        "--preset", help="cpu, gpu, tiny (default: gpu where there is one, else cpu)", metavar="NAME"
    )
    parser.add_argument("--config", type=Path, help="YAML file of settings", metavar="FILE")
    made: dict[str, Any] = {}
    known = settings.types()
    for field in settings.fields():
        name = field.metadata["group"]
        if groups and name not in groups:
            continue
        group = made.get(name) or parser.add_argument_group(name)
        made[name] = group
        default = "" if field.default in ("", dataclasses.MISSING) else f" (default: {field.default})"
        flag = f"--{field.name.replace('_', '-')}"
        group.add_argument(
            flag,
            dest=field.name,
            default=None,
            help=field.metadata["help"].replace("%", "%%") + default,
            **_kind(known[field.name]),
        )


def _kind(wanted: Any) -> dict[str, Any]:
    if wanted is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(wanted) is Literal:
        return {"choices": get_args(wanted)}
    if get_origin(wanted) is dict:
        return {"action": "append", "metavar": "KEY=VALUE"}
    return {"type": wanted, "metavar": {int: "N", float: "X", str: "TEXT"}[wanted]}


def read(args: argparse.Namespace) -> Settings:
    """Settings from parsed flags: defaults, preset, file, flags.

    Raises:
        UsageError: A setting is unknown, of another type, or impossible.
    """
    known = [field.name for field in settings.fields()]
    flags = {name: getattr(args, name) for name in known if getattr(args, name, None) is not None}
    if "trl" in flags:
        flags["trl"] = dict(_pair(text) for text in flags["trl"])
    given = settings.read(args.config) if args.config else {}
    name = args.preset or given.pop("preset", None) or ("gpu" if has_gpu() else "cpu")
    return settings.merged(settings.preset(str(name)), given, flags)


def _pair(text: str) -> tuple[str, Any]:
    import yaml  # noqa: PLC0415 - only for --trl

    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        raise UsageError(f"--trl {text!r}", fix="--trl KEY=VALUE, as in --trl beta=0.04")
    return key, yaml.safe_load(value)


def has_gpu() -> bool:
    """Whether there is an NVIDIA GPU that we may use."""
    return visible_gpus() > 0


def visible_gpus() -> int:
    """GPUs of this host, as far as CUDA_VISIBLE_DEVICES lets us see them; without importing torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = len(list(DEVICES.glob("nvidia[0-9]*")))
    if visible is None:
        return there
    names = [name.strip() for name in visible.split(",")]
    return min(there, len([name for name in names if name and name != "-1"]))
