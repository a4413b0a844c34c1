"""The page's own scripts, function by function, in the browser that runs them: columns, stretches, pixels, splices."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from browsing import Visit, visit
from dipstick.show.html import asset

if TYPE_CHECKING:
    from collections.abc import Iterator

Cells = dict[str, list[float]]


@pytest.fixture(scope="module")
def blank() -> Iterator[Visit]:
    """An empty page, whose policy lets a test run what it likes."""
    with visit("about:blank", ready=False) as opened:
        yield opened


def run(blank: Visit, body: str, *scripts: str) -> Any:
    """What the body returns, with these scripts before it."""
    whole = "\n".join(str(asset(name)) for name in scripts or ("data.js", "pixels.js", "fine.js"))
    return blank.js(f"(() => {{ {whole}\n{PARTS}\n{body} }})()")


PARTS = """
const cells = ([t0, t1, low, high, mean, site]) => ({ t0: Float64Array.from(t0), t1: Float64Array.from(t1), low: Float32Array.from(low),
  high: Float32Array.from(high || low), mean: Float32Array.from(mean || low), site: site ? Uint32Array.from(site) : null });
const plain = (o) => Object.fromEntries(Object.entries(o).map(([k, v]) => [k, v && [...v].map((n) => Number.isFinite(n) ? n : null)]));
"""


def spliced(blank: Visit, whole: list[Any], part: list[Any], a: float, b: float) -> Cells:
    """The cells of ``whole`` with ``part`` from a to b."""
    found: Cells = run(
        blank, f"return plain(splice(cells({json.dumps(whole)}), cells({json.dumps(part)}), {a}, {b}));"
    )
    return found


COARSE = [[0, 10, 20, 30], [10, 20, 30, 40], [1, 2, 3, 4], [11, 12, 13, 14], [5, 6, 7, 8]]


def test_a_splice_takes_the_place_of_what_it_covers(blank: Visit) -> None:
    """Columns of 10 s; samples from 10 to 20 s: one column goes, two samples come."""
    found = spliced(blank, COARSE, [[10, 15], [15, 20], [2, 12]], 10, 20)
    assert found["t0"] == [0, 10, 15, 20, 30]
    assert found["t1"] == [10, 15, 20, 30, 40]
    assert (found["low"], found["high"]) == ([1, 2, 12, 3, 4], [11, 2, 12, 13, 14])
    assert found["mean"] == [5, 2, 12, 7, 8]


def test_a_splice_cuts_the_columns_at_its_edges(blank: Visit) -> None:
    """From 5 to 25 s: the columns before and after it keep their least and most, and end where it begins."""
    found = spliced(blank, COARSE, [[5, 15], [15, 25], [2, 12]], 5, 25)
    assert found["t0"] == [0, 5, 15, 25, 30]
    assert found["t1"] == [5, 15, 25, 30, 40]
    assert found["high"] == [11, 2, 12, 13, 14]


def test_a_splice_inside_one_column_leaves_both_its_ends(blank: Visit) -> None:
    """From 12 to 14 s: the column is there before and after."""
    found = spliced(blank, COARSE, [[12, 13], [13, 14], [2, 12]], 12, 14)
    assert found["t0"] == [0, 10, 12, 13, 14, 20, 30]
    assert found["t1"] == [10, 12, 13, 14, 20, 30, 40]
    assert found["low"] == [1, 2, 2, 12, 2, 3, 4]


def test_what_reaches_over_the_stretch_is_cut(blank: Visit) -> None:
    """More is read than was asked for: nothing of it overlaps the columns beside it."""
    found = spliced(blank, COARSE, [[2, 9, 13, 19, 22], [9, 13, 19, 22, 29], [1, 2, 3, 4, 5]], 10, 20)
    assert found["t0"] == [0, 10, 13, 19, 20, 30]
    assert found["t1"] == [10, 13, 19, 20, 30, 40]
    assert found["low"] == [1, 2, 3, 4, 3, 4]


def test_a_hole_in_the_stretch_is_a_hole(blank: Visit) -> None:
    """Nothing was sampled there: the column that hid it goes."""
    found = spliced(blank, COARSE, [[0], [0.5], [9]], 10, 20)
    assert (found["t0"], found["t1"]) == ([0, 20, 30], [10, 30, 40])


def test_a_splice_of_everything_and_one_past_the_end(blank: Visit) -> None:
    """The whole run at once, and a stretch that begins after the last column: it is appended."""
    assert spliced(blank, COARSE, [[0, 20], [20, 40], [1, 2]], 0, 40)["low"] == [1, 2]
    assert spliced(blank, COARSE, [[40], [50], [7]], 40, 50)["t0"] == [0, 10, 20, 30, 40]
    assert spliced(blank, [[], [], []], [[40], [50], [7]], 40, 50)["low"] == [7]


def test_phases_bring_the_code_that_they_were_in(blank: Visit) -> None:
    """The numbers of the sites are spliced like the codes."""
    found = spliced(
        blank,
        [[0, 10], [10, 20], [3, 4], None, None, [7, 8]],
        [[10, 12], [12, 20], [5, 6], None, None, [1, 2]],
        10,
        20,
    )
    assert (found["low"], found["site"]) == ([3, 5, 6], [7, 1, 2])


def test_a_column_of_the_screen_has_least_most_and_mean_of_what_touches_it(blank: Visit) -> None:
    """Four seconds on two columns: 1 and 9, then 2 for a quarter of the second column and 6 for the rest."""
    found = run(
        blank, "return plain(reduce(cells([[0, 1, 2, 2.5], [1, 2, 2.5, 4], [1, 9, 2, 6]]), 0, 4, 2));"
    )
    assert (found["low"], found["high"], found["mean"]) == ([1, 2], [9, 6], [5, 5])
    assert found["many"] == [2, 2]


def test_what_was_not_measured_is_no_zero_on_the_screen(blank: Visit) -> None:
    """A column of NaN alone has no least and no mean; beside numbers NaN counts for nothing."""
    found = run(
        blank, "return plain(reduce(cells([[0, 1, 2, 3], [1, 2, 3, 4], [NaN, NaN, NaN, 8]]), 0, 4, 2));"
    )
    assert (found["low"], found["high"], found["mean"]) == ([None, 8], [None, 8], [None, 8])
    assert found["many"] == [0, 1]


def test_a_thinned_cell_makes_a_column_dense(blank: Visit) -> None:
    """It stands for many samples: the mean is drawn as the line, and least to most as a band."""
    many = run(blank, "return plain(reduce(cells([[0, 2], [2, 4], [1, 3], [9, 3], [4, 3]]), 0, 4, 2)).many;")
    assert many == [8, 1]


def test_stretches_narrower_than_a_pixel_share_it(blank: Visit) -> None:
    """The code that covers most of the pixel gets it; a wider one is drawn as it is."""
    drawn = run(
        blank,
        "const out = []; stretches(cells([[0, .2, .5, 1, 3], [.2, .5, 1, 3, 4], [1, 2, 1, 5, 2]]), 0, 4, 4, (a, b, c) => out.push([a, b, c])); return out;",
    )
    assert drawn == [[0, 1, 1], [1, 3, 5], [3, 4, 2]]


def pixels(blank: Visit, body: str, width: int, height: int) -> list[list[list[int]]]:
    """Rows of [red, green, blue, opacity] after ``body`` wrote into ``p``."""
    flat = run(
        blank,
        f"const p = new Pixels(); p.begin({width}, {height}); {body}\n"
        "const c = document.createElement('canvas'); c.width = p.width; c.height = p.height; const ctx = c.getContext('2d');"
        "p.put(ctx, 0, 0, p.width); return [...ctx.getImageData(0, 0, p.width, p.height).data];",
    )
    rows = [flat[4 * width * y : 4 * width * (y + 1)] for y in range(height)]
    return [[row[4 * x : 4 * x + 4] for x in range(width)] for row in rows]


RED, NONE = [255, 0, 0, 255], [0, 0, 0, 0]


def test_a_rectangle_of_pixels_is_where_it_should_be(blank: Visit) -> None:
    """From column 1 up to 3, row 1 up to 2."""
    found = pixels(blank, "p.fill(1, 3, 1, 2, word('#ff0000'));", 4, 3)
    assert found == [[NONE] * 4, [NONE, RED, RED, NONE], [NONE] * 4]


def test_what_lies_outside_the_picture_is_cut_off(blank: Visit) -> None:
    """No wrapping round to the next row, no error."""
    found = pixels(
        blank, "p.fill(-5, 1, -5, 9, word('#ff0000')); p.tint(1, 2, 9, word('#ff0000', 255));", 2, 2
    )
    assert found == [[RED, NONE], [RED, NONE]]


def test_see_through_colours_add_up(blank: Visit) -> None:
    """Half red over nothing is half red; half blue over solid red is purple, and stays solid."""
    found = pixels(
        blank,
        "p.tint(0, 0, 1, word('#ff0000', 128)); p.fill(1, 2, 0, 1, word('#ff0000')); p.tint(1, 0, 1, word('#0000ff', 128));",
        2,
        1,
    )
    assert found[0][0] == [255, 0, 0, 128]
    assert found[0][1] == [127, 0, 128, 255]


def test_many_pale_bands_stay_in_their_colours(blank: Visit) -> None:
    """Eight GPUs at the same place: as opaque as eight layers of 13 % are, each pixel of the column the same."""
    found = pixels(blank, "for (let i = 0; i < 8; i++) p.tint(0, 0, 3, word('#996633', 33));", 1, 3)
    (red, green, blue, opacity) = found[0][0]
    assert opacity == pytest.approx(255 * (1 - (1 - 33 / 255) ** 8), abs=4)
    assert [red, green, blue] == pytest.approx([153, 102, 51], abs=4)
    assert found[0] == found[1] == found[2]


def test_a_picture_is_empty_when_it_is_begun_again(blank: Visit) -> None:
    """Nothing of the frame before shows, at the same size or another."""
    red = "p.fill(0, 9, 0, 9, word('#ff0000'));"
    assert pixels(blank, f"{red} p.begin(2, 1);", 2, 1) == [[NONE, NONE]]
    assert pixels(blank, f"p.begin(5, 5); {red} p.begin(2, 1);", 2, 1) == [[NONE, NONE]]


def test_a_picture_of_no_size_is_no_error(blank: Visit) -> None:
    """A track that is hidden has none; it is a pixel then, and a size of half a pixel is rounded."""
    assert run(blank, "const p = new Pixels(); p.begin(0, 0); return [p.width, p.height];") == [1, 1]
    assert run(blank, "const p = new Pixels(); p.begin(10.4, 2.6); return [p.width, p.height];") == [10, 3]
