"""Which process is which: attribution on the host, in a container where the driver speaks of other pids, and names at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dipstick.capture.devices import ProcessReading
from dipstick.capture.finish import name_processes, place_by_local_rank
from dipstick.capture.roles import Attribution, Commands, GpuUser, seen_processes
from dipstick.capture.tree import MANY, Member
from dipstick.recording.probe_process import ProbeData, ProbeProcess

if TYPE_CHECKING:
    from dipstick.capture.doctor import PidNamespace

GIB = 2**30


class FakeTree:
    """Pids that are ours, those of them with a GPU open, and command lines."""

    def __init__(self, ours: set[int], with_gpu: set[int] | None = None) -> None:
        self.ours = ours
        self.with_gpu = ours if with_gpu is None else with_gpu
        self.commands: dict[int, list[str]] = {}

    def owns(self, pid: int) -> bool:
        return pid in self.ours

    def holds_gpu(self, pid: int) -> bool:
        return pid in self.with_gpu

    def command(self, pid: int) -> list[str]:
        return self.commands.get(pid, [])


def attribution(tree: FakeTree, namespace: PidNamespace = "host") -> Attribution:
    return Attribution(tree, namespace)  # type: ignore[arg-type] # as much of a tree as it needs


def use(pid: int, memory: int | None = None) -> ProcessReading:
    return ProcessReading(1, None, pid, sm_pct=40.0, mem_used_b=memory)


def test_on_the_host_descendants_are_ours_and_the_rest_is_foreign() -> None:
    """Every reading is kept: a neighbour's work explains a dip as well."""
    who = attribution(FakeTree({20}))
    readings = [use(20), use(99)]
    assert who.sort_out(0, readings) == readings
    assert {pid: user.whose for pid, user in who.users.items()} == {20: "ours", 99: "foreign"}


def test_a_process_may_be_met_before_the_tree_knows_it() -> None:
    """It started after the last scan: it is looked at again until it is ours."""
    tree = FakeTree(set())
    who = attribution(tree)
    who.sort_out(0, [use(20)])
    tree.ours.add(20)
    who.sort_out(0, [use(20)])
    assert who.users[20].whose == "ours"


def test_a_process_that_was_ours_stays_ours() -> None:
    """The driver goes on listing it after it ended, when its files can't be looked at any more."""
    tree = FakeTree({20})
    who = attribution(tree, "own")
    who.sort_out(0, [use(20)])
    tree.with_gpu = set()
    assert who.sort_out(0, [use(20)]) == [use(20)]
    assert (who.users[20].whose, who.mistaken) == ("ours", 0)


def test_in_a_container_foreign_pids_cannot_be_attributed() -> None:
    """The driver names the host's pid 41234: it may be ours or a neighbour's. The reading is kept with that pid."""
    who = attribution(FakeTree({20}), "own")
    assert who.sort_out(0, [use(41234)]) == [use(41234)]
    assert who.users[41234].whose == "unattributable"


def test_in_a_container_a_pid_counts_as_ours_only_with_a_gpu_open() -> None:
    """The host's pid 20 is not our shell with pid 20: that reading would name the wrong process, so it is left out."""
    who = attribution(FakeTree({20, 21}, with_gpu={21}), "own")
    assert who.sort_out(0, [use(20), use(21)]) == [use(21)]
    assert (who.users[21].whose, who.mistaken) == ("ours", 1)


def test_an_unknown_namespace_is_treated_like_a_container() -> None:
    """When in doubt, can't tell."""
    who = attribution(FakeTree(set()), "unknown")
    who.sort_out(0, [use(7)])
    assert who.users[7].whose == "unattributable"


