"""The systems that a strategy is written for."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """module: of symsim/exporters, whose `files(asked)` gives contents by name and `said(asked)` what they leave out.

    suffix: of the one file, or several as words; empty where -o is a directory.
    """

    module: str
    suffix: str
    title: str


TARGETS: dict[str, Target] = {
    "deepspeed": Target("deepspeed", ".json", "DeepSpeed"),
    "megatron": Target("megatron", ".sh", "Megatron-LM"),
    "simumax": Target("simumax", "", "SimuMax"),
    "swift": Target("swift", ".yaml", "ms-swift"),
}
