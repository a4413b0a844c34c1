"""The screen, to the character."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from builders import (
    breakdown,
    dip,
    empty_report,
    gpus_only_report,
    hostile_report,
    judged_report,
    many_report,
    run_info,
    sampling,
    states,
    tiny_report,
)
from dipstick.show import lanes
from dipstick.show.document import Bullets, Column, Row, Table
from dipstick.show.look import Look
from dipstick.show.terminal import draw, fitting, render

if TYPE_CHECKING:
    from dipstick.model import Report

SGR = re.compile(r"\x1b\[[0-9;]*m")

TINY_80 = """\
╭─ tiny · 2 × NVIDIA H200 · 2 ranks · 2 steps · 20.0 s ────────────────────────╮
│ Generation is the longest phase and what you pay for. The dips are the       │
│ reward phase.                                                                │
╰──────────────────────────────────────────────────────────────────────────────╯
2 steps, 1.0–21.0 s                                           busy  work  hollow
             │step 0                │step 1
GPU 0  util  █████████▄▂▂▂▂▂▂▅████▆▅▇█████████▂▂▂▂▂▂▂████▇▅▅  70 %  50 %   4.0 s
rank 0 phase GGGGGGGGGRRRRRRRwwwwwBBGGGGGGGGGGRRRRRRRwwwwwBB
       state #########+++++++SSSSS############+++++++SSSSS##
GPU 1  util  ███████████▇▂▂▂▂▂▂▂▂▂▅▅▇███████████▃▂▂▂▂▂▂▂▂▃▅▅  60 %  60 %     0 s
rank 1 phase GGGGGGGGGGGGRRRRRRRRRBBGGGGGGGGGGGGRRRRRRRRRRBB
       state ############+++++++++##############++++++++++##
all                   ╵5 s        ╵10 s      ╵15 s            65 %  55 %   4.0 s
states  # compute  + light  S spinning  (phases: table below)

Where each rank's 20.0 s went
phase           rank 0  rank 1  share  times  median   p90  util  hollow
G generate         8.0    10.0   45 %      4     4.5   5.0  99 %     0.0
R reward           6.0     8.0   35 %      4     3.5   4.0  15 %     0.0
    parse          1.0     0.0             2
    score          5.0     0.0             2
w gather wait      4.0     0.0   10 %      2     2.0   2.0  99 %     4.0
B backward         2.0     1.0    8 %      4    0.75   1.0  60 %     0.0
. unattributed     0.0     1.0    2 %           0.50  0.50     –       –
  total           20.0    20.0  100 %                                4.0

Waits
who waits  at        for     because of  waited  times  longest
rank 0     w reward  rank 1  reward       4.0 s      2    2.5 s
last at reward  rank 1 in 2 of 2 steps (others waited 4.0 s), rank 0 in 0 (0 s)
reward jobs     64: median 0.12 s, p99 1.8 s, longest 1.9 s; 1.9 of 2 worker
                slots a rank busy
dips of util    2, 1 on all GPUs; median 84 pts, 3.5 s; loss 100 % in reward
dips of work    1, 0 on all GPUs; median 84 pts, 3.0 s; loss 100 % in gather
                wait
warning         The clock stepped back by 2 s.
missing         payload types (--full: what for, how to get it)
"""

TINY_80_FULL = """\
╭─ tiny · 2 × NVIDIA H200 · 2 ranks · 2 steps · 20.0 s ────────────────────────╮
│ Generation is the longest phase and what you pay for. The dips are the       │
│ reward phase.                                                                │
╰──────────────────────────────────────────────────────────────────────────────╯
2 steps, 1.0–21.0 s
             │step 0                       │step 1
GPU 0  util  ████████████▃▂▂▂▂▂▂▂▂▆█████▇▅▅▇███████████▆▂▂▂▂▂▂▂▂▃██████▅▅▅  70 %
rank 0 phase GGGGGGGGGGGGRRRRRRRRRwwwwwwBBBGGGGGGGGGGGGGRRRRRRRRRwwwwwwBBB
       state ############+++++++++SSSSSS################+++++++++SSSSSS###