def test_a_process_belongs_to_the_gpu_where_its_memory_is() -> None:
    """Every rank opens a small context on GPU 0."""
    who = attribution(FakeTree({20}))
    for gpu, memory in ((0, GIB // 2), (1, 60 * GIB), (0, GIB // 2)):
        who.sort_out(gpu, [use(20, memory)])
    assert who.users[20].gpu == 1


def test_without_memory_the_gpu_is_where_it_was_seen_most() -> None:
    """And the lowest index if that does not tell either; none if it was never seen."""
    assert GpuUser(1, "ours", {}, {0: 1, 3: 5}).gpu == 3
    assert GpuUser(1, "ours", {}, {2: 4, 1: 4}).gpu == 1
    assert GpuUser(1, "ours").gpu is None


def test_command_lines_are_read_twice_and_scrubbed() -> None:
    """Between fork and exec a child still shows its parent's."""
    tree = FakeTree({20})
    commands = Commands(tree)  # type: ignore[arg-type] # as much of a tree as it needs
    tree.commands[20] = ["torchrun", "train.py"]
    commands.look([Member(20, 10, 1)])
    tree.commands[20] = ["python", "train.py", "--token", "abc"]
    commands.look([])
    assert commands.lines == {20: "python train.py --token ***"}
    tree.commands[20] = ["changed"]
    commands.look([])
    assert commands.lines == {20: "python train.py --token ***"}


def test_not_every_command_line_is_kept() -> None:
    """And a process that shows none has none."""
    tree = FakeTree(set())
    commands = Commands(tree)  # type: ignore[arg-type] # as much of a tree as it needs
    tree.commands = {pid: ["cc"] for pid in range(MANY + 10)}
    commands.look([Member(pid, 1, 1) for pid in range(MANY + 10)])
    commands.look([Member(99_999, 1, 1)])
    assert len(commands.lines) == MANY


def test_others_are_recorded_without_a_command_line() -> None:
    """Ours first; a GPU user of ours that ended before its command line was read is still there."""
    users = {
        20: GpuUser(20, "ours", {1: GIB}, {1: 3}),
        22: GpuUser(22, "ours", {}, {0: 1}),
        99: GpuUser(99, "foreign", {}, {0: 1}),
    }
    assert seen_processes(users, {20: "python train.py", 21: "sh"}) == [
        {"pid": 20, "whose": "ours", "gpu": 1, "cmdline": "python train.py"},
        {"pid": 21, "whose": "ours", "gpu": None, "cmdline": "sh"},
        {"pid": 22, "whose": "ours", "gpu": 0, "cmdline": None},
        {"pid": 99, "whose": "foreign", "gpu": 0, "cmdline": None},
    ]


# names at the end of the run


def probe(pid: int, **more: Any) -> ProbeProcess:
    return ProbeProcess("node1", pid, 1, **more)


def seen(
    pid: int, whose: str = "ours", gpu: int | None = None, cmdline: str | None = "python"
) -> dict[str, Any]:
    return {"pid": pid, "whose": whose, "gpu": gpu, "cmdline": cmdline}


def test_the_probe_knows_the_role_and_the_sampler_the_gpu() -> None:
    """One row a process, from both."""
    data = ProbeData(
        processes=[probe(20, role="trainer+engine", rank=1), probe(30, role="reward_worker", rank=1)]
    )
    rows = name_processes("node1", data, [seen(20, gpu=1, cmdline="python train.py"), seen(40, cmdline="sh")])
    common = {"host": "node1"}
    assert rows == [
        common
        | {
            "pid": 20,
            "role": "trainer+engine",
            "rank": 1,
            "gpu": 1,
            "cmdline": "python train.py",
            "source": "probe",
        },
        common
        | {"pid": 30, "role": "reward_worker", "rank": 1, "gpu": None, "cmdline": None, "source": "probe"},
        common
        | {"pid": 40, "role": "other", "rank": None, "gpu": None, "cmdline": "sh", "source": "sampler"},
    ]


def test_strangers_keep_no_command_line() -> None:
    """Not even if an account of the sampler had one."""
    rows = name_processes("node1", ProbeData(), [seen(1, "foreign", 0), seen(2, "unattributable", 0)])
    assert [(row["role"], row["cmdline"], row["gpu"]) for row in rows] == [
        ("foreign", None, 0),
        ("unattributable", None, 0),
    ]


def test_other_hosts_probes_are_not_this_hosts_processes() -> None:
    """In a shared folder each supervisor names its own."""
    assert name_processes("node2", ProbeData(processes=[probe(20, role="trainer")]), []) == []


def ranks(*local: int | None) -> ProbeData:
    return ProbeData(
        processes=[probe(20 + i, rank=i, local_rank=rank, spans=1) for i, rank in enumerate(local)]
    )


def placed(data: ProbeData, gpus: set[int], visible: str | None) -> list[tuple[int | None, str]]:
    rows = place_by_local_rank(name_processes("node1", data, []), data, gpus, visible)
    return [(row["gpu"], row["source"]) for row in rows]


def test_without_the_drivers_word_the_local_rank_names_the_gpu() -> None:
    """In a container, say; the row says where it is from."""
    assert placed(ranks(0, 1), {0, 1}, None) == [(0, "probe: local rank"), (1, "probe: local rank")]


def test_visible_devices_are_taken_into_account() -> None:
    """Local rank 1 of ``4,5`` is GPU 5."""
    assert [gpu for gpu, _ in placed(ranks(0, 1), set(range(8)), "4,5")] == [4, 5]


def test_a_gpu_that_cannot_be_told_stays_unknown() -> None:
    """Devices named by UUID, more ranks than devices, no local rank, no GPU at all."""
    assert placed(ranks(0), {0}, "GPU-6aff74a1") == [(None, "probe")]
    assert [gpu for gpu, _ in placed(ranks(0, 1, None), {0}, None)] == [0, None, None]
    assert placed(ranks(0), set(), None) == [(None, "probe")]
    assert placed(ranks(0), set(), "0") == [(None, "probe")]


def test_what_the_driver_said_is_not_guessed_again() -> None:
    """One rank with a GPU from NVML is enough to leave all rows as they are."""
    data = ranks(0, 1)
    rows = name_processes("node1", data, [seen(20, gpu=1)])
    assert [row["gpu"] for row in place_by_local_rank(rows, data, {0, 1}, None)] == [1, None]
