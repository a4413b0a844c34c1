"""A large trace as PyTorch's profiler writes it (one rank, pretty-printed, no gzip): the same bytes for the same size.

python benchmarks/kineto_trace.py FILE STEPS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, Any, Final

PER_STEP: Final = 2_000
"""Operators of a step; each has a launch and a kernel, and every tenth two operators around it."""

START: Final = {
    "schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000}],
    "displayTimeUnit": "ms", "baseTimeNanoseconds": 1_796_053_333_000_000_000,
}  # fmt: skip
KERNELS: Final = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >(int)",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, 64, 64>(float*)",
)


def event(cat: str, name: str, ts: float, dur: float, args: dict[str, Any], *, gpu: bool = False) -> str:
    """One complete event, laid out over lines as Kineto does."""
    who = {"pid": 0, "tid": args["stream"]} if gpu else {"pid": 4037, "tid": 4037}
    head = {"ph": "X", "cat": cat, "name": name, **who, "ts": round(ts, 3), "dur": round(dur, 3)}
    inner = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in args.items())
    outer = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items())
    return f'  {{\n    {outer},\n    "args": {{\n      {inner}\n    }}\n  }}'


def step(number: int) -> list[str]:
    """Events of one step of 100 ms; the last kernel is a collective."""
    begin = number * 100_000.0
    found = [event("user_annotation", f"ProfilerStep#{number}", begin, 99_990, {"External id": number})]
    for i in range(PER_STEP):
        at, one = begin + i * 45, number * PER_STEP + i
        shape = {
            "External id": one,
            "Record function id": 0,
            "Ev Idx": one,
            "Input Dims": [[16, 4096], [4096]],
        }
        if i % 10 == 0:
            found.append(event("cpu_op", "aten::linear", at, 400, shape))
        found += [
            event("cpu_op", "aten::addmm", at, 30, shape),
            event("cuda_runtime", "cudaLaunchKernel", at + 5, 8, {"cbid": 211, "correlation": one}),
            event("kernel", KERNELS[i % 3], at + 20, 31 + i % 7, {
                "External id": one, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": one,
                "registers per thread": 32, "shared memory": 0, "blocks per SM": 1.3, "warps per SM": 10.6,
                "grid": [172, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 17,
            }, gpu=True),
        ]  # fmt: skip
    wait = {"External id": number, "device": 0, "context": 1, "stream": 20, "correlation": number}
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return [*found, event("kernel", name, begin + 91_000, 5_000, wait, gpu=True)]


def write(out: IO[str], steps: int) -> None:
    """The whole trace."""
    out.write(json.dumps(START, indent=2)[:-2] + ',\n  "traceEvents": [\n')
    for number in range(steps):
        out.write((",\n" if number else "") + ",\n".join(step(number)))
    out.write('\n  ],\n  "traceName": "rank0.pt.trace.json"\n}\n')


if __name__ == "__main__":
    path = Path(sys.argv[1])
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as stream:
        write(stream, int(sys.argv[2]))
    temporary.replace(path)
