"""Framework spans become phases: which rank, which thread, and what a name means where it stands."""

from __future__ import annotations

import numpy as np
import pytest

from dipstick import phases
from dipstick.analysis.spans import INHERIT, Lane, ResolvedLane, encode, of_nobody, read_lanes, resolve
from records import HOST, process, span, table


def lane_of(*rows: dict[str, object]) -> Lane:
    """The one lane that these spans make."""
    lanes, homeless = read_lanes(table("spans", rows), table("processes"))
    assert len(lanes) == 1
    assert homeless == 0
    return lanes[0]


def phase_by_name(resolved: ResolvedLane) -> list[tuple[str, str]]:
    """Each span in order of its start: its short name and the phase it means."""
    names = [resolved.lane.names[i] for i in resolved.lane.name]
    return list(zip(names, (phases.PHASES[code] for code in resolved.phase), strict=True))


def seconds(resolved: ResolvedLane) -> dict[str, float]:
    """Exclusive seconds by phase."""
    edges, code = resolved.pieces()
    return {phases.PHASES[c]: float(np.diff(edges)[code == c].sum() / 1e9) for c in np.unique(code)}


# Which lane a span belongs to


def test_a_lane_is_one_thread_of_one_rank_sorted_by_start_longest_first() -> None:
    """Two ranks, one of them with two threads: three lanes."""
    rows = [
        span("b", 2, 3, rank=1),
        span("a", 0, 1, rank=0, tid=7),
        span("inner", 0, 1, rank=1),
        span("outer", 0, 5, rank=1),
        span("c", 0, 1, rank=0, tid=8),
    ]

    lanes, homeless = read_lanes(table("spans", rows), table("processes"))

    assert [lane.rank for lane in lanes] == [0, 0, 1]
    assert [[lane.names[i] for i in lane.name] for lane in lanes] == [["a"], ["c"], ["outer", "inner", "b"]]
    assert homeless == 0


def test_a_span_without_a_rank_takes_the_rank_of_its_process() -> None:
    """Spans recorded before ``torch.distributed`` is up have a pid only."""
    rows = [span("a", 0, 1, rank=None, pid=11), span("a", 0, 1, rank=None, pid=12)]
    processes = [process(11, rank=1, gpu=1), process(12, rank=0, gpu=0)]

    lanes, homeless = read_lanes(table("spans", rows), table("processes", processes))

    assert [lane.rank for lane in lanes] == [0, 1]
    assert homeless == 0


def test_the_same_pid_on_two_hosts_is_two_processes() -> None:
    """Pids repeat from host to host; containers all start at pid 1."""
    rows = [span("a", 0, 1, rank=None, pid=1, host="h0"), span("a", 0, 1, rank=None, pid=1, host="h1")]
    processes = [process(1, rank=0, gpu=0, host="h0"), process(1, rank=1, gpu=0, host="h1")]

    lanes, _ = read_lanes(table("spans", rows), table("processes", processes))

    assert [lane.rank for lane in lanes] == [0, 1]


def test_the_only_process_is_rank_0() -> None:
    """A run without ``torchrun`` has no ranks at all."""
    assert lane_of(span("reward", 0, 1, rank=None)).rank == 0


def test_spans_of_nobody_are_counted_not_guessed() -> None:
    """Two processes, no ranks, no process table: who is who can't be told."""
    rows = [
        span("a", 0, 1, rank=None, pid=1),
        span("a", 0, 1, rank=None, pid=2),
        span("a", 0, 1, rank=0, pid=3),
    ]

    lanes, homeless = read_lanes(table("spans", rows), table("processes"))

    assert [lane.rank for lane in lanes] == [0]
    assert homeless == 2


def test_no_spans_make_no_lanes() -> None:
    """An empty table is no error."""
    assert read_lanes(table("spans"), table("processes")) == ([], 0)


def test_a_span_without_step_number_has_step_minus_one() -> None:
    """Null means "before training or unknown", which frameworks write as -1."""
    assert lane_of(span("a", 0, 1, step=None), span("a", 1, 2, step=3)).step.tolist() == [-1, 3]


def test_forty_thousand_different_names_keep_theirs() -> None:
    """Users put numbers into names; the 32,768th name must not become another one."""
    rows = [span(f"batch {i:05d}", i, i + 1) for i in range(40_000)]

    lane = lane_of(*rows)

    assert [lane.names[i] for i in lane.name] == [row["name"] for row in rows]


