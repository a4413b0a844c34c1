"""Command lines are scrubbed before they are written: what looks like a secret is hidden, the rest stays readable."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.capture.privacy import LONGEST, scrub, scrub_text


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["python", "t.py", "--api-key", "abc"], "python t.py --api-key ***"),
        (["t", "--api_key=abc", "--lr", "1e-4"], "t --api_key=*** --lr 1e-4"),
        (["t", "--hf-token", "abc", "--password", "pw"], "t --hf-token *** --password ***"),
        (["t", "-token", "abc"], "t -token ***"),
        (["t", "--token", "--verbose"], "t --token --verbose"),
        (["env", "HF_TOKEN=abc", "WANDB_API_KEY=0123", "t"], "env HF_TOKEN=*** WANDB_API_KEY=*** t"),
        (["t", "AWS_SECRET_ACCESS_KEY=a/b+c"], "t AWS_SECRET_ACCESS_KEY=***"),
        (["t", "trainer.wandb.api_key=abc", "+hub.token=x"], "t trainer.wandb.api_key=*** +hub.token=***"),
        (["t", "hf_abcdefghij", "sk-proj-abcdef"], "t *** ***"),
        (["t", "ghp_0123456789", "xoxb-1234567", "AKIA0123456789ABCDEF"], "t *** *** ***"),
        (["t", "eyJhbGciOi.eyJzdWIi.c2ln"], "t ***"),
        (["t", "https://me:pw@host/path"], "t https://***@host/path"),
        (["t", "postgres://user@db/name"], "t postgres://***@db/name"),
        (["t", "https://h/x?token=abc&n=1"], "t 'https://h/x?token=***&n=1'"),
        (
            ["t", "https://s3/x?X-Amz-Signature=ff&Expires=9"],
            "t 'https://s3/x?X-Amz-Signature=***&Expires=9'",
        ),
        (["curl", "-H", "Authorization: Bearer abc.def"], "curl -H 'Authorization: Bearer ***'"),
        (["t", '{"api_key": "abc", "n": 3}'], 't \'{"api_key": ***, "n": 3}\''),
    ],
)
def test_secrets_are_hidden(arguments: list[str], shown: str) -> None:
    """By the name before them, by their own form, in URLs, headers and JSON."""
    assert scrub(arguments) == shown


def test_a_whole_shell_script_in_one_argument() -> None:
    """``bash -c`` holds assignments, flags and quoted values."""
    script = "export WANDB_API_KEY=0123; FOO_SECRET='a b' python t.py --token abc --seed 1 && echo done"
    hidden = "export WANDB_API_KEY=***; FOO_SECRET=*** python t.py --token *** --seed 1 && echo done"
    assert scrub(["bash", "-c", script]) == f"bash -c {shlex.quote(hidden)}"


@pytest.mark.parametrize(
    "argument",
    [
        "--tokenizer=gpt2", "--max_tokens=512", "TOKENIZERS_PARALLELISM=false", "--monkey=3", "--author=me",
        "AUTHOR=me", "git@github.com:org/repo", "user@host", "--keyboard", "sk-1", "hf_abc", "model=Qwen/Qwen2-7B",
        "https://host/a?page=2", "s3://bucket/data", "--num-keypoints=4",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(argument: str) -> None:
    """A name must hold the word itself: ``--tokenizer`` is no token."""
    assert scrub(["t", argument, "value"]) == f"t {shlex.quote(argument)} value"


def test_the_result_can_be_pasted_into_a_shell() -> None:
    """Quoted as typed; only the hidden parts are lost."""
    assert shlex.split(scrub(["python", "-c", "print('a b')", ""])) == ["python", "-c", "print('a b')", ""]


def test_a_long_command_line_is_cut() -> None:
    """The recording keeps its beginning."""
    shown = scrub(["t", *(["argument"] * 10_000)])
    assert len(shown) == LONGEST
    assert shown.startswith("t argument argument")
    assert shown.endswith("…")


def test_a_name_that_is_longer_than_any_real_one_still_hides_its_value() -> None:
    """The pattern is bounded so that no argument can stall it; the bound must not open a hole."""
    assert scrub(["a" * 300 + "_TOKEN=abc"]) == "a" * 300 + "_TOKEN=***"


@given(
    st.text(alphabet="aA_-=:/@?&'\" \t", max_size=60),
    st.sampled_from(["HF_TOKEN=", "--api-key=", "db_password="]),
)
def test_a_secret_does_not_survive_its_surroundings(before: str, name: str) -> None:
    """Whatever stands before the name, a value after it is hidden."""
    assert "s3cr3tvalue" not in scrub_text(f"{before} {name}s3cr3tvalue")
