"""How the probe gets into a process, what it writes first, and that it stays out when told."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from probed import FOLDER, environment, read, run_probed, write_package

ROOT = Path(__file__).resolve().parent.parent


def python(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path, env=variables, timeout=60
    )  # fmt: skip


def test_a_process_says_who_it_is_and_ends_in_good_order(tmp_path: Path) -> None:
    """First meta and an anchor, last an anchor and the end; the name holds host, pid and start."""
    done = run_probed(tmp_path, "print('trained')", RANK="3", LOCAL_RANK="1", WORLD_SIZE="8")
    meta, first = done.main.rows[:2]
    assert (done.status, done.out, done.err) == (0, "trained\n", "")
    assert (meta["k"], meta["host"], meta["rank"], meta["local_rank"], meta["world_size"]) == (
        "meta", os.uname().nodename, 3, 1, 8,
    )  # fmt: skip
    assert meta["python"] == ".".join(map(str, sys.version_info[:3]))
    assert done.main.path.name == f"{meta['host']}.{meta['pid']}.{meta['start']}.jsonl"
    assert (first["k"], [row["k"] for row in done.main.rows[-2:]]) == ("anchor", ["anchor", "end"])


def test_an_anchor_pairs_both_clocks(tmp_path: Path) -> None:
    """The two anchors of a short process differ by the same time on both clocks, to a tenth of a second."""
    anchors = run_probed(tmp_path, "").main.of("anchor")
    mono, unix = ([anchor[clock] for anchor in anchors] for clock in ("m", "u"))
    assert abs((mono[-1] - mono[0]) - (unix[-1] - unix[0])) < 10**8


def test_nobody_else_can_read_a_recording(tmp_path: Path) -> None:
    """The folder is 0700 and a segment 0600 whatever the umask."""
    segment = run_probed(tmp_path, "").main.path
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (segment.parent, segment)]
    assert modes == [0o700, 0o600]


@pytest.mark.parametrize(
    "variables", [{"DIPSTICK_DISABLE": "1"}, {"DIPSTICK_DISABLE": "yes"}, {"DIPSTICK_PROBE": "0"}]
)
def test_it_stays_out_when_told(tmp_path: Path, variables: dict[str, str]) -> None:
    """Nothing is written and nothing is imported: the way to keep it out of a sandbox."""
    code = "import sys; print(sorted(n for n in sys.modules if n.startswith('dipstick_probe.hooks')))"
    done = run_probed(tmp_path, code, **variables)
    assert (done.out, done.segments) == ("[]\n", [])


@pytest.mark.parametrize("value", ["0", "", "no", "false"])
def test_a_disable_that_says_no_does_not_disable(tmp_path: Path, value: str) -> None:
    """``DIPSTICK_DISABLE=0`` records."""
    assert len(run_probed(tmp_path, "", DIPSTICK_DISABLE=value).segments) == 1


def test_without_a_run_it_does_nothing(tmp_path: Path) -> None:
    """On the path but without DIPSTICK_RUN_DIR the process is as it would be."""
    done = python(tmp_path, "-c", "print(1)", PYTHONPATH=str(FOLDER))
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("1\n", "", [])


@pytest.mark.parametrize("trouble", ["missing", "file", "link"])
def test_an_unusable_run_folder_does_not_stop_training(tmp_path: Path, trouble: str) -> None:
    """Missing, a file, or a probe folder that is somebody's symlink: silent, unrecorded, and nothing is written there."""
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if trouble == "file":
        run.touch()
    elif trouble == "link":
        run.mkdir()
        (run / "probe").symlink_to(elsewhere)
    done = python(tmp_path, "-c", "print(1)", **environment(run))
    assert (done.stdout, done.stderr, done.returncode, list(elsewhere.iterdir())) == ("1\n", "", 0, [])


def test_the_next_sitecustomize_runs_under_its_own_name(tmp_path: Path) -> None:
    """A site's own start-up code keeps working, and `import sitecustomize` gives the site's."""
    write_package(tmp_path, {"site/sitecustomize.py": "import builtins; builtins.SITE = 'ran'; COMPANY = 42"})
    code = "import sitecustomize; print(SITE, sitecustomize.COMPANY, sitecustomize.__name__)"
    done = run_probed(tmp_path, code, PYTHONPATH=str(tmp_path / "site"))
    assert (done.out, len(done.segments)) == ("ran 42 sitecustomize\n", 1)


def test_an_error_in_the_next_sitecustomize_is_its_own(tmp_path: Path) -> None:
    """Python reports it as it would without us, and both the program and the recording go on."""
    write_package(tmp_path, {"site/sitecustomize.py": "raise ValueError('the site is broken')"})
    done = run_probed(tmp_path, "print(1)", PYTHONPATH=str(tmp_path / "site"))
    bare = python(tmp_path, "-c", "print(1)", PYTHONPATH=str(tmp_path / "site"))
    assert (done.out, bare.stdout, len(done.segments)) == ("1\n", "1\n", 1)
    assert done.err == bare.stderr


def test_our_folder_twice_on_the_path_starts_one_probe(tmp_path: Path) -> None:
    """By its name and through a link: the second is not taken for the site's own."""
    (tmp_path / "again").symlink_to(FOLDER)
    done = run_probed(tmp_path, "print(1)", PYTHONPATH=f"{tmp_path / 'again'}{os.pathsep}{FOLDER}")
    assert (done.out, done.err, len(done.segments)) == ("1\n", "", 1)


