"""Layers know no mesh axis, no kernel and no framework; what frameworks run again is a table over their parts."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

from symsim.frameworks.recompute import MODULES
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.lowering.lower import lower
from symsim.placement.mesh import mesh_of

LAYERS = sorted((Path(__file__).parents[1] / "symsim" / "layers").glob("*.py"))
MAY_IMPORT = ("symsim.inputs.architecture", "symsim.inputs.attention", "symsim.ir", "symsim.layers")


def constants(path: Path) -> set[str]:
    """Every text in the code of a file, but not its docstrings."""
    tree = ast.parse(path.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs}


@pytest.mark.parametrize("path", LAYERS, ids=lambda path: path.stem)
def test_a_layer_names_no_axis_no_framework_and_no_recompute_module(path: Path) -> None:
    strategy = Strategy()
    said = constants(path)
    assert not said & set(mesh_of(strategy).degrees)
    assert not said & {"te", "eager", "flash"}
    assert not said & (set(MODULES) - {"mlp", "moe", "mtp", "shared_experts"})  # which are names of parts too


@pytest.mark.parametrize("path", LAYERS, ids=lambda path: path.stem)
def test_a_layer_imports_nothing_of_strategies_or_passes(path: Path) -> None:
    imported = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.module}
    assert not [m for m in imported if m.startswith("symsim") and not m.startswith(MAY_IMPORT)]


def test_every_recompute_module_that_may_be_asked_for_has_its_parts() -> None:
    asked = get_args(get_args(Strategy.model_fields["recompute_modules"].annotation)[0])
    assert set(MODULES) == {*asked, "mtp"}


def test_parts_of_layers_make_up_every_recompute_module() -> None:
    """Which operations run again, by name: as Megatron-Core wraps them."""
    found: dict[str, set[str]] = {name: set() for name in MODULES}
    model = load_model("deepseek-v3").architecture.model_copy(update={"mtp_num_layers": 1})
    for block in lower(model, Strategy(), {}).blocks.values():
        for op in block.placed.block.ops:
            for module in op.regions:
                found[module].add(op.name)
    assert "attention.core" in found["core_attn"] and len({n for n in found["core_attn"] if not n.startswith("mtp.")}) == 1
    assert {"pre_attention_norm", "pre_mlp_norm"} <= found["layernorm"]
    assert {"attention.q_b_proj", "attention.kv_b_proj", "attention.rope_q", "attention.rope_k"} <= found["mla_up_proj"]
    assert "attention.q_a_proj" not in found["mla_up_proj"] and "attention.o_proj" not in found["mla_up_proj"]
    assert {"moe.experts.act", "mtp.moe.experts.act"} == found["moe_act"]
    assert {"moe.shared_experts.down_proj", "moe.experts.fc1", "moe.gate.router"} <= found["moe"]
    assert all(".shared_expert" in name for name in found["shared_experts"]) and found["shared_experts"]
    assert all(name.startswith("mlp.") for name in found["mlp"]) and "mlp.down_proj" in found["mlp"]
    assert {"mtp.eh_proj", "mtp.final_layernorm", "mtp.attention.core"} <= found["mtp"] and "lm_head.lm_head" not in found["mtp"]


def test_what_is_discarded_and_what_the_gate_of_shared_experts_belongs_to() -> None:
    assert {name for name, module in MODULES.items() if module.discards} == {"layernorm", "moe_act", "mla_up_proj", "mhc"}
    block = lower(load_model("qwen2-57b-a14b").architecture, Strategy(), {}).blocks["moe"].placed.block
    gate = next(op for op in block.ops if op.name == "moe.shared_expert_gate.shared_expert_gate")
    assert gate.regions == {"moe", "shared_experts"}


def test_depths_of_prediction_gather_their_best_token() -> None:
    model = load_model("deepseek-v3").architecture.model_copy(update={"mtp_num_layers": 1})
    blocks = lower(model, Strategy(tp=2, sp=True), {}).blocks
    sent = {name: {m.what.partition(" in ")[0] for _, m in blocks[name].differentiated.forward_messages} for name in ("head", "mtp")}
    assert {"best logit", "best token"} <= sent["mtp"] and not {"best logit", "best token"} & sent["head"]
