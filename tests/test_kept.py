"""What a layer keeps in the `te` profile that hangs on one fact each: discarded results, split checkpoints, maps, scales, gates; and
how many kernels the host launches for it."""

from __future__ import annotations

import re

from test_megatron_rules import MLA, kept, model, traced

from symsim.api.result import derive
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

TOKENS = 2 * 16


def test_modules_that_discard_keep_their_inputs_alone() -> None:
    """random.py CheckpointWithoutOutput: what reads the results finds them made again."""
    plain = kept(traced(model()))
    norms = kept(traced(model(), recompute="selective", recompute_modules=("layernorm",)))
    dropped = {"pre_attention_norm.rsigma", "pre_attention_norm.out", "pre_mlp_norm.rsigma", "pre_mlp_norm.out"}
    assert plain.keys() - norms.keys() == dropped and norms.items() <= plain.items()
    experts = {"num_moe_experts": 4}
    whole, act = kept(traced(model(moe=experts))), kept(traced(model(moe=experts), recompute="selective", recompute_modules=("moe_act",)))
    assert whole.keys() - act.keys() == {"moe.experts.act.out"}
    up = kept(traced(model(MLA), recompute="selective", recompute_modules=("mla_up_proj",)))
    assert {"attention.q_rot", "attention.k", "attention.v.packed"}.isdisjoint(up)


def test_a_split_checkpoint_is_a_share_that_is_gathered() -> None:
    """distribute_saved_activations (tensor_parallel/random.py)."""
    result = traced(model(layers=2), tp=2, recompute="full", distribute_saved_activations=True)
    made = result.lowered.checkpointed["dense"]
    assert [(s.tensor.name, int(s.bytes.evaluate(result.values))) for s in made.saved] == [("x", 2 * TOKENS * 64 // 2)]
    (gathered,) = [m for _, m in made.backward_messages if m.what == "split checkpoint"]
    assert (gathered.op, int(gathered.receive_bytes.evaluate(result.values))) == ("all_gather", 2 * TOKENS * 64)


def test_a_fused_permutation_keeps_a_map() -> None:
    """TransformerEngine permutation.py: int32 [tokens, 2 E + 1]."""
    result = derive(model(moe={"num_moe_experts": 4}), Strategy(micro_batch_size=2, seq_length=16), {"moe_permute_fusion": "true"})
    assert {n: size for n, size in kept(result).items() if "dispatch" in n} == {"moe.experts.dispatch.row_id_map": 4 * TOKENS * (2 * 4 + 1)}


def test_scales_of_fp8_inputs() -> None:
    """MXFP8: a byte for 32 elements. Blockwise: four for 128. One scale for a whole tensor is not counted."""
    elements = 2 * 128 * 64

    def scales(recipe: str) -> dict[str, int]:
        return {n: size for n, size in kept(traced(model(), fp8=recipe, seq_length=128)).items() if n == "attention.qkv.input.scale"}

    assert scales("mxfp8") == {"attention.qkv.input.scale": elements // 32}
    assert scales("blockwise") == {"attention.qkv.input.scale": 4 * elements // 128}
    assert scales("tensorwise") == {}


def test_an_output_gate_keeps_an_fp32_sigmoid() -> None:
    """transformer/attention.py _apply_output_gate: gate.float()."""
    assert kept(traced(model({"output_gate": True})))["attention.gate.out"] == 4 * TOKENS * 64


def test_kernels_that_the_host_launches_for_a_layer() -> None:
    """Forward: two norms, four products, attention with a copy before it and one after the joint projection, two rotary embeddings of
    six, the activation, two additions. Backward: norms twice, attention three times."""
    result = derive(load_model("llama3-8b").architecture, Strategy(), {}, None, load_system("h100-sxm"))
    forward, inputs, weights = (str(result.derivation.definitions[f"t_{p}_dense"].expr) for p in "fiw")
    counted = [int(n) for text in (forward, inputs, weights) for n in re.findall(r"(\d+)\*t_launch", text)]
    assert counted == [2 + 4 + 1 + 2 + 2 * 6 + 1 + 2, 2 * 2 + 4 + 3 + 2 + 2 * 6 + 1 + 2, 4]
