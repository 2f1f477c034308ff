"""Where the rows of a sweep are kept while it runs, and the file they become.

A sweep is cut into numbered blocks. The rows of each finished block stand in a part of their own in `OUTPUT.parts/`,
beside the output, so a sweep killed at any moment goes on with the blocks that are missing. When all are there they
are joined in the order of the blocks, and the output appears whole or not at all.

The directory holds `sweep.json` (which sweep it is), `lock` (held while a process writes here), `N.part` for each
finished block N, and for a moment a temporary `.*.tmp`. Without `sweep.json` it holds nothing of worth.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from symsim.errors import InputError
from symsim.grid.outputs import write_csv, write_parquet
from symsim.grid.rows import Column, Damaged, Texts, encoded, read_part, write_part

if TYPE_CHECKING:
    import numpy as np

    from symsim.grid.rows import Coded, Rows

SUFFIXES = (".parquet", ".csv")

_FORMAT = 1
_MANIFEST = "sweep.json"
_LOCK = "lock"
_PART = re.compile(r"(0|[1-9][0-9]*)\.part")
_OURS = re.compile(rf"{re.escape(_MANIFEST)}|{_LOCK}|{_PART.pattern}|\.[0-9a-f]+\.tmp")


def check_output(output: Path) -> None:
    """Find out before anything is computed whether the output could be written; leaves nothing behind.

    InputError for a suffix other than .parquet and .csv, a directory that is not there or cannot be written, a place
    that holds something other than a file, and Parquet without pyarrow.
    """
    suffix = output.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{output}: the rows of a sweep are written as {SUFFIXES[0]} or {SUFFIXES[1]}")
    with _refused(output):
        if not output.parent.is_dir():
            raise InputError(f"{output}: there is no directory {output.parent}")
        if output.is_dir():
            raise InputError(f"{output}: is a directory")
        if output.exists() and not output.is_file():
            raise InputError(f"{output}: is not a regular file")
        _check_place(_directory(output))
        _check_writable(output.parent)
    if suffix == ".parquet":
        from importlib.util import find_spec

        if find_spec("pyarrow") is None:
            raise InputError(_without_pyarrow(output))


def open_store(output: Path, key: str, columns: Sequence[Column], blocks: int, resume: bool) -> BlockStore:
    """The store of the sweep that `key` names, begun now or, with `resume`, where it was left.

    `key` is a hash of everything that determines the rows of blocks 0..blocks-1. InputError as `check_output` says;
    when the directory of parts holds another sweep, or without `resume` any; and when another process writes there.
    """
    check_output(output)
    directory = _directory(output)
    with _refused(directory):
        store = BlockStore(output, key, tuple(columns), blocks, _locked(directory))
        try:
            store._begin(resume)
        except BaseException:
            store.close()
            raise
    return store


class BlockStore:
    """The finished blocks of one sweep, in the hands of this process until `close`, `finish` or `discard`.

    `write` may also be called by worker processes, forked or sent the store by pickle: they do not hold the lock, so
    it goes with the process that opened the store even when workers outlive it.
    """

    def __init__(self, output: Path, key: str, columns: tuple[Column, ...], blocks: int, lock: int | None) -> None:
        self.output = output
        self.directory = _directory(output)
        self.key = key
        self.columns = columns
        self.blocks = blocks
        self._lock = lock
        _OPEN.add(self)

    def __enter__(self) -> BlockStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def finished(self) -> set[int]:
        """The blocks whose rows are kept."""
        # Read from the directory, so that it counts what worker processes wrote; damaged parts went when it was opened.
        with _refused(self.directory, self._kept):
            return {block for name in os.listdir(self.directory) if (block := _block_of(name)) is not None and block < self.blocks}

    def write(self, block: int, rows: Rows) -> None:
        """Keep the rows of a finished block: one 1-D array a column, all of one length, which may be 0.

        InputError when they cannot be written (the blocks kept before stay); ValueError for rows that are not the columns'.
        """
        if not 0 <= block < self.blocks:
            raise ValueError(f"block {block} of a sweep of {self.blocks}")
        coded = encoded(self.columns, rows)
        # The part is flushed before it gets its name, so no loss of power leaves a name without its rows. The directory
        # is not: that would cost more than the part, and a name lost with the power costs one block computed again.
        with _refused(self.directory, self._kept), _whole(self.directory / f"{block}.part", self.directory) as file:
            write_part(file, self.key, block, coded)

    def parts(self) -> Iterator[dict[str, np.ndarray]]:
        """The rows of each block kept, in the order of the blocks; texts as arrays of objects."""
        for coded in self._coded_parts():
            yield {name: values.plain() if isinstance(values, Texts) else values for name, values in coded.items()}

    def finish(self, rows: Iterable[Rows] | None = None, metadata: Mapping[str, str] | None = None, columns: Sequence[Column] | None = None) -> None:
        """Write the output, of all blocks in their order or of the `rows` given (with `columns` of their own), and drop the parts.

        One part is in memory at a time, with Parquet also a row group. Parquet holds each `metadata` entry as
        `symsim.NAME`, and each column's unit and meaning; CSV has no place for them. InputError when it cannot be
        written: an output from before is then as it was, and the parts stay.
        """
        if rows is None and len(self.finished()) < self.blocks:
            raise ValueError("a sweep is finished when all of its blocks are")
        final = self.columns if columns is None else tuple(columns)
        coded = self._coded_parts() if rows is None else (encoded(final, block) for block in rows)
        with _refused(self.output, self._kept):
            # The temporary stands among the parts: a process killed here leaves nothing else beside the output.
            with _whole(self.output, self.directory) as file:
                if self.output.suffix.lower() == ".csv":
                    write_csv(file, final, coded)
                else:
                    try:
                        write_parquet(file, final, coded, metadata or {})
                    except ImportError:
                        raise InputError(_without_pyarrow(self.output)) from None
            _sync(self.output.parent)
        self.discard()

    def discard(self) -> None:
        """Drop the parts and let go of the directory. What cannot be removed stays, and counts for nothing."""
        with suppress(OSError):
            # Without its manifest the rest is worthless, so a process killed in the middle leaves no half sweep.
            for name in [_MANIFEST, *_names(self.directory, besides=(_MANIFEST, _LOCK)), _LOCK]:
                (self.directory / name).unlink(missing_ok=True)
            self.directory.rmdir()
        self.close()

    def close(self) -> None:
        """Let go of the directory; the parts stay for a later `open_store` with `resume`."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _kept(self) -> str:
        return f"; the blocks finished before are kept in {self.directory}, and --resume goes on from them"

    def _begin(self, resume: bool) -> None:
        manifest = {"format": _FORMAT, "key": self.key, "blocks": self.blocks, "columns": [list(astuple(column)) for column in self.columns]}
        begun = _manifest(self.directory)
        if begun is None:
            try:
                self._clear(_names(self.directory, besides=(_LOCK,)))
                with _whole(self.directory / _MANIFEST, self.directory) as file:
                    file.write(json.dumps(manifest, indent=1).encode() + b"\n")
                _sync(self.directory)
                _sync(self.output.parent)
            except OSError:
                self.discard()
                raise
            return
        other = "remove it, or name another output file"
        if begun.get("key") != self.key:
            only = "--resume goes on only with the options it was begun with; otherwise " if resume else ""
            raise InputError(f"{self.directory}: holds an unfinished sweep with other options, or of another version of symsim: {only}{other}")
        if begun != manifest:
            raise InputError(f"{self.directory}: holds an unfinished sweep of another version of symsim: {other}")
        if not resume:
            done = f"{len(self.finished())} of {self.blocks} blocks"
            raise InputError(f"{self.directory}: holds this sweep, unfinished ({done}): give --resume to go on, or remove it to begin again")
        self._clear(name for name in _names(self.directory, besides=()) if name.endswith(".tmp"))
        self._clear(f"{block}.part" for block in self.finished() if not self._is_whole(block))

    def _clear(self, names: Iterable[str]) -> None:
        for name in names:
            (self.directory / name).unlink(missing_ok=True)

    def _is_whole(self, block: int) -> bool:
        try:
            self._read(block)
        except Damaged:
            return False
        return True

    def _read(self, block: int) -> Coded:
        return read_part(self.directory / f"{block}.part", self.key, block, self.columns)

    def _coded_parts(self) -> Iterator[Coded]:
        for block in sorted(self.finished()):
            try:
                with _refused(self.directory, self._kept, "read"):
                    coded = self._read(block)
            except Damaged:
                self._clear([f"{block}.part"])
                raise InputError(f"{self.directory}: block {block} was damaged after it was written; --resume computes it again") from None
            yield coded


