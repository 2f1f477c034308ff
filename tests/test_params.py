"""Parameters equal transformers' own counts (../shared/oracle/params.json), in total and by module."""

from __future__ import annotations

import pytest
from shared import cases, needed

from symsim.hf import read_config
from symsim.result import derive
from symsim.strategy import Strategy

FILE = "params.json"
CASES = cases(FILE, "models")
# symsim's module for each group of the oracle
MODULES = {
    "embedding": "embedding",
    "embedding_pos": "embedding",
    "attention": "attention",
    "attention_linear": "attention",
    "norm_in_attention": "norm",
    "norm": "norm",
    "mlp": "mlp",
    "router": "router",
    "routed_experts": "experts",
    "shared_experts": "shared_experts",
    "lm_head": "lm_head",
}


@pytest.mark.parametrize("case", CASES, ids=[c[0] if c else "absent" for c in CASES])
def test_equal(case: tuple[str, dict]) -> None:
    name, expected = needed(case, FILE)
    config = {"model_type": expected["model_type"], **expected["config_written"]}
    architecture, _ = read_config(config, name, name)
    params = derive(architecture, Strategy(seq_length=128)).to_json()["params"]
    by_module: dict[str, int] = {}
    for group, n in expected["groups"].items():
        by_module[MODULES[group]] = by_module.get(MODULES[group], 0) + n
    assert params["total"] == expected["total"]
    assert params["active"] == expected["active"]["incl_embedding"]
    assert {m: n for m, n in params["by_module"].items() if n} == by_module
