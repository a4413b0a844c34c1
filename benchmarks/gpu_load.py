"""Known loads on one GPU, each for a few seconds inside a span of its name: what a recording of them must show.

    dipstick run -o RUN -- python benchmarks/gpu_load.py [seconds a load]

Needs torch, or cupy, for loads; without either it only idles and says so. traces/README.md has the readings of an
H200: idle 0 % and 118-135 W; matmul 99 % and 96 % SM; device copies 99 % and 88 % DRAM; host copies 100 % and no SM
but 56 GiB/s of PCIe; half duty 49 %.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Loads = dict[str, Callable[[float], None]]

SIZE = 8192
COPY_B = 2 << 30


def span(name: str) -> Any:
    """A span of the probe, if there is one."""
    try:
        return import_module("dipstick_probe").span(name)
    except ImportError:
        return nullcontext()


def torch_loads() -> Loads:
    """Loads on the first GPU through torch.

    Raises:
        ImportError: There is no torch.
        RuntimeError: It sees no GPU.
    """
    torch: Any = import_module("torch")
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
    a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    source = torch.empty(COPY_B, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    host = torch.empty(COPY_B // 4, dtype=torch.uint8, pin_memory=True)
    small = torch.zeros(8, device="cuda")

    def until(seconds: float, work: Callable[[], object], pause: float = 0.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            work()
            torch.cuda.synchronize()
            time.sleep(pause)

    def half_duty(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            half = time.monotonic() + 0.01
            while time.monotonic() < half:
                torch.mm(a, a)
                torch.cuda.synchronize()
            time.sleep(0.01)

    return {
        "matmul": lambda s: until(s, lambda: torch.mm(a, a)),
        "device copies": lambda s: until(s, lambda: target.copy_(source)),
        "host copies": lambda s: until(s, lambda: source[: len(host)].copy_(host, non_blocking=True)),
        "tiny kernels": lambda s: until(s, lambda: small.add_(1)),
        "half duty": half_duty,
    }


def cupy_loads() -> Loads:
    """Fewer loads, through cupy.

    Raises:
        ImportError: There is no cupy.
    """
    cupy: Any = import_module("cupy")
    a = cupy.random.rand(SIZE, SIZE, dtype=cupy.float32)
    source = cupy.zeros(COPY_B, dtype=cupy.uint8)

    def until(seconds: float, work: Callable[[], object]) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            work()
            cupy.cuda.Device().synchronize()

    return {"matmul": lambda s: until(s, lambda: a @ a), "device copies": lambda s: until(s, source.copy)}


def find_loads() -> Loads:
    """What this machine can do besides idling."""
    for make in (torch_loads, cupy_loads):
        try:
            return make()
        except (ImportError, RuntimeError) as error:
            print(f"{make.__name__}: {error}", file=sys.stderr)
    return {}


def main() -> int:
    """Idle, every load, idle."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    loads: Loads = {"idle": time.sleep, **find_loads(), "idle again": time.sleep}
    for name, load in loads.items():
        with span(name):
            load(seconds)
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