_OPEN: weakref.WeakSet[BlockStore] = weakref.WeakSet()


def _close_in_child() -> None:
    # A forked worker shares the lock, and would hold it after the sweep is killed; closing its copy does not release ours.
    for store in list(_OPEN):
        store.close()


os.register_at_fork(after_in_child=_close_in_child)


# The directory of parts


def _directory(output: Path) -> Path:
    return output.with_name(f"{output.name}.parts")


def _block_of(name: str) -> int | None:
    match = _PART.fullmatch(name)
    return int(match[1]) if match else None


def _names(directory: Path, besides: tuple[str, ...]) -> list[str]:
    """The names in the directory that a sweep gave, for removal: what someone else put there is left alone."""
    return [name for name in os.listdir(directory) if _OURS.fullmatch(name) and name not in besides]


def _check_place(directory: Path) -> None:
    """InputError when the place of the parts holds what no sweep made."""
    try:
        os.lstat(directory)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise InputError(f"{directory}: cannot be written: {error}") from None
    # Through a link the parts might lie on another disk than the output, from which it cannot appear at once.
    names = os.listdir(directory) if directory.is_dir() and not directory.is_symlink() else None
    if names is None or (_MANIFEST not in names and any(not _OURS.fullmatch(name) for name in names)):
        raise InputError(f"{directory}: is in the way of the parts of a sweep; rename it, or name another output file")


