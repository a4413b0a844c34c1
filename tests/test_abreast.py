"""The same work for several GPUs at a time gives what a plain loop gives."""

from __future__ import annotations

import threading

import pytest

from dipstick.analysis.abreast import abreast


def test_results_come_in_the_order_of_the_items() -> None:
    """Also where a later item is done first: the first one waits here until the second has run."""
    second_ran = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert second_ran.wait(timeout=60)
        else:
            second_ran.set()
        return item * 10

    assert abreast(work, range(4), workers=2) == [0, 10, 20, 30]


def test_one_item_or_one_worker_needs_no_thread() -> None:
    """It runs where the caller runs."""
    here = threading.get_ident()
    assert abreast(lambda _: threading.get_ident(), [1], workers=8) == [here]
    assert abreast(lambda _: threading.get_ident(), [1, 2], workers=1) == [here, here]
    assert abreast(str, []) == []


def test_an_error_of_one_item_reaches_the_caller() -> None:
    """The first item's, as in a loop."""

    def work(item: int) -> int:
        raise ValueError(item)

    with pytest.raises(ValueError, match=r"^0$"):
        abreast(work, range(3), workers=3)
