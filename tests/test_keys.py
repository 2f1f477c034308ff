"""Definitions are found by structured keys, which are spelt as symbols in one place and never read back."""

from __future__ import annotations

from functools import cache

import pytest

from symsim import derive
from symsim.algebra.key import Key, layers, layers_of_model, of_block, of_stage, of_step
from symsim.api.result import Result
from symsim.cost.reduce import update_messages
from symsim.cost.step_time import exposed_axes
from symsim.grid import stored
from symsim.inputs.assumptions import resolve

CASES = {
    "dense": ("llama3-8b", "tp=2,sp=true,pp=2,dp=2,num_microbatches=8", "h100-sxm"),
    "experts": ("deepseek-v3", "tp=2,sp=true,pp=4,ep=8,etp=1,dp=8,cp=2,num_microbatches=16,recompute=full,recompute_num_layers=2", "h100-sxm"),
    "sharded": ("mixtral-8x7b", "ep=2,dp=8,zero=3,num_microbatches=4", "h100-sxm"),
    "instances": ("llama3-8b", "dp=8,zero=1,num_distributed_optimizer_instances=2,overlap_grad_reduce=true", "h100-sxm"),
    "offloaded": ("llama3-8b", "cpu_offloading_num_layers=4", "h100-sxm"),
    "counts alone": ("qwen3-0.6b", "", None),
}


@cache
def made(case: str) -> Result:
    model, strategy, system = CASES[case]
    return derive(model, strategy, system=system)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (of_block("F", "dense", operation="attention.core"), "F_dense_attention_core"),
        (of_block("U", "dense", operation="attention.o_proj", phase="wgrad"), "U_dense_attention_o_proj_wgrad"),
        (of_block("t", "moe", operation="gate.top_k", phase="forward"), "t_f_moe_gate_top_k"),
        (of_block("t", "moe", operation="gate.top_k", phase="backward"), "t_b_moe_gate_top_k_backward"),
        (of_block("t", "moe", True, phase="again"), "t_r_moe_ckpt"),
        (of_block("e", "moe", True, phase="backward", axis="ep"), "e_b_moe_ckpt_ep"),
        (of_block("A", "dense", tensor="attention.core.out"), "A_dense_attention_core_out"),
        (of_block("A", "dense", True, part="shared"), "A_dense_ckpt_shared"),
        (of_block("P", "moe", module="experts"), "P_moe_experts"),
        (of_block("W", "head", phase="backward"), "W_bwd_head"),
        (Key("N", part="active"), "N_active"),
        (layers("kind__head", again=True), "L_kind__head_ckpt_i"),
        (layers_of_model("moe"), "L_moe"),
        (of_stage("P", "dense"), "P_stage_dense"),
        (of_stage("t", phase="inputs"), "ti_stage"),
        (of_stage("e", phase="forward", axis="dp_cp"), "e_f_dp_cp_stage"),
        (of_step("sum_t", phase="weights"), "sum_tw"),
        (of_step("t", "place"), "t_place"),
        (Key("M_at", "stage", "moe", True, phase="backward"), "M_at_backward_moe_ckpt"),
        (Key("mu", "network", axis="tp_cp", tier=2), "mu_tp_cp_2"),
        (Key("beta", "network", axis="ep", operation="all_to_all"), "beta_ep_all_to_all"),
        (of_stage("M", "peak").at(3), "M_stage_peak_at_3"),
    ],
)
def test_how_a_key_is_spelt(key: Key, text: str) -> None:
    assert key.text == text == str(key.expr)


def test_the_rest_of_a_moment_is_its_name_without_the_quantity() -> None:
    assert Key("M_at", "stage", "moe", True, phase="second").rest == "second_moe_ckpt"
    assert of_stage("M_at", "first_layers").rest == "first_layers"


@pytest.mark.parametrize("case", CASES)
def test_every_definition_goes_by_its_key(case: str) -> None:
    book = made(case).derivation
    for name, definition in book.definitions.items():
        assert name == definition.symbol == definition.key.text
        # the key says all: no other definition has it, and it finds this one
        assert book[definition.key] is definition and definition.key in book
        found = book.of(definition.key.quantity, **{f: v for f, v in definition.key._asdict().items() if f != "quantity"})
        assert found == [definition]


def test_definitions_are_found_by_fields() -> None:
    book = made("experts").derivation
    assert {d.key.phase for d in book.of("W", block="moe", again=True)} == {"forward", "backward"}
    assert {d.symbol for d in book.of("M_at", block="moe", phase="forward")} == {"M_at_forward_moe", "M_at_forward_moe_ckpt"}
    assert [d.symbol for d in book.of("t", scope="stage", phase="weights")] == ["tw_stage"]
    assert book.of("M_at", scope="block") == []
    assert set(exposed_axes(book)) == {"tp", "cp", "ep", "etp_ep", "pp", "dp"}


def test_the_root_of_sharded_parameters_is_a_field() -> None:
    result = made("sharded")
    messages = update_messages(result.lowered, result.derivation)
    assert {m.what for m in messages if m.purpose == "root"} == {"root"} and len(messages) > 3


def test_a_derivation_that_was_kept_is_read_back_with_its_keys(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SYMSIM_CACHE", str(tmp_path))
    result = made("dense")
    asked = [stored.Asked(result.model, result.strategy, resolve({}), {}, result.system)]
    stored.evaluations(asked, stored.Memories())
    monkeypatch.setattr(stored, "evaluated", None)
    (again,) = stored.evaluations(asked, stored.Memories())
    assert again.derivation.definitions == result.derivation.definitions
    assert again.value("time.step") == result.value("time.step")
