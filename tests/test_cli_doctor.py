"""`dipstick doctor`: what a machine can give, found out through a stand-in for NVML."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from dipstick.capture import doctor
from dipstick.cli import doctor as verb
from dipstick.cli import main

if TYPE_CHECKING:
    from pathlib import Path

UTILIZATION, POWER = "GPU_UTILIZATION", "POWER"
H200_FILE = "/site-packages/pynvml.py"


class NVMLError(Exception):
    """As the binding raises it."""


class FakeNvml:
    """An H200 of driver 580: 5 Hz of utilization, 50 Hz of power, GPM; calls in ``refuse`` raise what it says."""

    NVML_GPU_UTILIZATION_SAMPLES = UTILIZATION
    NVML_TOTAL_POWER_SAMPLES = POWER

    def __init__(self, gpus: int = 1, *, gpm: bool = True, pids: tuple[int, ...] = (), **refuse: str) -> None:
        self.gpus = gpus
        self.gpm = gpm
        self.pids = pids
        self.refuse = refuse
        self.shut_down = 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in self.refuse:
            raise NVMLError(self.refuse[name])
        return super().__getattribute__(name)

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's name
        return None

    def nvmlShutdown(self) -> None:  # noqa: N802 - NVML's name
        self.shut_down += 1

    def nvmlSystemGetNVMLVersion(self) -> bytes:  # noqa: N802 - NVML's name
        return b"13.580.65"

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802 - NVML's name
        return "580.65.06"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's name
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802 - NVML's name
        return index

    def nvmlDeviceGetName(self, _handle: int) -> str:  # noqa: N802 - NVML's name
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802 - NVML's name
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, _handle: int) -> SimpleNamespace:  # noqa: N802 - NVML's name
        return SimpleNamespace(total=150_754_820_096)

    def nvmlDeviceGetMigMode(self, _handle: int) -> list[int]:  # noqa: N802 - NVML's name
        return [0, 0]

    def nvmlDeviceGetUtilizationRates(self, _handle: int) -> SimpleNamespace:  # noqa: N802 - NVML's name
        return SimpleNamespace(gpu=99, memory=23)

    def nvmlDeviceGetSamples(self, _handle: int, kind: str, _since: int) -> tuple[int, list[SimpleNamespace]]:  # noqa: N802
        step, many = (200_000, 71) if kind == UTILIZATION else (20_000, 120)
        return 0, [SimpleNamespace(timeStamp=1_796_053_319_000_000 + step * i) for i in range(many)]

    def nvmlGpmQueryDeviceSupport(self, _handle: int) -> SimpleNamespace:  # noqa: N802 - NVML's name
        return SimpleNamespace(isSupportedDevice=int(self.gpm))

    def nvmlDeviceGetProcessUtilization(self, _handle: int, _since: int) -> list[int]:  # noqa: N802 - NVML's name
        return [1, 2, 3]

    def nvmlDeviceGetPowerUsage(self, _handle: int) -> int:  # noqa: N802 - NVML's name
        return 119_400

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: int) -> list[SimpleNamespace]:  # noqa: N802 - NVML's name
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A file system with a /proc like the host's: process 100 lives, the PID namespace is the first one."""
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/100").mkdir()
    (tmp_path / "proc/1").mkdir()
    (tmp_path / "proc/1/cgroup").write_text("0::/init.scope\n")
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    return tmp_path


def examine(root: Path, nvml: FakeNvml | None = None) -> doctor.Checkup:
    return doctor.examine(nvml or FakeNvml(), root, {"nvidia-ml-py": "13.580.82"}, H200_FILE)


def signals(found: doctor.Checkup) -> dict[str, bool | None]:
    return {signal.name: signal.available for signal in found.gpus[0].signals}


