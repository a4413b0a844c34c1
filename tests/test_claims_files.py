"""Claims files: plain YAML of plain words, whatever else YAML could be made to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dipstick
from dipstick.errors import DipstickError, UsageError
from dipstick.verdicts.claims import MOST_BYTES, MOST_CLAIMS, Said, from_yaml
from dipstick.verdicts.said import gather

if TYPE_CHECKING:
    from pathlib import Path

STEPS = Said("locked_to_steps", "locked_to_steps", {})


def refusal(text: str) -> UsageError:
    """Why a file is refused."""
    with pytest.raises(UsageError) as caught:
        from_yaml(text, "claims.yaml")
    return caught.value


def test_a_file_is_a_list_of_what_is_said_and_how_it_is_tested() -> None:
    """What is said is optional."""
    text = """
    - say: rewards cost most
      test: paid_most_for
      phase: reward
    - {test: locked_to_steps}
    - {say: , test: locked_to_steps}
    """

    assert from_yaml(text, "f") == [
        Said("rewards cost most", "paid_most_for", {"phase": "reward"}),
        STEPS,
        STEPS,
    ]


@pytest.mark.parametrize(
    ("row", "parameters"),
    [
        ("{test: straggler_rank, rank: 1}", {"rank": 1}),
        ('{test: straggler_rank, rank: "1"}', {"rank": 1}),
        ("{test: drifts, of: step}", {"of": "step"}),
        ("{test: high_utilization_means_work, hollow_below: 5}", {"hollow_below": 5.0}),
    ],
)
def test_scalars_are_words_and_become_the_parameter_s_type(row: str, parameters: dict[str, object]) -> None:
    """Quoted or not."""
    assert from_yaml(f"- {row}", "f")[0].parameters == parameters


@pytest.mark.parametrize("say", ["yes", "1:30", "2001-99-99", "0x10", "~", "1e3", "!!int 5", "no: really"])
def test_what_is_said_is_never_reinterpreted(say: str) -> None:
    """YAML would make a boolean, a number in base 60 or an invalid date of some of these."""
    text = (
        f"- say: '{say}'\n  test: locked_to_steps"
        if ":" in say or "~" in say
        else f"- say: {say}\n  test: locked_to_steps"
    )

    assert from_yaml(text, "f")[0].say == say.removeprefix("!!int ")


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("just words", "a claim is {say: ..., test: NAME, ...}"),
        ("{say: no test}", "a claim is {say: ..., test: NAME, ...}"),
        ("{test: [locked_to_steps]}", "a claim is {say: ..., test: NAME, ...}"),
        ("{test: paid_most_for, phase: {reward: 1}}", "a claim is {say: ..., test: NAME, ...}"),
        ("{? [a, b] : c, test: locked_to_steps}", "a claim is {say: ..., test: NAME, ...}"),
        ("{test: locked_to_steps, <<: {phase: reward}}", "a claim is {say: ..., test: NAME, ...}"),
        ("{test: paid_most_for, phase: reward, phase: generate}", "'phase' is given twice"),
        ("{test: paid_most_for, Phase: reward}", "paid_most_for has no parameter 'Phase'"),
        ("{test: straggler_rank, rank: 2.7}", "rank='2.7' is no int"),
        ("{test: straggler_rank, rank: true}", "rank='true' is no int"),
        ("{test: high_utilization_means_work, hollow_below: .nan}", "hollow_below='.nan' is no float"),
        ("{test: hunch}", "there is no test 'hunch'"),
        ("!!python/object/apply:os.system [touch /tmp/pwned]", "a claim is {say: ..., test: NAME, ...}"),
    ],
)
def test_a_bad_claim_is_named_by_its_place_in_the_file(row: str, what: str) -> None:
    """The first claim is good, the second is not."""
    error = refusal(f"- test: locked_to_steps\n- {row}\n")

    assert (error.where, error.what) == ("claims.yaml, claim 2", what)


@pytest.mark.parametrize(
    "text",
    ["", "~", "claims", "{say: x, test: locked_to_steps}", "- {test: locked_to_steps}\n" * (MOST_CLAIMS + 1)],
)
def test_a_file_that_is_no_list_of_at_most_200_claims_is_refused(text: str) -> None:
    """Nothing, a word, one claim without its dash, one claim too many."""
    assert refusal(text).what == "expected a list of at most 200 claims"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- {test: locked_to_steps", "in line 1"),
        ("- test: a\n  - b", "in line 2"),
        ("- a\0b", "special characters are not allowed"),
        ("--- [a]\n--- [b]", "in line 2"),
        ("- *nobody", "undefined alias 'nobody' in line 1"),
        ("- \t@", "in line 1"),
        ("[" * 2000, "recursion"),
        ("- " * 2000, "recursion"),
    ],
)
def test_broken_yaml_is_a_usage_error_that_says_where(text: str, problem: str) -> None:
    """Also where Python's stack is what breaks."""
    error = refusal(text)

    assert error.what.startswith("not readable as YAML: ")
    assert problem in error.what
    assert error.where == "claims.yaml"


