"""`tools/bootstrap.sh` on machines where no Python fits: it says which it looked at, and what to install."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def bootstrap(tmp_path: Path, **pythons: str) -> subprocess.CompletedProcess[str]:
    """Run it with nothing on PATH but these interpreters, which are shell scripts."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for tool in ("sh", "dirname", "mkdir", "cat", "cksum", "flock", "rm"):
        for folder in ("/usr/bin", "/bin"):
            if Path(folder, tool).exists() and not (binaries / tool).exists():
                (binaries / tool).symlink_to(Path(folder, tool))
    for name, script in pythons.items():
        (binaries / name).write_text(f"#!/bin/sh\n{script}\n")
        (binaries / name).chmod(0o755)
    environment = {"PATH": str(binaries), "VENV": str(tmp_path / "venv"), "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        ["/bin/sh", str(ROOT / "tools/bootstrap.sh")], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 3 9", "is Python 3.9, older than 3.11"),
        ("echo 2 7", "is Python 2.7, older than 3.11"),
        ("echo 3 14", "is Python 3.14, newer than the tested 3.13"),
        ("echo 'pyenv: python3: command not found' >&2; exit 127", "does not run"),
        (
            'case "$2" in *ensurepip*) exit 1;; esac; echo 3 11',
            "is Python 3.11 without venv (Debian, Ubuntu: apt-get install python3-venv)",
        ),
    ],
)
def test_a_python_that_does_not_fit_is_named_with_its_reason(tmp_path: Path, script: str, message: str):
    done = bootstrap(tmp_path, python3=script)

    assert done.returncode == 1
    assert "durableflows needs 3.11, 3.12 or 3.13" in done.stderr
    assert f"bin/python3 {message}" in done.stderr


def test_no_python_at_all(tmp_path: Path):
    done = bootstrap(tmp_path)

    assert done.returncode == 1
    assert "there is no python3 on PATH" in done.stderr


def test_a_broken_shim_does_not_hide_a_python_that_works(tmp_path: Path):
    works = 'case "$2" in venv) echo "$0 $@"; exit 9;; esac; echo 3 12'

    done = bootstrap(tmp_path, python3="exit 127", **{"python3.12": works})

    assert done.returncode == 9
    assert "bin/python3.12 -m venv" in done.stdout
