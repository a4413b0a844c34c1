"""The A/B's arithmetic, and that it times the command and nothing around it."""

from __future__ import annotations

import math
import sys

import pytest

import ab


def test_the_ratio_is_a_geometric_mean_with_students_interval() -> None:
    """Worked: logarithms 0.0953, 0, 0.0953; t(2, 0.975) = 4.303."""
    found = ab.ratio([(11, 10), (10, 10), (11, 10)])
    half = 4.302653 * 0.0550 / math.sqrt(3)
    assert found.mean == pytest.approx(1.1 ** (2 / 3))
    assert (found.low, found.high) == pytest.approx(
        (found.mean * math.exp(-half), found.mean * math.exp(half)), rel=1e-3
    )


def test_one_pair_has_no_interval() -> None:
    """Anything is possible."""
    assert ab.ratio([(12, 10)]) == ab.Ratio(pytest.approx(1.2), 0.0, math.inf)  # type: ignore[arg-type] # it compares


def test_both_arms_run_the_same_command() -> None:
    """The recorded arm under the probe, the other without."""
    code = "import os, sys; sys.exit(0 if bool(os.environ.get('DIPSTICK_RUN_DIR')) == (sys.argv[1] == 'yes') else 9)"
    for recorded, word in ((True, "yes"), (False, "no")):
        wall, cpu = ab.timed([sys.executable, "-c", code, word], recorded=recorded)
        assert wall > 0
        assert cpu > 0


def test_a_failing_command_gives_no_figure() -> None:
    """The status is said."""
    with pytest.raises(SystemExit, match="status 3"):
        ab.timed([sys.executable, "-c", "raise SystemExit(3)"], recorded=False)
