"""System metrics of a store: numbers by GPU and meaning, into telemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from dipstick.importers.binding import MEANINGS, Binding, factor
from dipstick.importers.samples import Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dipstick.importers.base import Sink
    from dipstick.importers.options import Options

_BATCH: Final = 20_000
_TYPES: Final = {"t_ns": pl.Int64, "gpu": pl.Int64}


class GpuRows:
    """Takes rows of numbers by key.

    Args:
        sink: Where they go.
        options: Of the import.
        known: What a key is: its binding, with the GPU where it concerns one.
    """

    def __init__(self, sink: Sink, options: Options, known: Callable[[str], Binding]) -> None:
        self._sink, self._known = sink, known
        self._samples = Samples(sink, options)
        self._bindings: dict[str, Binding] = {}
        self._held: list[dict[str, Any]] = []

    def add(self, t_ns: int, values: Mapping[str, float]) -> None:
        """One row: all metrics of one moment."""
        by_gpu: dict[int, dict[str, Any]] = {}
        for key, value in values.items():
            if key not in self._bindings and len(self._bindings) < _BATCH:
                self._bindings[key] = self._known(key)
            binding = self._bindings.get(key)
            if binding is not None and binding.meaning and binding.gpu is not None:
                row = by_gpu.setdefault(binding.gpu, {"t_ns": t_ns, "gpu": binding.gpu})
                row[binding.meaning] = value * factor(binding)
        self._held += by_gpu.values()
        if len(self._held) >= _BATCH:
            self._write()

    def close(self) -> None:
        """Write what is left, bind the keys."""
        self._write()
        self._samples.finish()
        self._sink.bind(*self._bindings.values())

    def _write(self) -> None:
        held, self._held = self._held, []
        if held:
            names = dict.fromkeys(key for row in held for key in row if key in MEANINGS and key != "gpu")
            self._samples.add(pl.DataFrame(held, schema={**_TYPES, **dict.fromkeys(names, pl.Float64)}))
