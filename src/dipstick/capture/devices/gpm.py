"""GPM: the profiling counters of Hopper and newer, as means between two samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from dipstick.capture.devices import CounterReading

if TYPE_CHECKING:
    from dipstick.capture.devices import Clock
    from dipstick.capture.devices.calls import Calls

METRICS: Final[dict[str, int]] = {
    "gr_active_pct": 1, "sm_active_pct": 2, "sm_occupancy_pct": 3, "tensor_active_pct": 5, "dram_active_pct": 10,
    "pcie_tx_mib_s": 20, "pcie_rx_mib_s": 21, "nvlink_rx_mib_s": 60, "nvlink_tx_mib_s": 61,
}  # fmt: skip
"""``NVML_GPM_METRIC_*`` by our column: GRAPHICS_UTIL, SM_UTIL, SM_OCCUPANCY, ANY_TENSOR_UTIL, DRAM_BW_UTIL,
PCIE_TX/RX_PER_SEC, NVLINK_TOTAL_RX/TX_PER_SEC (the last four in MiB/s)."""

SHORTEST_NS: Final = 100_000_000
"""Two samples must be this far apart (NVML's documentation of ``nvmlGpmMetricsGet``)."""
LONGEST_NS: Final = 10_000_000_000
"""A mean over more than this says nothing about phases: the pair is thrown away."""


class Gpm:
    """Two samples of one GPU that take turns: the mean between the older and the newer is one reading."""

    def __init__(self, calls: Calls, gpu: int, handle: Any, clock: Clock) -> None:
        self._calls = calls
        self._gpu = gpu
        self._handle = handle
        self._clock = clock
        support = calls.get(gpu, "nvmlGpmQueryDeviceSupport", handle)
        self.supported = bool(support is not None and support.isSupportedDevice)
        self._samples = [calls.get(gpu, "nvmlGpmSampleAlloc") for _ in range(2 * self.supported)]
        self.supported &= None not in self._samples
        self._taken_ns: int | None = None
        self._query: Any = self._make_query() if self.supported else None

    def _make_query(self) -> Any:
        """The request, filled once and used again: it is 19 kB."""
        query = self._calls.binding.c_nvmlGpmMetricsGet_t()
        query.version = self._calls.binding.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics = len(METRICS)
        for slot, metric in enumerate(METRICS.values()):
            query.metrics[slot].metricId = metric
        return query

    def read(self) -> CounterReading | None:
        """The means since the last call; None at first, too soon, or where there is no GPM."""
        before, now = self._taken_ns, self._clock.mono()
        if not self.supported or (before is not None and now - before < SHORTEST_NS):
            return None
        older, newer = self._samples
        if self._calls.get(self._gpu, "nvmlGpmSampleGet", self._handle, newer) is None:
            return None
        self._samples, self._taken_ns = [newer, older], now
        if before is None or now - before > LONGEST_NS:
            return None
        return self._means(older, newer, before, now)

    def _means(self, older: Any, newer: Any, before: int, now: int) -> CounterReading | None:
        query = self._query
        query.sample1, query.sample2 = older, newer
        if self._calls.get(self._gpu, "nvmlGpmMetricsGet", query) is None:
            return None
        values = {name: _value(query.metrics[slot]) for slot, name in enumerate(METRICS)}
        return CounterReading(now, now - before, **values)

    def close(self) -> None:
        """Free both samples."""
        for sample in self._samples if self.supported else ():
            self._calls.get(self._gpu, "nvmlGpmSampleFree", sample)
        self.supported = False


def _value(metric: Any) -> float | None:
    """A metric that NVML filled in; each has its own return code, and a NaN is no measurement."""
    return metric.value if metric.nvmlReturn == 0 and math.isfinite(metric.value) else None
