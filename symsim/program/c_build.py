"""The system's C compiler: a source built, kept in the cache, and loaded."""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache as remembered
from pathlib import Path

from symsim.program import cache

_SECONDS = 300.0
_KIND = "kernels"

# no -ffast-math and no part of it: a quotient below a ceil must be one division, and infinities do occur where nothing runs
_FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fopenmp-simd", "-std=gnu11", "-shared", "-fPIC")
_OWN_CPU = ("-march=native",)


class CompilerError(Exception):
    """There is no C compiler, or it, or what it made, does not work; NumPy does without."""


@dataclass(frozen=True)
class _Compiler:
    """command: the compiler, and what $CC gives it. version: the first line that it says of itself."""

    command: tuple[str, ...]
    version: str


def compiler() -> str | None:
    """The C compiler and its version: $CC, else cc, gcc or clang; None where there is none that answers."""
    found = _compiler(os.environ.get("CC", ""))
    return f"{' '.join(found.command)}: {found.version}" if found else None


@remembered
def _compiler(given: str) -> _Compiler | None:
    try:
        commands = [shlex.split(given)] if given.strip() else [["cc"], ["gcc"], ["clang"]]
    except ValueError:
        return None
    for command in commands:
        path = shutil.which(command[0])
        if path is None:
            continue
        with suppress(OSError, subprocess.SubprocessError):
            said = subprocess.run([path, *command[1:], "--version"], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=True)
            if said.stdout.strip():
                return _Compiler((path, *command[1:]), said.stdout.strip().splitlines()[0])
    return None


@remembered
def _cpu() -> str:
    """The processor by its model and what it can do, which differ between machines that share a cache."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        found = {line.split(":")[0].strip(): line for line in reversed(lines) if line.startswith(("model name", "flags", "Features", "CPU part"))}
        if found:
            return "\n".join(found.values())
    return f"{platform.machine()} {platform.processor()}"


_LIBRARIES: dict[str, ctypes.CDLL] = {}


def library(source: str) -> ctypes.CDLL:
    """The source compiled and loaded: from this process, from the cache, or anew."""
    found = _compiler(os.environ.get("CC", ""))
    if found is None:
        raise CompilerError(f"$CC is {os.environ['CC']!r}, which is no compiler" if os.environ.get("CC", "").strip() else "no cc, gcc or clang found")
    key = cache.key_of("c", source, *_FLAGS, *_OWN_CPU, *found.command, found.version, _cpu())
    if key in _LIBRARIES:
        return _LIBRARIES[key]
    kept = cache.load(_KIND, key)
    library = None
    if kept is not None:
        with suppress(CompilerError):
            library = _loaded(kept)
    if library is None:
        made = _compiled(found, source)
        library = _loaded(made)
        cache.save(_KIND, key, made)
    return _LIBRARIES.setdefault(key, library)


def _compiled(found: _Compiler, source: str) -> bytes:
    """The bytes of a shared object. CompilerError with what the compiler said."""
    said = ""
    try:
        with tempfile.TemporaryDirectory() as place:
            target = Path(place) / "kernel.so"
            # not every compiler knows its own processor by that name
            for flags in ((*_FLAGS, *_OWN_CPU), _FLAGS):
                command = [*found.command, *flags, "-w", "-x", "c", "-", "-o", str(target), "-lm"]
                done = subprocess.run(command, input=source, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
                if done.returncode == 0 and target.exists():
                    return target.read_bytes()
                said = said or done.stderr.strip()[:500]
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerError(f"{found.command[0]}: {error}") from None
    raise CompilerError(f"{found.command[0]} failed: {said}")


def _loaded(made: bytes) -> ctypes.CDLL:
    """A shared object from its bytes, through a file of our own that is gone once it is mapped. CompilerError where that does not work."""
    said, root = "no directory for a file", cache.directory()
    places = [] if root is None else [root / _KIND]
    with suppress(OSError):
        places.append(Path(tempfile.gettempdir()))
    # a directory may be full, or refuse to hold what runs
    for place in places:
        path = None
        try:
            place.mkdir(parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(suffix=".so", dir=place)
            with os.fdopen(handle, "wb") as file:
                file.write(made)
            return ctypes.CDLL(path)
        except OSError as error:
            said = str(error)
        finally:
            if path is not None:
                with suppress(OSError):
                    os.unlink(path)
    raise CompilerError(f"the compiled kernel cannot be loaded: {said}")