def test_called_finds_spans_by_short_name() -> None:
    """``GRPOTrainer.compute_loss`` is called ``compute_loss``, whatever the trainer class."""
    lane = lane_of(
        span("GRPOTrainer.compute_loss", 0, 1), span("other", 1, 2), span("RLOOTrainer.compute_loss", 2, 3)
    )

    assert lane.called("compute_loss").tolist() == [True, False, True]
    assert lane.called("compute_loss", "other").tolist() == [True, True, True]
    assert lane.called("nothing").tolist() == [False, False, False]


def test_encode_gives_null_rows_the_index_after_the_last() -> None:
    """Distinct strings are sorted; a missing one is no string of its own."""
    names, codes = encode(
        table("spans", [span("b", 0, 1), span("a", 1, 2), {"t0_ns": 1, "t1_ns": 2}])["name"]
    )

    assert names == ["a", "b"]
    assert codes.tolist() == [1, 0, 2]


# What a span means


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("GRPOTrainer.vLLM.generate", "generate"),
        ("transformers.generate", "generate"),
        ("GRPOTrainer._calculate_rewards", "reward"),
        ("GRPOTrainer.sync_weights", "weight_sync"),
        ("GRPOTrainer._move_model_to_vllm", "weight_sync"),
        ("GRPOTrainer._get_per_token_logps_and_entropies", "logprobs"),
        ("GRPOTrainer.compute_loss", "forward"),
        ("backward", "backward"),
        ("optimizer", "optimizer"),
        ("_save_checkpoint", "checkpoint"),
        ("evaluate", "eval"),
        ("eval", "eval"),
        ("empty_cache", "cache_clear"),
        ("GRPOTrainer._prepare_inputs", "unattributed"),
        ("step", "unattributed"),
        ("gather", "unattributed"),
        ("my own helper", "unattributed"),
    ],
)
def test_what_a_name_means_by_itself(name: str, phase: str) -> None:
    """Containers and unknown names mean nothing by themselves."""
    assert seconds(resolve(lane_of(span(name, 0, 1)))) == {phase: 1.0}


@pytest.mark.parametrize("phase", [name for name in phases.PHASES if name != "unattributed"])
def test_a_span_named_like_a_phase_is_that_phase(phase: str) -> None:
    """``with dipstick.span("reward")`` needs no table."""
    assert seconds(resolve(lane_of(span(phase, 0, 1)))) == {phase: 1.0}


@pytest.mark.parametrize(
    "name", ["_get_per_token_logps", "_get_per_token_logps_and_entropies", "_get_last_hidden_state"]
)
def test_logprobs_inside_compute_loss_are_the_forward_pass(name: str) -> None:
    """TRL calls one function for the old log-probabilities and for the loss."""
    resolved = resolve(
        lane_of(
            span("step", 0, 10),
            span("GRPOTrainer._prepare_inputs", 0, 5),
            span(f"GRPOTrainer.{name}", 1, 4),
            span("GRPOTrainer.compute_loss", 5, 9),
            span(f"GRPOTrainer.{name}", 6, 8),
        )
    )

    assert seconds(resolved) == {"unattributed": 3.0, "logprobs": 3.0, "forward": 4.0}


def test_inside_holds_through_helpers_in_between() -> None:
    """``compute_loss`` > an unknown helper > log-probabilities: still inside ``compute_loss``."""
    resolved = resolve(
        lane_of(span("compute_loss", 0, 9), span("helper", 1, 8), span("_get_per_token_logps", 2, 7))
    )

    assert phase_by_name(resolved) == [
        ("compute_loss", "forward"),
        ("helper", "forward"),
        ("_get_per_token_logps", "forward"),
    ]


def test_inside_ends_with_its_container() -> None:
    """What follows ``compute_loss``, even at the same instant, is not inside it."""
    resolved = resolve(lane_of(span("compute_loss", 0, 2), span("_get_per_token_logps", 2, 4)))

    assert phase_by_name(resolved) == [("compute_loss", "forward"), ("_get_per_token_logps", "logprobs")]


