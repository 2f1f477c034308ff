#!/usr/bin/env python3
"""The tests on every Python of 3.11-3.13 that this machine has, with the newest packages and with the oldest allowed.

    python3 .ci/versions.py [--python 3.12] [--packages oldest] [PYTEST ARGUMENTS]

The oldest are the lower bounds of pyproject.toml, each `>=` read as `==`. An interpreter is a `python3.N` on PATH that runs, or
one that pyenv keeps; what this machine lacks is said and is no failure. Prints a row for each pair; the exit code is 1 if any fails.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ("3.11", "3.12", "3.13")


def interpreter(version: str) -> str | None:
    """A path or name of that Python, or None."""
    kept = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python{version}"))
    for candidate in (f"python{version}", *map(str, kept)):
        try:
            if subprocess.run([candidate, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
                return candidate
        except OSError:
            continue
    return None


def oldest() -> str:
    """A constraint a line: every declared requirement at its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    unbounded = [r for r in declared if ">=" not in r]
    if unbounded:
        raise SystemExit(f"pyproject.toml: '{unbounded[0]}' has no lower bound")
    return "".join(f"{r.replace('>=', '==', 1)}\n" for r in sorted(set(declared)))


def tested(python: str, packages: str, arguments: list[str]) -> str:
    """`passed`, or what failed, of a run in a virtual environment made for it."""
    with tempfile.TemporaryDirectory() as work:
        own = Path(work) / "venv"
        subprocess.run([python, "-m", "venv", own], check=True)
        install = [own / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", f"{ROOT}[dev]"]
        if packages == "oldest":
            (Path(work) / "oldest.txt").write_text(oldest())
            install += ["-c", Path(work) / "oldest.txt"]
        if subprocess.run(install, cwd=ROOT).returncode:
            return "does not install"
        environment = {**os.environ, "PATH": f"{own / 'bin'}{os.pathsep}{os.environ['PATH']}", "SYMSIM_CACHE": str(Path(work) / "cache")}
        code = subprocess.run([own / "bin/python", "-m", "pytest", *arguments], cwd=ROOT, env=environment).returncode
        return "passed" if code == 0 else f"failed (pytest exit {code})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", choices=SUPPORTED, action="append", help="this version only (may be repeated)")
    parser.add_argument("--packages", choices=("oldest", "newest"), action="append", help="these packages only")
    options, arguments = parser.parse_known_args()
    rows = []
    for version in options.python or SUPPORTED:
        python = interpreter(version)
        for packages in options.packages or ("oldest", "newest"):
            rows.append((version, packages, tested(python, packages, arguments) if python else "no such Python here"))
            print("Python {:5} {:7} packages: {}".format(*rows[-1]), flush=True)
    print("\n" + "\n".join("Python {:5} {:7} packages: {}".format(*row) for row in rows))
    return int(any(outcome not in ("passed", "no such Python here") for *_, outcome in rows))


if __name__ == "__main__":
    sys.exit(main())