def _check_writable(directory: Path) -> None:
    import tempfile

    with tempfile.TemporaryFile(dir=directory):
        pass


def _locked(directory: Path) -> int:
    """A descriptor that holds the lock of the directory, made if it is not there; InputError when another process has it."""
    while True:
        directory.mkdir(exist_ok=True)
        try:
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A sweep that ended since removed the file, and a lock on it keeps nobody out.
            if os.path.samestat(os.fstat(lock), os.stat(directory / _LOCK)):
                return lock
        except BlockingIOError:
            os.close(lock)
            raise InputError(f"{directory}: another process is writing this sweep; wait for it, or name another output file") from None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _manifest(directory: Path) -> dict[str, Any] | None:
    """What `sweep.json` says; None when it is not there, InputError when it does not read."""
    with suppress(FileNotFoundError, ValueError):
        read = json.loads((directory / _MANIFEST).read_bytes())
        if isinstance(read, dict):
            return read
    if not (directory / _MANIFEST).exists():
        return None
    raise InputError(f"{directory}: its {_MANIFEST} does not read; remove the directory, or name another output file")


# Files, whole or not at all


@contextmanager
def _refused(place: Path, kept: str = "", verb: str = "written") -> Iterator[None]:
    """What the system refuses, as one sentence about `place`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{place}: cannot be {verb}: {error.strerror or error}{kept}") from None


@contextmanager
def _whole(path: Path, workplace: Path) -> Iterator[BinaryIO]:
    """A file that takes its name only when it is whole and on the disk; `workplace` holds it until then."""
    temporary = workplace / f".{secrets.token_hex(8)}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _without_pyarrow(output: Path) -> str:
    return f"{output}: writing Parquet needs pyarrow (pip install pyarrow); or give {output.with_suffix('.csv')}"