def test_inside_holds_for_every_trainer_class() -> None:
    """Two classes in one recording (a user's subclass logs its own name): both ``compute_loss`` are containers."""
    resolved = resolve(
        lane_of(
            span("GRPOTrainer.compute_loss", 0, 2),
            span("_get_per_token_logps", 0, 1),
            span("MyTrainer.compute_loss", 2, 4),
            span("_get_per_token_logps", 2, 3),
        )
    )

    assert [phase for name, phase in phase_by_name(resolved) if name == "_get_per_token_logps"] == [
        "forward",
        "forward",
    ]


def test_an_unknown_helper_inside_the_reward_function_is_reward() -> None:
    """Names that mean nothing inherit from the span around them."""
    resolved = resolve(lane_of(span("_calculate_rewards", 0, 9), span("relax", 1, 3), span("gather", 8, 9)))

    assert seconds(resolved) == {"reward": 9.0}


def test_containers_inherit_too() -> None:
    """A container inside an evaluation is evaluation; a named phase inside it keeps its own name."""
    resolved = resolve(
        lane_of(span("evaluate", 0, 9), span("_prepare_inputs", 1, 8), span("vLLM.generate", 2, 5))
    )

    assert seconds(resolved) == {"eval": 6.0, "generate": 3.0}


def test_the_phase_a_span_was_recorded_with_beats_its_name() -> None:
    """A hook that knows better says so in the ``phase`` column, also inside ``compute_loss``."""
    resolved = resolve(
        lane_of(
            span("backward", 0, 1, phase="optimizer"),
            span("compute_loss", 1, 4),
            span("_get_per_token_logps", 2, 3, phase="logprobs"),
        )
    )

    assert seconds(resolved) == {"optimizer": 1.0, "forward": 2.0, "logprobs": 1.0}


def test_a_phase_nobody_knows_is_as_good_as_none() -> None:
    """A newer recorder may write phases that this version has never heard of: the name decides."""
    lane = lane_of(span("backward", 0, 1, phase="quantum"))

    assert lane.declared.tolist() == [INHERIT]
    assert seconds(resolve(lane)) == {"backward": 1.0}


def test_a_span_opens_its_phase_unless_the_one_around_it_did() -> None:
    """``_calculate_rewards`` holding ``reward.parse`` and ``reward.workers`` is one occurrence of reward."""
    resolved = resolve(
        lane_of(
            span("step", 0, 9),
            span("_calculate_rewards", 1, 8),
            span("reward.parse", 1, 2),
            span("reward.workers", 2, 7),
            span("empty_cache", 7, 8),
        )
    )

    assert resolved.opens_phase.tolist() == [False, True, False, False, True]


def test_time_between_spans_is_unattributed() -> None:
    """A hole in a lane is a piece of its own."""
    assert seconds(resolve(lane_of(span("reward", 0, 1), span("reward", 3, 4)))) == {
        "unattributed": 2.0,
        "reward": 2.0,
    }


def test_an_empty_span_has_a_phase_but_no_time() -> None:
    """A cache clear faster than the clock still happened."""
    resolved = resolve(lane_of(span("reward", 0, 4), span("empty_cache", 2, 2)))

    assert seconds(resolved) == {"reward": 4.0}
    assert phase_by_name(resolved)[1] == ("empty_cache", "cache_clear")


def test_rows_of_a_worker_lose_the_rank_that_it_inherited() -> None:
    """In their order; a row without a known process keeps its rank."""
    rows = table(
        "events",
        [
            {"host": HOST, "pid": pid, "rank": 0, "name": "gc", "t0_ns": i}
            for i, pid in enumerate((7, 900, 7, 5))
        ],
    )
    who = table(
        "processes", [process(7, rank=0, gpu=None, role="reward_worker"), process(900, rank=0, gpu=0)]
    )

    assert of_nobody(rows, who)["rank"].to_list() == [None, 0, None, 0]
    assert of_nobody(rows, who).columns == rows.columns


def test_a_worker_of_another_host_with_that_pid_is_another_process() -> None:
    """Pid 7 is a worker on node2 only."""
    rows = table("events", [{"host": HOST, "pid": 7, "rank": 0, "name": "gc", "t0_ns": 0}])
    who = table(
        "processes", [process(7, rank=1, gpu=None, host="node2", role="worker"), process(7, rank=0, gpu=0)]
    )

    assert of_nobody(rows, who)["rank"].to_list() == [0]
