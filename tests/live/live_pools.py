"""pebble, joblib and loky under the probe. Run by `nox -s live`; the standard library's pools are in test_probe_pools."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from probed import Probed, run_probed

HEAD = """
import multiprocessing, os, sys
import dipstick_probe as dipstick
def double(x): return 2 * x
def fail(x): raise ValueError(f"no {x}")
if __name__ == "__main__":
"""


def run_pool(tmp_path: Path, body: str) -> Probed:
    """Run it recorded and not: the same output; no trouble."""
    code = HEAD + "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    done, bare = run_probed(tmp_path, code), run_probed(tmp_path, code, DIPSTICK_DISABLE="1")
    assert (done.status, done.out, done.troubles()) == (0, bare.out, []), done.err
    return done


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pebble(tmp_path: Path, method: str) -> None:
    """schedule, submit, map with chunks, an exception, a time limit: as many jobs as ended, by the workers' pids."""
    body = f"""
import time
from pebble import ProcessPool
with dipstick.span("reward"), ProcessPool(2, context=multiprocessing.get_context("{method}")) as pool:
    print([pool.schedule(double, args=[i]).result() for i in range(3)], pool.submit(double, None, 9).result())
    print(list(pool.map(double, range(5), chunksize=2).result()), type(pool.schedule(fail, args=[1]).exception()).__name__)
    print(type(pool.schedule(time.sleep, args=[60], timeout=0.5).exception()).__name__)
"""
    done = run_pool(tmp_path, body)
    jobs = done.jobs().values()
    assert done.out.splitlines() == ["[0, 2, 4] 18", "[0, 2, 4, 6, 8] ValueError", "TimeoutError"]
    assert (
        len(jobs),
        len({row["job"] for row in done.of("job")}),
        done.main.pid in {job["pid"] for job in jobs},
    ) == (10, 11, False)
    assert {job["payload_types"] for job in jobs} == {"int"}
    assert all(0 < job["payload_b"] < 300 for job in jobs)
    (row,) = {row["f"] for row in done.main.of("handoff")}
    assert row == str(tmp_path / "script.py")


@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_joblib(tmp_path: Path, backend: str) -> None:
    """Its batches are the jobs; lambdas go through (cloudpickle), results are joblib's."""
    body = f"""
from joblib import Parallel, delayed
with dipstick.span("reward"):
    print(Parallel(n_jobs=2, backend="{backend}", batch_size=2)(delayed(lambda x: x + 1)(i) for i in range(6)) if "{backend}" == "loky"
          else Parallel(n_jobs=2, backend="{backend}", batch_size=2)(delayed(double)(i) for i in range(6)))
"""
    done = run_pool(tmp_path, body)
    jobs = done.jobs().values()
    sizes = [int(job["detail"].removeprefix("joblib batch of ")) for job in jobs]
    assert (sum(sizes), max(sizes)) == (6, 2)
    assert done.main.pid not in {job["pid"] for job in jobs}


def test_loky_alone(tmp_path: Path) -> None:
    """A reusable executor: jobs with bytes both ways."""
    body = """
from loky import get_reusable_executor
pool = get_reusable_executor(max_workers=2)
with dipstick.span("reward"):
    print([pool.submit(double, i).result() for i in range(3)], list(pool.map(double, range(3))))
pool.shutdown()
"""
    done = run_pool(tmp_path, body)
    jobs = list(done.jobs().values())
    assert (done.out, len(jobs)) == ("[0, 2, 4] [0, 2, 4]\n", 6)
    assert all(0 < job["payload_b"] < 1000 and job["result_b"] > 0 for job in jobs[:3])
