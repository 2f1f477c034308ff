"""A command of a script, as it would be run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from symsim.importers.shell.scope import Word


@dataclass(frozen=True)
class Command:
    """A command as it would be run: its words, and the assignments before it (`NPROC_PER_NODE=8 megatron sft ..`) with all exported.
    files: the texts of files that the script writes before, by their names. why: what its running hangs on, where only a run could tell."""

    words: tuple[Word, ...]
    line: int
    environment: Mapping[str, Word]
    files: Mapping[str, Word] = field(default_factory=dict)
    why: str = ""


def which(several: Sequence[Command]) -> str:
    """What to do about several commands of which one is meant: what decides between them, or to leave one."""
    return next((f"the script decides by {one.why}" for one in several if one.why), "leave one of them")
