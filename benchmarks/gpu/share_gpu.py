"""Start N ranks on the same GPU, as torchrun would on N of them: LOCAL_RANK is 0 in all.

    python benchmarks/gpu/share_gpu.py N SCRIPT ARGUMENT…

NCCL refuses two ranks on one GPU; the script must use gloo between them. If a rank fails, the others are stopped.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time


def main() -> int:
    """Start them and wait; returns the first exit status that is not 0."""
    count, command = int(sys.argv[1]), [sys.executable, *sys.argv[2:]]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    world = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": "1",
    }
    ranks = [
        subprocess.Popen(command, env={**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": "0"})
        for rank in range(count)
    ]
    while True:
        states = [rank.poll() for rank in ranks]
        failed = [state for state in states if state]
        if failed or None not in states:
            break
        time.sleep(0.5)
    for rank in ranks:
        if rank.poll() is None:
            rank.terminate()
            rank.wait()
    return failed[0] if failed else 0


if __name__ == "__main__":
    sys.exit(main())