GPU 1  util  ███████████████▃▂▂▂▂▂▂▂▂▂▂▂▄▅▅▇██████████████▇▂▂▂▂▂▂▂▂▂▂▂▂▅▅▅  62 %
rank 1 phase GGGGGGGGGGGGGGGRRRRRRRRRRRRBBBGGGGGGGGGGGGGGGGRRRRRRRRRRRRBBB
       state ###############++++++++++++###################++++++++++++###
                         ╵5 s           ╵10 s          ╵15 s          ╵20 s
phases  G generate  R reward  w gather wait  B backward
states  # compute  + light  S spinning

Busy by utilization, and doing work
       # doing work  ~ hollow  . idle          busy  doing work  hollow  of busy
GPU 0  ###################~~~~~~~~...........  70 %        50 %   4.0 s     29 %
GPU 1  #######################...............  60 %        60 %     0 s      0 %
all    #####################~~~~.............  65 %        55 %   4.0 s     15 %

Where each rank's 20.0 s went
phase           rank 0  rank 1  share  times  median   p90  util  hollow
G generate         8.0    10.0   45 %      4     4.5   5.0  99 %     0.0
R reward           6.0     8.0   35 %      4     3.5   4.0  15 %     0.0
    parse          1.0     0.0             2
    score          5.0     0.0             2
w gather wait      4.0     0.0   10 %      2     2.0   2.0  99 %     4.0
B backward         2.0     1.0    8 %      4    0.75   1.0  60 %     0.0
. unattributed     0.0     1.0    2 %           0.50  0.50     –       –
  total           20.0    20.0  100 %                                4.0

Who waited for whom
waited, s  for rank 1    all
rank 0          4.000  4.000
rank 1                 0.000

Waits
who waits  at        for     because of  waited  times  longest
rank 0     w reward  rank 1  reward       4.0 s      2    2.5 s

Who comes last at the reward barrier
rank    came last in  waited  made others wait
rank 1  2 of 2 steps     0 s             4.0 s
rank 0  0 of 2 steps   4.0 s               0 s
64 reward jobs: median 0.12 s, p99 1.8 s, longest 1.9 s.
Worker slots busy while rewards run: 1.9 of 2 a rank.
Widest gaps: step 0, rank 1 last by 2.5 s (job job-7, 1.9 s, pid 936); step 1,
rank 1 last by 1.5 s.

Reward workers
worker   rank  jobs   busy  ended last in
pid 936     1    30  6.5 s        2 steps
pid 937     0    34  5.0 s        0 steps

Dips of utilization, and of work (without the hollow part); lost GPU-seconds
mostly in      of util   depth  length  lost  of work   depth  length  lost
R reward             2  84 pts   3.5 s   5.0        0
w gather wait        0                              1  84 pts   3.0 s   2.5
Utilization: 2 dips, 1 with every GPU, 1 of one alone; mean of all GPUs: 1 dip,
80 pts, 3.0 s.
Work: 1 dip, 0 with every GPU, 1 of one alone.

GPU-seconds by state
       idle  compute  light  spinning  recorded
GPU 0   6.0      8.0    2.0       4.0      20.0
GPU 1   8.0     11.0    1.0       0.0      20.0
all    14.0     19.0    3.0       4.0      40.0
light: kernels that leave most SMs empty; spinning: a kernel waits; reads as
busy.

Who shares the GPUs
       pid  role            utilization  memory GiB
GPU 0  900  trainer+engine         50 %        80.0
GPU 0  937  reward_worker             –           –

Missing
• payload types: needed for what crossed to the workers; record with `dipstick
  run`

Notes
• sampling: one utilization value every 0.20 s, each a mean over 0.20 s; a dip
  shorter than 0.40 s can stay unseen; 100.0 % of the window covered.
• 1 duplicated row was dropped.
• warning: The clock stepped back by 2 s.
"""

TINY_60_ASCII_TOP = """\
+- tiny - 2 x NVIDIA H200 - 2 ranks - 2 steps - 20.0 s ----+
| Generation is the longest phase and what you pay for.    |
| The dips are the reward phase.                           |
+----------------------------------------------------------+
2 steps, 1.0-21.0 s                       busy  work  hollow
             |step 0      |step 1
