"""The systems that a strategy is written for."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """module: of symsim/exporters, whose `files(asked)` gives contents by name and `said(asked)` what they leave out.

    suffix: of the one file, or several as words; empty where -o is a directory. has_model: whether the files say what the layers are;
    says_arithmetic: and numbers of theirs from which no cost follows.
    """

    module: str
    suffix: str
    title: str
    has_model: bool = True
    says_arithmetic: bool = False


TARGETS: dict[str, Target] = {
    "deepspeed": Target("deepspeed", ".json", "DeepSpeed", has_model=False),
    "megatron": Target("megatron", ".sh", "Megatron-LM", says_arithmetic=True),
    "simumax": Target("simumax", "", "SimuMax"),
    "swift": Target("swift", ".yaml", "ms-swift"),
    "torchtitan": Target("torchtitan", ".toml .py", "torchtitan"),
}
