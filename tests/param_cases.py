"""The cases of ../shared/oracle/params.json: each comparison gives (expected, computed)."""

from __future__ import annotations

from typing import Any

from symsim.api.result import derive
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy

# symsim's module for each group of the oracle
MODULES = {
    "embedding": "embedding", "embedding_pos": "embedding", "attention": "attention", "attention_linear": "attention", "norm_in_attention": "norm",
    "norm": "norm", "mlp": "mlp", "router": "router", "routed_experts": "experts", "shared_experts": "shared_experts", "lm_head": "lm_head",
}  # fmt: skip


def parameters(name: str, case: dict[str, Any]) -> tuple[Any, Any]:
    """(total, active, by module) of a transformers model, from its config."""
    architecture, _ = read_config({"model_type": case["model_type"], **case["config_written"]}, name, name)
    ours = derive(architecture, Strategy(seq_length=128)).to_json()["params"]
    by_module: dict[str, int] = {}
    for group, n in case["groups"].items():
        by_module[MODULES[group]] = by_module.get(MODULES[group], 0) + n
    return (case["total"], case["active"]["incl_embedding"], by_module), (
        ours["total"],
        ours["active"],
        {m: n for m, n in ours["by_module"].items() if n},
    )