GPU 0  util  999994111699689999911119986  70 %  50 %   4.0 s
rank 0 phase GGGGGRRRRwwwBGGGGGGRRRRwwwB
       state #####++++SSS#######++++SSS#
GPU 1  util  999999711111589999993111136  60 %  60 %     0 s
rank 1 phase GGGGGGGRRRRRBGGGGGGGRRRRRRB
       state #######+++++########++++++#
all                      '10 s            65 %  55 %   4.0 s
states  # compute  + light  S spinning
        (phases: table below)

Where each rank's 20.0 s went
phase           rank 0  rank 1  share  median  util  hollow
G generate         8.0    10.0   45 %     4.5  99 %     0.0
"""

EMPTY = """\
╭─ empty · no GPU telemetry · 0 ranks · 0 steps · 0 s ─────────────────────────╮
│ Nothing can be said.                                                         │
╰──────────────────────────────────────────────────────────────────────────────╯
"""


def test_the_whole_screen_at_80_columns_without_colour() -> None:
    """Answer, work against busy beside the lanes, phases that add up, waits, last arrivals, dips, what is missing."""
    assert render(tiny_report()) == TINY_80


def test_everything_at_80_columns_without_colour() -> None:
    """Bars, every wait, every worker, states, tenants, and how to get what is missing."""
    assert render(tiny_report(), full=True) == TINY_80_FULL


def test_the_same_in_ascii_and_narrow() -> None:
    """Digits are tens of percent; the least important columns are gone."""
    top = render(tiny_report(), Look(60, None, unicode=False))[: len(TINY_60_ASCII_TOP)]
    assert top == TINY_60_ASCII_TOP


def test_a_report_of_nothing_is_its_answer() -> None:
    """No empty tables, no empty lanes."""
    assert render(empty_report()) == EMPTY


def test_gpu_samples_alone_have_no_phase_lane_and_no_phase_table() -> None:
    """What nvidia-smi gives is shown, what it does not give is not invented."""
    screen = render(gpus_only_report())
    assert [line for line in screen.splitlines() if line.startswith(("rank", "phases"))] == []
    assert "Where each rank" not in screen
    assert "loss 100 % in no known\n" in screen


@pytest.mark.parametrize(
    "make", [tiny_report, judged_report, empty_report, gpus_only_report, hostile_report, many_report]
)
@pytest.mark.parametrize("color", [None, "truecolor"])
@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_no_line_is_wider_than_the_screen(
    make: object, color: object, width: int, unicode: object, full: object
) -> None:
    """For every report, with and without colour, in each character set and width; and nothing but colour codes is left of escapes."""
    assert callable(make)
    report = make()
    look = Look(width, color, unicode=bool(unicode))  # type: ignore[arg-type] # matrix
    screen = SGR.sub("", render(report, look, full=bool(full)))
    assert [line for line in screen.splitlines() if cell_len(line) > width] == []
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\ud800-\udfff]", screen) == []
    assert screen.isascii() or unicode


def test_without_colour_there_is_no_escape_at_all() -> None:
    """NO_COLOR also means no bold."""
    assert "\x1b" not in render(tiny_report(), Look(100, None))


def test_colour_says_the_same_as_no_colour() -> None:
    """Stripped of codes, the tables are the same; lanes have names instead of rows of letters."""
    plain = render(tiny_report(), full=True).splitlines()
    colored = SGR.sub("", render(tiny_report(), Look(80, "truecolor"), full=True)).splitlines()
    tables = plain.index("Where each rank's 20.0 s went")
    assert [line.rstrip() for line in colored[tables:]] == plain[tables:]
    assert "rank 0 phase generate    reward   w     B  generate     reward   w     B" in [
        x.rstrip() for x in colored
    ]


@pytest.mark.parametrize(
    ("color", "code"),
    [("truecolor", "38;2;0;0;0;48;2;230;159;0m"), ("256", "38;5;16;48;5;178m"), ("standard", "30;43m")],
)
def test_the_reward_phase_has_its_colour_in_each_system(color: str, code: str) -> None:
    """#e69f00, its nearest of 256, and yellow: always with black letters."""
    assert code in render(tiny_report(), Look(80, color))  # type: ignore[arg-type] # parametrized


