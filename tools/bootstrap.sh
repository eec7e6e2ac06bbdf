#!/bin/sh
# Creates .venv with what requirements.txt names; quick when nothing changed. Needs Python 3.11, 3.12 or 3.13 with venv.
# PYTHON=... names the interpreter, VENV=... another folder, PIP=... options for pip install.
set -eu
cd "$(dirname "$0")/.."

venv=${VENV:-.venv}
stamp=$venv/.installed
python=
refused=

# Two numbers on success; pyenv's shims exist for versions that are not active, and fail when they are run.
version_of() {
    "$1" -c 'import sys; print(sys.version_info[0], sys.version_info[1])' 2>/dev/null
}

# Sets `python` when the candidate will do, else notes why not.
consider() {
    version=$(version_of "$1") || { refuse "$1" "does not run"; return; }
    major=${version% *} minor=${version#* }
    if [ "$major" -ne 3 ] || [ "$minor" -lt 11 ]; then
        refuse "$1" "is Python $major.$minor, older than 3.11"
    elif [ "$minor" -gt 13 ] && [ "$1" != "${PYTHON:-}" ]; then
        refuse "$1" "is Python $major.$minor, newer than the tested 3.13 (to try it: PYTHON=$1)"
    elif ! "$1" -c 'import ensurepip, venv' 2>/dev/null; then
        refuse "$1" "is Python $major.$minor without venv (Debian, Ubuntu: apt-get install python3-venv)"
    else
        python=$1
    fi
}

refuse() {
    refused="$refused
  $1 $2"
}

search() {
    if [ -n "${PYTHON:-}" ]; then
        consider "$PYTHON"
        return
    fi
    for name in python3 python3.11 python3.12 python3.13 python; do
        rest=$PATH:
        while [ -n "$rest" ]; do
            folder=${rest%%:*} rest=${rest#*:}
            [ -x "$folder/$name" ] || continue
            consider "$folder/$name"
            [ -z "$python" ] || return 0
        done
    done
}

wanted() {
    cksum <requirements.txt
    echo "${PIP:-}"
}

is_current() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted)" ] && "$venv/bin/python" -c 'import django' 2>/dev/null
}

# Two `make` at once: the second waits, and finds the work done.
mkdir -p .data
if command -v flock >/dev/null; then
    exec 9>.data/bootstrap.lock
    flock 9
fi

if is_current; then
    exit 0
fi
if ! [ -f "$venv/pyvenv.cfg" ] || ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    search
    if [ -z "$python" ]; then
        echo "No Python that fits: durableflows needs 3.11, 3.12 or 3.13 with the venv module. Looked at:${refused:-
  nothing: there is no python3 on PATH (Debian, Ubuntu: apt-get install python3-venv · macOS: brew install python@3.13)}" >&2
        exit 1
    fi
    echo "creating $venv with $python"
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
echo "installing requirements.txt into $venv"
rm -f "$stamp"
# shellcheck disable=SC2086 # PIP holds several words
"$venv/bin/python" -m pip install -qq --disable-pip-version-check ${PIP:-} --requirement requirements.txt
wanted >"$stamp"
