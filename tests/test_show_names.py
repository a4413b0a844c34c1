"""Names and what stands for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipstick.show.names import Names

CODE = "/home/ann/acme/train.py"


@pytest.fixture
def names() -> Names:
    """Two hosts (one with a domain), a user's file, a command line."""
    return Names(["node7.lab.example", "node8"], [CODE], ["python train.py --key of-ann"], ["~bob/x"])


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("node7.lab.example", "host1"),
        ("node7", "host1"),
        ("NODE8", "host2"),
        ("node8:0", "host2:0"),
        ("GPU 1 on node7 was never used", "GPU 1 on host1 was never used"),
        ("node70 and my_node8_log", "node70 and my_host2_log"),
        ("host = 'node7'", "host = 'host1'"),
        (CODE, "folder1/train.py"),
        (f"called in {CODE}:42, twice", "called in folder1/train.py:42, twice"),
        ("/home/ann/acme/reward.py:7", "folder1/reward.py:7"),
        ("saved to /scratch/ann/ckpt-500 now", "saved to path1 now"),
        ("C:\\Users\\Ann\\x.txt", "path1"),
        ("by ann-2 and Bob", "by user1-2 and user2"),
        ("python train.py --key of-ann", "command1"),
        ("http://node7:8000/v1", "url1"),
        ("s3://bucket/of/ann", "url1"),
        ("10.0.0.17 and 10.0.0.18", "address1 and address2"),
        ("ann@lab.example", "user1@lab.example"),
        ("eve@lab.example", "address1"),
        ("forward and/or backward, 1 / 2, GPU-s/step", "forward and/or backward, 1 / 2, GPU-s/step"),
        ("profiling/Time taken", "profiling/Time taken"),
        ("generate", "generate"),
        ("", ""),
    ],
)
def test_text(names: Names, text: str, hidden: str) -> None:
    """Whole names only, in any case, wherever they stand; words that are no names stay."""
    assert names.text(text) == hidden


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/opt/v/lib/python3.11/site-packages/trl/trainer/grpo_trainer.py", "site-packages/trl/trainer/grpo_trainer.py"),
        ("/opt/v/lib/python3.11/site-packages/acme_rl/secret.py", "folder2/secret.py"),
        ("/usr/lib/python3.11/multiprocessing/pool.py", "site-packages/multiprocessing/pool.py"),
        ("src/acme/reward.py", "folder2/reward.py"),
        ("reward.py", "reward.py"),
        ("/data/run/model.bin", "path1"),
        ("/x/train_node8.py", "folder2/file1"),
    ],
)  # fmt: skip
def test_files(names: Names, path: str, shown: str) -> None:
    """A source file keeps its own name, a file of a public package its place; anything else is a number."""
    assert names.file(path) == shown


def test_the_same_name_is_the_same_word_everywhere(names: Names) -> None:
    """In host columns, in sentences, in queries."""
    assert {names.host("node7.lab.example"), names.text("node7"), names.host("NODE7")} == {"host1"}


def test_longer_hosts_are_found_first() -> None:
    """node1 inside node1-a is not node1, and node1.x is one host with node1."""
    found = Names(["node1", "node1-a"], [], [])
    assert found.text("node1-a node1 node1.lab") == "host2 host1 host1.lab"


def test_a_host_that_is_a_word_of_ours_is_replaced_where_it_is_a_host() -> None:
    """Otherwise the phase would lose its name, too."""
    found = Names(["generate", "a"], [], [])
    assert (found.host("generate"), found.text("a dip of generate")) == ("host2", "a dip of generate")
    assert found.host("a") == "host1"


def test_an_account_that_names_nobody_is_no_user() -> None:
    """Containers' home is /home/ray; the word Ray stays."""
    found = Names([], ["/home/ray/anaconda3/x.py"], [])
    assert found.text("Ray actor") == "Ray actor"


@given(st.lists(st.text(min_size=3, max_size=30), max_size=4), st.text(max_size=60))
def test_any_names_make_a_pattern(hosts: list[str], text: str) -> None:
    """Hostile names are data: no pattern breaks, and none of them is left in a sentence that quotes it."""
    found = Names(hosts, hosts, hosts, hosts)
    found.text(text)
    assert [h for h in hosts if found.host(h) == h and h.strip() and not h.startswith("host")] == []