H200 = """\
NVML       library 13.580.65, driver 580.65.06
binding    nvidia-ml-py 13.580.82 (/site-packages/pynvml.py)
processes  no container seen, host PID namespace; no GPU process to check PIDs with

GPU 0: NVIDIA H200, 140.4 GiB, GPU-0
  utilization    yes  99 % now, memory access 23 %; each value is a mean over 0.20 s
  sample buffer  yes  utilization 14.0 s at 5.0 Hz; power 2.4 s at 50.0 Hz
  counters       yes  GPM: SM, tensor, DRAM, PCIe and NVLink activity
  per process    yes  3 samples at hand
  power          yes  119 W now"""


def test_a_machine_that_gives_everything(root: Path) -> None:
    """The whole text for one H200 (but Python's line)."""
    assert verb.told(examine(root)).partition("\n")[2] == H200


def test_nvml_is_closed_again(root: Path) -> None:
    """Examining leaves nothing open."""
    nvml = FakeNvml()
    examine(root, nvml)
    assert nvml.shut_down == 1


def test_each_gpu_is_examined(root: Path) -> None:
    """Two GPUs, by NVML's index."""
    assert [(g.index, g.uuid) for g in examine(root, FakeNvml(2)).gpus] == [(0, "GPU-0"), (1, "GPU-1")]


def test_the_window_of_the_counter_is_the_spacing_of_the_drivers_samples() -> None:
    """0.2 s on an H200; jitter does not move a median; two samples are too few to tell."""
    assert doctor.spacing([0, 200_000, 400_100, 600_100]) == 0.2
    assert doctor.spacing([400_000, 0, 200_000, 200_000]) == 0.2
    assert doctor.spacing([0, 200_000]) is None
    assert doctor.spacing([]) is None


def test_without_a_sample_buffer_the_window_is_not_known(root: Path) -> None:
    """And not guessed."""
    found = examine(root, FakeNvml(nvmlDeviceGetSamples="Not Supported"))
    assert found.gpus[0].util_window_s is None
    assert signals(found)["sample buffer"] is False
    assert "  sample buffer  no   Not Supported (for: no window is lost between polls)" in verb.told(found)


def test_a_gpu_without_gpm_is_told_apart_from_a_driver_without_it(root: Path) -> None:
    """An A100 says it is not supported; an old binding has no such function."""
    older = examine(root, FakeNvml(gpm=False)).gpus[0].signals[2]
    assert (older.available, older.detail) == (False, "no GPM (Hopper or newer has it)")
    refused = examine(root, FakeNvml(nvmlGpmQueryDeviceSupport="Function Not Found")).gpus[0].signals[2]
    assert (refused.available, refused.detail) == (False, "Function Not Found")


def test_no_recent_process_is_not_the_same_as_no_permission(root: Path) -> None:
    """NVML says "Not Found" on an idle GPU: then it can't be told."""
    idle = examine(root, FakeNvml(nvmlDeviceGetProcessUtilization="Not Found"))
    assert signals(idle)["per process"] is None
    denied = examine(root, FakeNvml(nvmlDeviceGetProcessUtilization="Insufficient Permissions"))
    assert signals(denied)["per process"] is False


def test_mig_is_named_because_its_states_stay_unknown(root: Path) -> None:
    """A GPU without the mode is not called split."""
    split = FakeNvml()
    split.nvmlDeviceGetMigMode = lambda _handle: [1, 1]  # type: ignore[method-assign] # this GPU only
    assert "split by MIG: states stay unknown" in verb.told(examine(root, split))
    assert examine(root, FakeNvml(nvmlDeviceGetMigMode="Not Supported")).gpus[0].mig is None


def test_a_machine_without_driver_is_answered(root: Path) -> None:
    """NVML's own words, and what still works."""
    text = verb.told(examine(root, FakeNvml(nvmlInit="NVML Shared Library Not Found")))
    assert "NVML       can't be used: NVML Shared Library Not Found" in text
    assert text.endswith(
        "No GPU can be seen from here. Importing and explaining recordings works all the same."
    )