def test_a_bomb_of_aliases_is_refused_before_it_unfolds() -> None:
    """Nine levels of nine: 387 million strings if anybody looked inside."""
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n"
    for name, before in zip("bcdefghi", "abcdefgh", strict=True):
        bomb += f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    inside = "".join(f"- {line}\n" for line in bomb.splitlines())
    claim = "- test: locked_to_steps\n  phase: *i\n"

    assert refusal(bomb).what == "expected a list of at most 200 claims"
    assert refusal(inside + claim).what == "a claim is {say: ..., test: NAME, ...}"


def test_a_list_that_holds_itself_is_refused() -> None:
    """An alias to its own anchor."""
    assert refusal("&a [*a]").what == "a claim is {say: ..., test: NAME, ...}"


def test_a_claim_may_be_repeated_by_its_alias() -> None:
    """That is no bomb."""
    assert from_yaml("- &a {test: locked_to_steps}\n- *a", "f") == [STEPS, STEPS]


def test_a_hundred_thousand_claims_are_too_large_a_file() -> None:
    """They are not even parsed."""
    assert refusal("- {test: locked_to_steps}\n" * 100_000).what == "the file is larger than 256 KiB"


@given(st.text(max_size=60))
def test_any_text_is_claims_or_a_usage_error(text: str) -> None:
    """Nothing else comes out, whatever goes in."""
    try:
        found = from_yaml(f"- {text}", "f")
    except UsageError as error:
        assert error.where.startswith("f")  # noqa: PT017 - both outcomes are right
    else:
        assert all(isinstance(claim, Said) for claim in found)


# Files and words together


def test_files_come_before_words(tmp_path: Path) -> None:
    """In the order given."""
    (tmp_path / "a.yaml").write_text("- {say: one, test: locked_to_steps}")
    (tmp_path / "b.yaml").write_text("- {say: two, test: locked_to_steps}")

    found = gather([tmp_path / "a.yaml", tmp_path / "b.yaml"], ["three: locked_to_steps"])

    assert [claim.say for claim in found] == ["one", "two", "three"]


def test_a_single_string_is_one_claim_or_one_file(tmp_path: Path) -> None:
    """Not a sequence of letters."""
    (tmp_path / "claims.yaml").write_text("- {say: x, test: hunch}")

    assert gather([], "locked_to_steps") == (STEPS,)
    with pytest.raises(UsageError, match="there is no test 'hunch'"):
        dipstick.explain(tmp_path, claims_files=str(tmp_path / "claims.yaml"))


def test_no_claims_are_no_claims() -> None:
    """The scorecard is judged all the same."""
    assert gather([], []) == ()


@pytest.mark.parametrize(
    ("data", "why"),
    [(None, "No such file or directory"), (b"- \xff\xfe", "invalid start byte")],
)
def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path, data: bytes | None, why: str) -> None:
    """Missing, or not UTF-8."""
    path = tmp_path / "claims.yaml"
    if data is not None:
        path.write_bytes(data)

    with pytest.raises(UsageError, match=why) as caught:
        gather([path], [])
    assert caught.value.where == str(path)


def test_a_folder_is_no_claims_file(tmp_path: Path) -> None:
    """The message says what it is."""
    with pytest.raises(UsageError, match="Is a directory"):
        gather([tmp_path], [])


def test_no_more_is_read_than_a_claims_file_may_have(tmp_path: Path) -> None:
    """A log of gigabytes, or a device that never ends."""
    path = tmp_path / "claims.yaml"
    path.write_bytes(b"#" * (MOST_BYTES + 1))

    for endless in (path, path.parent / "zero"):
        if endless.name == "zero":
            endless.symlink_to("/dev/zero")
        with pytest.raises(UsageError, match="larger than 256 KiB"):
            gather([endless], [])


def test_too_many_claims_in_all_are_refused() -> None:
    """Each would cost time; a hundred thousand of them, hours."""
    with pytest.raises(UsageError, match="more than 200 claims"):
        gather([], ["locked_to_steps"] * 100_000)


def test_claims_are_compiled_before_the_recording_is_opened(tmp_path: Path) -> None:
    """A typo costs nothing: the recording does not even exist."""
    with pytest.raises(UsageError, match="there is no test 'hunch'"):
        dipstick.explain(tmp_path / "nowhere", claims=["hunch"])
    with pytest.raises(DipstickError, match="no such folder"):
        dipstick.explain(tmp_path / "nowhere", claims=["locked_to_steps"])