def test_hollow_columns_of_the_sparkline_are_tinted() -> None:
    """The full blocks while GPU 0 spins have the colour of hollow; those while it generates have none."""
    line = next(
        x for x in render(tiny_report(), Look(80, "truecolor")).splitlines() if x.startswith("GPU 0  util")
    )
    assert "\x1b[38;2;213;94;0m█" in line
    assert line.startswith("GPU 0  util  █████████▄")


def test_a_zoom_that_was_asked_for_has_the_whole_run_above_it() -> None:
    """One sparkline a GPU for orientation, then the lanes of the stretch."""
    report = tiny_report()
    screen = render(report, Look(80), lanes.between(report, 11.0, 16.0))
    assert screen.splitlines()[4:13] == [
        "2 steps, 1.0–21.0 s                                           busy  work  hollow",
        "GPU 0  util  █████████▄▂▂▂▂▂▂▅████▆▅▇█████████▂▂▂▂▂▂▂████▇▅▅  70 %  50 %   4.0 s",
        "GPU 1  util  ███████████▇▂▂▂▂▂▂▂▂▂▅▅▇███████████▃▂▂▂▂▂▂▂▂▃▅▅  60 %  60 %     0 s",
        "all                   ╵5 s        ╵10 s      ╵15 s            65 %  55 %   4.0 s",
        "1 step, 11.0–16.0 s",
        "             │step 1",
        "GPU 0  util  ████████████████████████████████████████████████▇▂▂▂▂▂▂▂▂▂▂▂▂  83 %",
        "rank 0 phase GGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGRRRRRRRRRRRR",
        "       state #################################################++++++++++++",
    ]


def test_a_stretch_that_was_asked_for_keeps_its_axis() -> None:
    """Typical steps have their times in the heading and a mark each; who asks for seconds wants to read seconds."""
    report = tiny_report()
    asked = render(report, Look(80), lanes.between(report, 11.0, 16.0))
    span = replace(lanes.between(report, 11.0, 16.0), first_step=1, last_step=1, typical=True)
    assert ("╵12 s" in asked, "╵12 s" in render(report, Look(80), span)) == (True, False)


def test_many_gpus_are_cut_to_a_screen_and_said_so() -> None:
    """Four GPUs are drawn; the numbers at the end of the axis count all sixteen."""
    screen = render(many_report(16))
    assert len(re.findall("^host[01] GPU . util ", screen, re.MULTILINE)) == 4
    assert "12 more GPUs: --full." in screen
    assert re.search(r"^all .* 70 %  50 %  64\.0 s$", screen, re.MULTILINE)


def test_the_whole_run_has_a_sparkline_for_eight_gpus() -> None:
    """A line each is cheap; the four that are drawn in full follow."""
    report = many_report(16)
    screen = render(report, zoom=lanes.between(report, 11.0, 16.0))
    assert len(re.findall("^host[01] GPU . util ", screen, re.MULTILINE)) == 8 + 4
    assert "8 more GPUs: --full." in screen


def test_in_full_every_gpu_is_drawn() -> None:
    """Sixteen lanes, and sixteen bars above the one for all."""
    screen = render(many_report(16), full=True)
    assert len(re.findall("^host[01] GPU . util ", screen, re.MULTILINE)) == 16
    assert "more GPU" not in screen
    assert re.search(r"^all .* 70 % +50 % +64\.0 s +29 %$", screen, re.MULTILINE)


def test_without_states_a_lane_ends_in_its_mean() -> None:
    """Nothing is known of work and hollow, so there are no headings for them."""
    lines = render(tiny_report(states=())).splitlines()
    assert lines[4] == "2 steps, 1.0–21.0 s"
    assert lines[6].endswith("  70 %")


