"""A DeepSpeed JSON that a configuration names and that is not here: what its name says of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symsim.importers.deepspeed.reader import configured, settings_of
from symsim.importers.keys import Entry, Keys
from symsim.inputs.reading import Document

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_STAGE = re.compile(r"z(?:ero)?[_-]?([0-3])")


def with_deepspeed(
    document: Document,
    given: str | None,
    keys: Keys,
    strategy: dict[str, Any],
    assumptions: dict[str, str],
    architecture: "Architecture | None",
    options: "Options",
    overlap: bool,
) -> list[Entry] | None:
    """The rows of the DeepSpeed JSON that a configuration names; None where it names none. Of one that is not here its name tells the stage,
    and `offload` in it states on the host. overlap: overlap_comm of the framework's own JSONs.
    """
    settings = settings_of(document, given)
    if settings is not None:
        keys.note("deepspeed", to="zero", why=f"of {Path(settings.where).name}")
        return configured(settings, keys, strategy, assumptions, architecture, options)
    if not keys.has("deepspeed"):
        return None
    if str(keys.given["deepspeed"].value).casefold() == "false":
        keys.note("deepspeed", "no_cost_effect", why="off at this value")
        return None
    name = Path(str(keys.text("deepspeed", ""))).name.casefold()
    found = _STAGE.search(name)
    if found is None:
        why = "this file is not here, and its name says no stage; give it after this one"
        keys.refuse("deepspeed", why)
        return None
    stage = int(found[1])
    section: dict[str, Any] = {"stage": stage, "overlap_comm": overlap}
    if "offload" in name and "param" not in name:
        section["offload_optimizer"] = {"device": "cpu"}
    auto = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"), "auto")
    made = {**auto, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "zero_optimization": section}
    rows = configured(Document(made, name), keys, strategy, assumptions, architecture, options)
    host = " and states on the host" if "offload_optimizer" in section else ""
    host += "; how many ranks share a layer (AutoTP) it does not tell: one here" if "autotp" in name else ""
    keys.note("deepspeed", "derived", "zero", f"the file is not here: stage {stage}{host} by its name, 'auto' for the rest")
    return [row for row in rows if row.key == "world"]
