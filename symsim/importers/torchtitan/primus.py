"""A file of Primus whose module runs torchtitan: its overrides are torchtitan's sections, over defaults of its own.

Names and defaults: AMD-AGI/Primus fd1eeab (2026-08-22), primus/configs/modules/torchtitan/pre_trainer.yaml, primus/configs/models/torchtitan,
examples/torchtitan/configs.
"""

from __future__ import annotations

import re
from typing import Any

from symsim.errors import InputError, cut
from symsim.importers.keys import Given, Silent, silent
from symsim.importers.sections import of_sections
from symsim.inputs.reading import Document, read_yaml

# of pre_trainer.yaml, where they are not torchtitan's
_DEFAULTS: dict[str, Any] = {
    "training.local_batch_size": 8,
    "training.seq_len": 2048,
    "compile.enable": True,
    "compile.components": ["model", "loss"],
}
_MODEL = re.compile(r"(llama3|llama4|qwen3|deepseek_v3|gpt_oss)(?:\.[0-9])?_([0-9.]+[bB](?:x[0-9]+[eE])?|[0-9]+Bx[0-9]+E)(-fp8)?\.yaml")
_KERNELS = "whose kernels multiply: the same FLOPs and bytes, at the shares that the system's file has"

TABLE: dict[str, Silent] = {
    **silent("no_cost_effect", "of the run: logs, files and the data", "sink_level file_sink_level stderr_sink_level training.mock_data"),
    **silent(
        "no_cost_effect",
        _KERNELS,
        """primus_turbo.enable_primus_turbo primus_turbo.use_classic_attention primus_turbo.use_turbo_attention primus_turbo.use_turbo_grouped_mm
        primus_turbo.use_turbo_float8_linear primus_turbo.use_turbo_mx_linear primus_turbo.use_turbo_async_tp""",
    ),
    **silent("not_modelled", "attention's products in 8 bits: at up to twice the rate", "primus_turbo.enable_attention_float8"),
    **silent("not_modelled", "experts' products in 8 bits by a switch of their own: at up to twice the rate", "primus_turbo.use_moe_fp8"),
}


def read_primus(path: str) -> dict[str, Given]:
    """torchtitan's keys of a file of Primus. InputError where no module of it runs torchtitan."""
    document = read_yaml(path)
    modules = document.data.get("modules")
    for name, module in modules.items() if isinstance(modules, dict) else ():
        if not isinstance(module, dict) or module.get("framework") != "torchtitan":
            continue
        above = ("modules", name, "overrides")
        overrides = module.get("overrides")
        lines = {key[3:]: line for key, line in document.lines.items() if key[:3] == above}
        given = of_sections(Document(overrides, document.where, lines)) if isinstance(overrides, dict) else {}
        return {**_of_model(module.get("model"), document.place(("modules", name, "model"))), **_with_defaults(given, document.where), **given}
    raise InputError(f"{path}: no module of Primus with framework: torchtitan and overrides; a .toml file is torchtitan's own")


def _of_model(named: Any, where: str) -> dict[str, Given]:
    """torchtitan's name and flavor of a model's file, and the converter of 8 bits where it has one."""
    found = _MODEL.fullmatch(named) if isinstance(named, str) else None
    if found is None:
        raise InputError(f"{where}: model is {cut(str(named))}; it should be a file of Primus's models for torchtitan, as llama3.1_8B.yaml")
    converters = ["primus_turbo", *(["quantize.linear.float8"] if found[3] else [])]
    return {"model.name": Given(found[1], where), "model.flavor": Given(found[2], where), "model.converters": Given(converters, where)}


def _with_defaults(given: dict[str, Given], where: str) -> dict[str, Given]:
    return {key: Given(value, where) for key, value in _DEFAULTS.items() if key not in given}
