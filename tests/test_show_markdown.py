"""The report as Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from markdown_it import MarkdownIt

from builders import empty_report, hostile_report, tiny_report
from dipstick.show.markdown import escape, render

TINY_HEAD = """\
# tiny · 2 × NVIDIA H200 · 2 ranks · 2 steps · 20.0 s

**Generation is the longest phase and what you pay for. The dips are the reward phase.**

```text
2 steps, 1.0–21.0 s
"""

TINY_PHASES = """\
## Where each rank's 20.0 s went

| phase | rank 0 | rank 1 | share | times | median | p90 | util | hollow |
| :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| generate | 8.0 | 10.0 | 45 % | 4 | 4.5 | 5.0 | 99 % | 0.0 |
| reward | 6.0 | 8.0 | 35 % | 4 | 3.5 | 4.0 | 15 % | 0.0 |
| – parse | 1.0 | 0.0 |  | 2 |  |  |  |  |
| – score | 5.0 | 0.0 |  | 2 |  |  |  |  |
| gather wait | 4.0 | 0.0 | 10 % | 2 | 2.0 | 2.0 | 99 % | 4.0 |
| backward | 2.0 | 1.0 | 8 % | 4 | 0.75 | 1.0 | 60 % | 0.0 |
| unattributed | 0.0 | 1.0 | 2 % |  | 0.50 | 0.50 | – | – |
| **total** | **20.0** | **20.0** | **100 %** |  |  |  |  | **4.0** |
"""

TINY_TAIL = """\
## Who shares the GPUs

|  | pid | role | utilization | memory GiB |
| :--- | ---: | :--- | ---: | ---: |
| GPU 0 | 900 | trainer+engine | 50 % | 80.0 |
| GPU 0 | 937 | reward\\_worker | – | – |

## Missing

- **payload types**: needed for what crossed to the workers; record with \\`dipstick run\\`

## Notes

- **sampling**: one utilization value every 0.20 s, each a mean over 0.20 s; a dip shorter than 0.40 s can stay \
unseen; 100.0 % of the window covered.
- 1 duplicated row was dropped.
- **warning**: The clock stepped back by 2 s.
"""


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen |= {tag, *(f"{tag}.{name}" for name, _ in attrs)}


def test_the_file_begins_with_the_answer_and_ends_with_what_is_missing() -> None:
    """Head, phase table and tail, to the character."""
    text = render(tiny_report())
    assert text.startswith(TINY_HEAD)
    assert TINY_PHASES in text
    assert text.endswith(TINY_TAIL)


def test_an_empty_report_is_two_lines() -> None:
    """What was recorded, and that nothing can be said."""
    assert (
        render(empty_report())
        == "# empty · no GPU telemetry · 0 ranks · 0 steps · 0 s\n\n**Nothing can be said.**\n"
    )


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    """Pipes in recorded strings make no columns."""
    for block in render(hostile_report()).split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) <= 1


def test_hostile_strings_make_no_markup() -> None:
    """Rendered by a CommonMark parser with raw HTML allowed, only the tags of our own Markdown come out."""
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(render(hostile_report()))
    tags = {tag for tag in Tags(page).seen if "." not in tag}
    assert tags == {
        "h1",
        "h2",
        "p",
        "strong",
        "pre",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "ul",
        "li",
    }


def test_special_characters_are_escaped() -> None:
    """Each of them shows as itself."""
    assert escape(r"a|b `x` *y* _z_ [l](u) <i> & # ~ \ ") == (
        r"a\|b \`x\` \*y\* \_z\_ \[l\](u) &lt;i&gt; &amp; \# \~ \\ "
    )
