"""A directory for what can be made again: derivations and compiled kernels, by the hash of all that they follow from.

$SYMSIM_CACHE, or symsim/ in $XDG_CACHE_HOME or ~/.cache; SYMSIM_CACHE=off keeps nothing. An entry is written beside its place
and renamed, carries a checksum, and is made again where that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from symsim.errors import sentence

_MOST_BYTES = 1 << 30


def directory() -> Path | None:
    """Where entries are kept; None where nothing is to be, or can be, kept, and where others could have put what is read."""
    given = os.environ.get("SYMSIM_CACHE")
    if given is not None and given.lower() in ("", "off", "0"):
        return None
    root = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "symsim"
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        reason = _foreign(root)
    except (OSError, ValueError, RuntimeError):
        return None
    if reason:
        _warn(str(root), reason)
        return None
    return root


def _place(kind: str) -> Path | None:
    root = directory()
    if root is None:
        return None
    place = root / kind
    try:
        place.mkdir(exist_ok=True, mode=0o700)
        return None if _foreign(place) else place
    except OSError:
        return None


def _foreign(root: Path) -> str:
    """Why a directory's entries may be somebody else's, or nothing: what is kept is believed, and compiled kernels are run."""
    at = root.stat()
    if at.st_uid != os.geteuid():
        return "it belongs to another user"
    if at.st_mode & 0o022:
        return "others may write there; chmod go-w makes it yours"
    return ""


@cache
def _warn(root: str, reason: str) -> None:
    with suppress(OSError, ValueError):
        print(f"symsim: {sentence(f'the cache {root} is not used: {reason}')}", file=sys.stderr)


@cache
def source_hash(whole: bool = False) -> str:
    """A hash of the source that derives, or of the whole: another version derives, or sweeps, anew."""
    package = Path(__file__).resolve().parent.parent
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.parent.name in ("grid", "report") and not whole:
            continue
        found.update(str(path.relative_to(package)).encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def key_of(*parts: str) -> str:
    return hashlib.sha256("\0".join((source_hash(), *parts)).encode()).hexdigest()[:32]


def load(kind: str, key: str) -> bytes | None:
    """The entry; None where there is none, or a damaged one."""
    place = _place(kind)
    if place is None:
        return None
    try:
        raw = (place / key).read_bytes()
    except OSError:
        return None
    return raw[32:] if hashlib.sha256(raw[32:]).digest() == raw[:32] else None


def save(kind: str, key: str, data: bytes) -> None:
    """Keep an entry; a full or read-only disk keeps nothing, and is no error."""
    place = _place(kind)
    if place is None:
        return
    try:
        handle, temporary = tempfile.mkstemp(dir=place)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(data).digest() + data)
            os.replace(temporary, place / key)
        except OSError:
            os.unlink(temporary)
            return
        # keys are hashes: one in sixteen looks whether there is too much
        if key.startswith("0"):
            _prune(place)
    except OSError:
        return


def _prune(place: Path) -> None:
    """Remove the oldest entries beyond a size that nobody minds."""
    entries = sorted((p.stat() for p in place.iterdir()), key=lambda s: s.st_mtime)
    total = sum(s.st_size for s in entries)
    if total <= _MOST_BYTES:
        return
    oldest = {s.st_ino for s in entries[: len(entries) // 2]}
    for path in place.iterdir():
        if path.stat().st_ino in oldest:
            path.unlink(missing_ok=True)