def test_the_phase_table_is_the_legend_of_its_phases() -> None:
    """Only a letter that the table does not show is named under the lanes."""
    base = breakdown()
    small = tuple(replace(t, share=0.001) if t.phase in {"reward", "backward"} else t for t in base.totals)
    legend = next(
        line
        for line in render(tiny_report(phases=replace(base, totals=small))).splitlines()
        if line.startswith("states")
    )
    assert legend == "states  # compute  + light  S spinning  (phases: table below)  R reward"


def test_more_than_four_ranks_are_least_mean_and_most() -> None:
    """A column a rank would not fit; each of the three columns adds up on its own terms."""
    screen = render(many_report(16))
    assert "phase           least  mean  most  share" in screen
    assert "G generate       17.5  18.3  19.0   91 %" in screen
    assert "  total          20.0  20.0  20.0  100 %" in screen


def screen_of(report: Report, title: str) -> list[str]:
    """The lines of one section."""
    lines = render(report, full=True).splitlines()
    start = lines.index(title)
    end = lines.index("", start) if "" in lines[start:] else len(lines)
    return lines[start:end]


def test_unknown_busy_time_makes_work_a_range() -> None:
    """Busy 60 %, of which 20 % hollow and 10 % not known: 30 to 40 % is work."""
    one = states(0, 10.0, compute=3.0, spinning=2.0, unknown=1.0)
    lines = screen_of(tiny_report(states=(one,)), "Busy by utilization, and doing work")
    assert lines[-1] == "GPU 0  #########~~~~~???............  60 %  30 to 40 %  2.0 to 3.0 s  33 to 50 %"


def test_an_unused_gpu_is_named_and_not_counted() -> None:
    """Its idle time is no dip of the job."""
    unused = replace(states(2), used=False)
    base = tiny_report()
    report = replace(base, states=(*base.states, unused), run=replace(base.run, unused_gpus=("node1:2",)))
    lines = screen_of(report, "Busy by utilization, and doing work")
    assert lines[-2].startswith("all ")
    assert lines[-2].endswith("65 %        55 %   4.0 s     15 %")
    assert lines[-1] == "Never used in the window: node1:2."


def test_small_dips_are_one_row() -> None:
    """Phases with less than 2 % of the loss are told together, so that the table stays a table."""
    dips = (
        dip(deficit_gpu_s=100.0),
        dip(phase="forward", deficit_gpu_s=0.5),
        dip(phase=None, deficit_gpu_s=0.25),
    )
    lines = screen_of(tiny_report(dips=dips, job_dips=()), _DIPS)
    assert lines[2:4] == [
        "R reward         1  84 pts   3.0 s  100.0        0",
        "  others         2  84 pts   3.0 s    0.8        0",
    ]
    assert lines[4] == "Utilization: 3 dips, 0 with every GPU, 3 of one alone."


_DIPS = "Dips of utilization, and of work (without the hollow part); lost GPU-seconds"


def test_gaps_in_the_samples_are_told() -> None:
    """Coverage below 100 % is part of the answer."""
    seen = sampling(coverage=0.9, gaps=3, gap_s=2.0, smallest_visible_dip_s=None, counter_window_s=None)
    report = tiny_report(run=run_info(sampling=seen), notes=())
    assert screen_of(report, "Notes") == [
        "Notes",
        "• sampling: one utilization value every 0.20 s; 90.0 % of the window covered, 3",
        "  gaps of 2.0 s in all.",
    ]


def test_columns_go_in_the_order_they_are_marked() -> None:
    """The highest mark goes first; what is not marked stays."""
    columns = (Column("first"), Column("second", drop=1), Column("third", drop=2))
    table = Table("", columns, (Row(("1", "2", "3")),))
    assert [fitting(table, width) for width in (20, 15, 8, 1)] == [[0, 1, 2], [0, 1], [0], [0]]


def test_a_long_item_hangs_under_its_bullet() -> None:
    """Wrapped lines are indented."""
    look = Look(24)
    console = look.console()
    draw(Bullets("Notes", (("lead", "one two three four five"),)), console, look)
    assert look.text(console) == "Notes\n• lead: one two three\n  four five\n"
