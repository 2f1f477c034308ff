"""What published formulas showed to be wrong in symsim, and the commit that mended it: derivations/mended.yaml."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from symsim.audit.schema import Text
from symsim.inputs.reading import parse_yaml, read_text
from symsim.inputs.shipped import derivations_directory
from symsim.inputs.validation import validate


class Mended(BaseModel):
    """claim: one that rests on it; difference: symsim less published, before it was mended."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: str
    what: str
    commit: str
    difference: Text | None = None


class File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    mended: tuple[Mended, ...]


def mended() -> tuple[Mended, ...]:
    """All of them, in order."""
    path = derivations_directory() / "mended.yaml"
    document = parse_yaml(read_text(path), str(path))
    return validate(File, document.data, document.where, document).mended