def test_a_machine_without_the_binding_is_answered(root: Path) -> None:
    """The import error is the reason."""
    found = doctor.examine(None, root, {}, None, "No module named 'pynvml'")
    assert (found.nvml_error, found.gpus, found.binding.shadowed) == ("No module named 'pynvml'", (), False)
    assert "binding    not installed" in verb.told(found)


@pytest.mark.parametrize(
    ("packages", "file", "shadowed"),
    [
        ({"nvidia-ml-py": "13.580.82"}, "/s/pynvml.py", False),
        ({"nvidia-ml-py": "13.580.82", "pynvml": "13.0.1"}, "/s/pynvml.py", False),
        ({"nvidia-ml-py": "13.580.82", "pynvml": "11.5.3"}, "/s/pynvml/__init__.py", True),
        ({"pynvml": "11.5.0"}, "/s/pynvml/__init__.py", True),
        ({"nvidia-ml-py": "13.580.82"}, "/home/me/pynvml/__init__.py", True),
        ({}, None, False),
    ],
)
def test_an_old_pynvml_shadows_the_real_binding(
    packages: dict[str, str], file: str | None, shadowed: object
) -> None:
    """By version (11 and before), and by being a folder where NVIDIA's binding is one file."""
    assert doctor.check_binding(packages, file).shadowed is shadowed


def test_a_shadowed_binding_comes_with_the_way_out(root: Path) -> None:
    """Two commands to paste."""
    found = doctor.examine(FakeNvml(), root, {"pynvml": "11.5.3"}, "/s/pynvml/__init__.py")
    assert "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py" in verb.told(found)


def test_processes_that_proc_does_not_know_cannot_be_attributed(root: Path) -> None:
    """NVML names host PIDs; in a container's own namespace they mean nothing, and doctor says what mends it."""
    (root / "proc/self/ns/pid").unlink()
    (root / "proc/self/ns/pid").symlink_to("pid:[4026532999]")
    (root / "proc/1/cgroup").write_text("0::/kubepods/besteffort/pod1\n")
    found = examine(root, FakeNvml(pids=(100, 4711)))
    assert found.processes == doctor.Processes("kubepods", "own", 2, 1)
    text = verb.told(found)
    assert "1 of 2 GPU processes have PIDs that are unknown here" in text
    assert "hostPID: true" in text


def test_processes_that_proc_knows_are_fine(root: Path) -> None:
    """Counted once, also where they use two GPUs."""
    found = examine(root, FakeNvml(2, pids=(100,)))
    assert found.processes == doctor.Processes(None, "host", 1, 0)
    assert "PIDs of GPU processes are known here (1 of 1)" in verb.told(found)


def test_traces_of_a_container_runtime(root: Path) -> None:
    """Docker and podman leave a file; without /proc nothing can be told."""
    (root / ".dockerenv").touch()
    assert examine(root).processes.runtime == "docker"
    assert doctor.examine(None, root / "empty", {}, None).processes == doctor.Processes(None, "unknown", 0, 0)


def test_hostile_names_are_cleaned(root: Path) -> None:
    """Even a driver's string is recorded text."""
    nvml = FakeNvml()
    nvml.nvmlDeviceGetName = lambda _handle: "H\x1b[2J200\u202e"  # type: ignore[method-assign] # this GPU only
    assert "GPU 0: H200\ufffd, 140.4 GiB" in verb.told(examine(root, nvml))


def test_the_document_is_plain_and_complete(root: Path) -> None:
    """--json holds every field of the findings."""
    found = examine(root)
    document = json.loads(json.dumps(verb.document(found)))
    assert document["schema_version"] == 1
    assert document.keys() - {"schema_version"} == asdict(found).keys()
    assert document["gpus"][0]["util_window_s"] == 0.2


def test_the_verb_works_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """With a GPU or without: it answers."""
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Python     3.")
    assert err == "next: dipstick demo  (explains a recorded run, no GPU needed)\n"
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["python"].startswith("3.")