@pytest.mark.parametrize("name", ["writer", "hooks", "imports", "spans", "state", "process", "patch"])
def test_no_module_of_the_users_is_hidden(tmp_path: Path, name: str) -> None:
    """Our folder is first on the path, so only two names may be found there."""
    write_package(tmp_path, {f"lib/{name}.py": "WHOSE = 'the user'"})
    done = run_probed(tmp_path, f"import {name}; print({name}.WHOSE)", PYTHONPATH=str(tmp_path / "lib"))
    assert done.out == "the user\n"


def test_the_folder_holds_only_the_two_names() -> None:
    """``sitecustomize`` and ``dipstick_probe`` (and ``__init__``, which no import can name)."""
    found = {path.name for path in FOLDER.iterdir() if path.name != "__pycache__"}
    assert found == {"__init__.py", "sitecustomize.py", "dipstick_probe"}


def test_the_path_is_left_as_it_is(tmp_path: Path) -> None:
    """``sys.path`` gets nothing from us but the entry that PYTHONPATH has put there."""
    probed = run_probed(tmp_path, "import sys, json; print(json.dumps(sys.path))")
    bare = python(tmp_path, str(tmp_path / "script.py"), **environment(None))
    assert [entry for entry in json.loads(probed.out) if entry != str(FOLDER)] == json.loads(bare.stdout)


def test_a_start_imports_little(tmp_path: Path) -> None:
    """A helper process that records nothing pays for no thread and for no json, re, pathlib or inspect of ours."""
    code = "import sys; print(*sorted(set(sys.modules)))"
    probed = set(run_probed(tmp_path, code).out.split())
    bare = set(python(tmp_path, str(tmp_path / "script.py"), **environment(None)).stdout.split())
    new = {name for name in probed - bare if not name.startswith(("dipstick_probe", "sitecustomize", "_"))}
    assert new <= {
        "atexit",
        "gc",
        "importlib",
        "importlib._bootstrap",
        "importlib._bootstrap_external",
        "importlib.machinery",
        "warnings",
    }


def test_secrets_are_taken_out_of_the_command_line(tmp_path: Path) -> None:
    """Secret flags, assignments, credentials in URLs and known token forms are hidden; the rest stays."""
    secrets = (
        "--api-key", "sekret1", "--wandb.token=sekret2", "HF_TOKEN=sekret3", "https://me:sekret4@host/x", "hf_sekret5abc",
        "https://host/x?token=sekret6&b=1", "--password", "sekret7",
    )  # fmt: skip
    argv = run_probed(tmp_path, "", *secrets, "--lr", "1e-5", "--tokenizer", "gpt2").main.rows[0]["argv"]
    assert "sekret" not in " ".join(argv)
    assert argv[-4:] == ["--lr", "1e-5", "--tokenizer", "gpt2"]
    assert argv[2:9] == [
        "--api-key",
        "***",
        "--wandb.token=***",
        "HF_TOKEN=***",
        "https://***@host/x",
        "***",
        "https://host/x?***",
    ]


def test_code_on_the_command_line_is_not_recorded(tmp_path: Path) -> None:
    """What follows ``-c`` may hold anything."""
    run = tmp_path / "run"
    run.mkdir()
    python(tmp_path, "-c", "password = 'hunter2'", **environment(run))
    assert read(run)[0].rows[0]["argv"][1:] == ["-c", "***"]


def test_the_size_cap_ends_a_segment_and_says_so(tmp_path: Path) -> None:
    """40,000 spans of some 100 bytes into 0.1 MB: the last line is ``capped``, the program goes on."""
    code = """
        import dipstick_probe, time
        for _ in range(40):
            for _ in range(1000):
                with dipstick_probe.span("phase"):
                    pass
            time.sleep(0.03)
        print("done")
    """
    done = run_probed(tmp_path, code, DIPSTICK_PROBE_MAX_MB="0.1")
    assert (done.out, done.main.path.stat().st_size <= 100_000) == ("done\n", True)
    assert done.main.rows[-1] == {"k": "capped", "why": "size", "limit_b": 100_000}


def test_a_full_disk_ends_a_segment_and_training_goes_on(tmp_path: Path) -> None:
    """The kernel refuses bytes beyond 50,000: what was written is complete lines, and the program's status its own."""
    code = """
        import dipstick_probe, resource, signal, time
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        for _ in range(2000):
            with dipstick_probe.span("phase"):
                pass
        time.sleep(1.2)
        print("done")
        raise SystemExit(5)
    """
    done = run_probed(tmp_path, code)
    assert (done.status, done.out, done.err) == (5, "done\n", "")
    assert {row["k"] for row in done.main.rows} <= {"meta", "anchor", "span", "capped", "event"}


def test_an_exit_status_and_a_traceback_are_the_programs_own(tmp_path: Path) -> None:
    """An uncaught exception ends a recorded program as it ends any other."""
    done = run_probed(tmp_path, "raise KeyError('mine')")
    assert (done.status, "KeyError: 'mine'" in done.err, "dipstick" in done.err) == (1, True, False)
    assert done.main.rows[-1]["k"] == "end"


def test_a_process_that_leaves_by_os_exit_has_written_everything(tmp_path: Path) -> None:
    """No ``atexit`` runs; its segment ends in good order, its status is its own; a stopped probe leaves ``os._exit`` alone."""
    code = """
        import os, dipstick_probe as dipstick
        with dipstick.span("last"): pass
        os._exit(7)
    """
    done = run_probed(tmp_path, code)
    assert (done.status, done.main.names(), done.main.rows[-1]["k"]) == (7, ["last"], "end")
    code = """
        import os
        from dipstick_probe import boot
        hooked = os._exit
        boot.stop()
        print(hooked is not os._exit, os._exit.__module__)
    """
    assert run_probed(tmp_path, code).out == "True posix\n"
