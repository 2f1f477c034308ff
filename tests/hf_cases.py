"""The cases of ../shared/oracle/activations.json and flops.json (transformers under PyTorch) as symsim derivations.

`activation_cases()` and `flop_cases()` yield (name, expected, computed, reason): computed is a function, and reason says
why a case is known to differ ("" when it must be equal).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from shared import oracle

from symsim.algebra.expr import Expr, expr, symbol
from symsim.cost.count import flops
from symsim.frameworks.choices import framework_of
from symsim.frameworks.kernels import Profile
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.hf import read_config
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.ir.block import Net, Weight
from symsim.layers import notation as n
from symsim.layers.head import head
from symsim.layers.mlp import mlp
from symsim.layers.moe import moe
from symsim.lowering.lower import lower, lower_block
from symsim.lowering.remember import Remembered
from symsim.placement.mesh import mesh_of
from symsim.placement.names import placement_of
from symsim.placement.sizes import dimensions, values

Flops = dict[tuple[str, str], int]
KERNELS = {"oracle_fa2": "flash", "oracle_efficient": "efficient", "oracle_math": "math", "eager": "eager"}
B, S = symbol("b"), symbol("s")

V2_LITE_EAGER = "mla_block_deepseek_v2_lite_dense_eager"
ACTIVATION_EXCEPTIONS = {
    V2_LITE_EAGER: "the oracle's polynomial is fitted through b=1, where bmm can view the values in place: their whole kv_b_proj output stays, "
    "2*a*d_k = 4096 bytes a token more than the copy that every b > 1 makes; all points with b > 1 are equal",
}
_EVERY_EXPERT = "Llama4TextExperts runs every expert on every token by bmm ({} times the routed FLOPs), and its backward is counted as bwd_attn"
FLOP_EXCEPTIONS = {"llama-4-scout-text flash b1 s4080": _EVERY_EXPERT.format(16), "llama-4-maverick-text flash b1 s4080": _EVERY_EXPERT.format(128)}

# ---------------------------------------------------------------- activations

# models read from models/; params.json holds the others' configs
MODELS = {"qwen2.5-7b", "gpt2-xl", "gemma-2-9b", "phi-3-medium", "qwen3-30b-a3b", "olmoe-1b-7b"}


@cache
def model(name: str) -> Architecture:
    """The oracle's model, with dropout off as its script has it."""
    if name in MODELS:
        found = load_model(name).architecture
    else:
        written = oracle("params.json")["models"][name]
        found = read_config({"model_type": written["model_type"], **written["config_written"]}, name, name)[0]
    return found.model_copy(update={"hidden_dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": None})


def bare(name: str = "bare", **sizes: Any) -> Architecture:
    """A model of which one operation is looked at: torch.nn modules apply a norm's weight in fp32, as OLMo-2 does."""
    return Architecture.model_validate(
        {
            "name": name,
            "hidden_size": 4096,
            "vocab_size": 128256,
            "layers": 1,
            "modelling": "olmo2",
            "attention": {"num_attention_heads": 32},
            "mlp": {"ffn_hidden_size": 14336},
            **sizes,
        }
    )


def polynomial(remembered: Remembered, architecture: Architecture, strategy: Strategy) -> Expr:
    """Bytes kept, as a polynomial in b and s: all other sizes are put in."""
    sizes = {k: v for k, v in values(architecture, strategy).items() if k not in ("b", "s")}
    return sum((item.bytes for item in remembered.saved), expr(0)).substitute(sizes)


def of_layer(name: str, kernel: str, layer: int = 0, recompute: str = "none") -> Expr:
    architecture = model(name)
    strategy = Strategy(fusion="eager", recompute=recompute)  # type: ignore[arg-type]
    kind = architecture.kind_names()[layer]
    lowered = lower(architecture, strategy, {"attention_kernel": kernel})
    return polynomial((lowered.checkpointed or lowered.blocks)[kind], architecture, strategy)


def of_part(architecture: Architecture, declare: Callable[[Net], str], kernel: str = "flash", precision: str = "bf16") -> Expr:
    """Bytes kept by a part of a model, declared alone."""
    strategy = Strategy(fusion="eager", precision=precision)  # type: ignore[arg-type]
    mesh = mesh_of(strategy)
    given = resolve({"attention_kernel": kernel})
    profile = Profile(architecture, strategy, given, framework_of(strategy, given), placement_of(strategy))
    net = Net("part", precision, dimensions(architecture, strategy, mesh, {}))
    return polynomial(lower_block(net.block([declare(net)]), profile, mesh), architecture, strategy)


def stream(net: Net) -> str:
    return net.input("x", "b s h")


def feed_forward(name: str) -> Expr:
    spec = model(name).mlp
    assert spec is not None
    return of_part(
        model(name),
        lambda net: mlp(net, stream(net), width="f", gated=spec.gated, activation=spec.activation, bias=spec.bias, fused=spec.fused_gate_up),
    )


def experts(name: str) -> Expr:
    def declared(net: Net) -> str:
        with net.within("moe", "experts"):
            return moe(net, stream(net), model(name))

    return of_part(model(name), declared)


def attend(kernel: str, heads: int, groups: int, d: int, d_v: int | None = None) -> Expr:
    if d_v is None:
        spec = {"num_attention_heads": heads, "num_query_groups": groups, "kv_channels": d}
    else:
        spec = {"kind": "mla", "num_attention_heads": heads, "kv_lora_rank": 1, "qk_head_dim": d, "qk_pos_emb_head_dim": 1, "v_head_dim": d_v}
    g, e = ("g", "d") if d_v is None else ("a", "d_v")
    key = "d" if d_v is None else "d_k"

    def declared(net: Net) -> str:
        q, k, v = (net.input(t, f"b s {h} {w}") for t, h, w in (("q", "a", key), ("k", g, key), ("v", g, e)))
        heads = "a" if g == "a" else f"{g}(a)"
        return n.attend(net, (q, k, v), scores=f"b s a {key}, b z {heads} {key} -> b s a z", values=f"b s a z, b z {heads} {e} -> b s a {e}")

    return of_part(bare(attention=spec), declared, kernel)


def operation(kind: str, **attrs: Any) -> Callable[[Net], str]:
    """One declared operation of the stream, to a tensor like it."""

    def declared(net: Net) -> str:
        x, y = stream(net), net.tensor("y", "b s h")
        net.op(kind, kind, [x, *([net.input("residual", "b s h")] if kind == "add" else [])], [y], **attrs)
        return y

    return declared


def loss(upcast: bool) -> Callable[[Net], str]:
    def declared(net: Net) -> str:
        logits, target = net.input("logits", "b s V"), net.input("labels", "b s", "int64", "index")
        y = net.tensor("loss", "b s", "fp32")
        net.op("cross_entropy", "cross_entropy", [logits, target], [y], upcast=upcast)
        return y

    return declared


def normed(kind: str, architecture: Architecture, precision: str = "bf16") -> Expr:
    return of_part(architecture, lambda net: n.norm(net, stream(net), "norm", kind=kind, bias=kind == "LayerNorm"), precision=precision)


def linear(bias: bool) -> Expr:
    return of_part(bare(), lambda net: net.einsum("b s h, f h -> b s f", stream(net), Weight("linear", bias)))


L3 = "llama-3-8b"
PARTS: dict[str, Callable[[], Expr]] = {
    "rmsnorm_hf_llama_h4096": lambda: normed("RMSNorm", model(L3)),
    "rmsnorm_torch_nn_h4096": lambda: normed("RMSNorm", bare()),
    "layernorm_torch_nn_h4096": lambda: normed("LayerNorm", bare()),
    "rmsnorm_torch_nn_fp32": lambda: normed("RMSNorm", bare(), "fp32"),
    "linear_4096_14336": lambda: linear(False),
    "linear_bias_4096_14336": lambda: linear(True),
    "swiglu_mlp_hf_llama3_8b": lambda: feed_forward(L3),
    "swiglu_mlp_hf_phi3_medium_fused_gateup": lambda: feed_forward("phi-3-medium"),
    "gelu_mlp_hf_gpt2_xl": lambda: feed_forward("gpt2-xl"),
    "gelu_mlp_hf_starcoder2_15b": lambda: feed_forward("starcoder2-15b"),
    "geglu_mlp_hf_gemma2_9b": lambda: feed_forward("gemma-2-9b"),
    "silu": lambda: of_part(bare(), operation("activation", function="silu", gated=False)),
    "gelu_tanh": lambda: of_part(bare(), operation("activation", function="gelu_tanh", gated=False)),
    "dropout0.1": lambda: of_part(bare(hidden_dropout=0.1), operation("add")),
    "softmax": lambda: of_part(bare(), operation("softmax")),
    "ce_bf16_logits_V128256": lambda: of_part(bare(), loss(False)),
    "ce_float32_upcast_V128256 (HF loss)": lambda: of_part(bare(), loss(True)),
    "ce_fp32_logits_V32000": lambda: of_part(bare(vocab_size=32000), loss(True), precision="fp32"),
    "lmhead+ce_upcast_h4096_V128256": lambda: of_part(bare(), lambda net: head(net, stream(net), bare(), final_norm=False)),
    **{
        f"sdpa_{short}_H32_KV{g}_d128": (lambda kernel=kernel, g=g: attend(kernel, 32, g, 128))  # type: ignore[misc]
        for short, kernel in (("fa2", "flash"), ("efficient", "efficient"), ("math", "math"))
        for g in (8, 32)
    },
    "sdpa_efficient_MLA_H128_dqk192_dv128": lambda: attend("efficient", 128, 128, 192, 128),
    "sdpa_math_MLA_H16_dqk192_dv128": lambda: attend("math", 16, 16, 192, 128),
    **{f"block_llama3_8b_{a}": (lambda kernel=kernel: of_layer(L3, kernel)) for a, kernel in KERNELS.items()},  # type: ignore[misc]
    **{
        f"block_{short}": (lambda name=name, kernel=kernel: of_layer(name, kernel))
        for short, name, kernel in (  # type: ignore[misc]
            ("llama2_7b_oracle_fa2", "llama-2-7b", "flash"),
            ("llama2_7b_eager", "llama-2-7b", "eager"),
            ("llama3_70b_oracle_fa2", "llama-3-70b", "flash"),
            ("llama3.1_405b_oracle_fa2", "llama-3.1-405b", "flash"),
            ("qwen3_8b_oracle_fa2", "qwen3-8b", "flash"),
            ("qwen2.5_7b_oracle_fa2", "qwen2.5-7b", "flash"),
            ("gpt2_xl_oracle_fa2", "gpt2-xl", "flash"),
            ("gpt2_xl_eager", "gpt2-xl", "eager"),
            ("gpt3_175b_oracle_fa2", "gpt3-like-175b", "flash"),
            ("gemma2_9b_oracle_fa2", "gemma-2-9b", "flash"),
            ("starcoder2_15b_fa2", "starcoder2-15b", "flash"),
            ("phi3_medium_fa2", "phi-3-medium", "flash"),
            ("olmo2_13b_fa2", "olmo-2-13b", "flash"),
        )
    },
    "mla_block_deepseek_v3_dense_efficient": lambda: of_layer("deepseek-v3", "efficient"),
    "mla_block_deepseek_v3_moe_efficient": lambda: of_layer("deepseek-v3", "efficient", 1),
    "mla_block_deepseek_v2_lite_moe_efficient": lambda: of_layer("deepseek-v2-lite", "efficient", 1),
    "mla_block_deepseek_v2_lite_dense_eager": lambda: of_layer("deepseek-v2-lite", "eager"),
    **{
        f"moe_block_{name}_fa2": (lambda name=name: of_layer(name, "flash"))  # type: ignore[misc]
        for name in ("mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b", "olmoe-1b-7b")
    },
    **{
        f"moe_ffn_{name}": (lambda name=name: experts(name))  # type: ignore[misc]
        for name in ("mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b", "olmoe-1b-7b", "deepseek-v3", "qwen1.5-moe-a2.7b", "gpt-oss-20b")
    },
    "ckpt_full_llama3_8b_fa2": lambda: of_layer(L3, "flash", recompute="full"),
    "ckpt_full_reentrant_llama3_8b_fa2": lambda: of_layer(L3, "flash", recompute="full"),
    "ckpt_full_deepseek_v3_moe": lambda: of_layer("deepseek-v3", "efficient", 1, "full"),
    "ckpt_sel_save_attn_llama3_8b_fa2": lambda: of_layer(L3, "flash", recompute="sac_attn"),
    "ckpt_sel_save_mm_llama3_8b_fa2": lambda: of_layer(L3, "flash", recompute="sac_mm"),
    "ckpt_sel_save_mm_attn_llama3_8b_fa2": lambda: of_layer(L3, "flash", recompute="sac_mm_attn"),
    "ckpt_sel_save_mm_attn_gmm_qwen3_30b": lambda: of_layer("qwen3-30b-a3b", "flash", recompute="sac_mm_attn"),
}


def kept(case: dict[str, Any]) -> Expr:
    """formula_kept_bytes_excl_rope_cache as a polynomial in b and s."""
    powers = {"1": expr(1), "s": S, "s^2": S * S, "b*s": B * S, "b*s^2": B * S * S}
    found = case["formula_kept_bytes_excl_rope_cache"]["coef"]
    return sum((powers[k] * number(c) for k, c in found.items()), expr(0))


def measured(case: dict[str, Any]) -> dict[tuple[int, int], int]:
    """The same bytes as measured: by (b, s)."""
    found = {}
    for point in case["points"]:
        tables = ("input:cos", "input:sin", "input:mask")
        given = sum(v for k, v in point["by_category"].items() if k.startswith(("input:", "output")) and k not in tables)
        found[point["b"], point["s"]] = point["live_internal_bytes"] + given
    return found


def number(text: str) -> Expr:
    top, _, bottom = text.partition("/")
    return expr(int(top)) / int(bottom or 1)


def activation_cases() -> Iterator[tuple[str, Expr, Callable[[], Expr], str]]:
    """Bytes kept for backward by a block or a part of one, as polynomials in b and s."""
    for name, case in (oracle("activations.json") or {"cases": {}})["cases"].items():
        yield name, kept(case), PARTS[name], ACTIVATION_EXCEPTIONS.get(name, "")


# ---------------------------------------------------------------- FLOPs

# Hugging Face's names of modules, under what symsim calls the operation
ALIASES = {
    "c_attn": "qkv",
    "qkv_proj": "qkv",
    "query_key_value": "qkv",
    "attn.c_proj": "o_proj",
    "attention.dense": "o_proj",
    "gate_up_proj": "gate_up",
    "self_attention.dense": "o_proj",
    "c_fc": "up_proj",
    "dense_h_to_4h": "up_proj",
    "mlp.c_proj": "down_proj",
    "dense_4h_to_h": "down_proj",
    "self_attn": "core",
    "attn": "core",
    "attention": "core",
    "self_attention": "core",
    "mlp.gate": "router",
}


def hf_module(path: str) -> str:
    """model.layers.3.mlp.shared_experts.up_proj -> shared.up_proj, without the layer."""
    parts = path.split(".")
    last = ALIASES.get(".".join(parts[-2:]), ALIASES.get(parts[-1], parts[-1]))
    return f"shared.{last}" if any(p.startswith("shared_expert") for p in parts[:-1]) else last


def own_module(name: str) -> str:
    parts = name.split(".")
    last = "experts" if parts[-1] in ("fc1", "fc2") else parts[-1]
    return f"shared.{last}" if "shared_experts" in parts else last


def flop_name(case: dict[str, Any]) -> str:
    return " ".join(str(p) for p in (case["model"], KERNELS[case["attn_impl"]], f"b{case['b']}", f"s{case['s']}", case["checkpoint"]) if p)


def reported(case: dict[str, Any]) -> Flops:
    found: Counter[tuple[str, str]] = Counter()
    for path, phases in case["modules"].items():
        for phase, flop in phases.items():
            if phase != "ops":
                found[hf_module(path), phase] += flop
    return dict(found)


def derived(case: dict[str, Any]) -> Flops:
    """FLOPs by module and phase, all layers together."""
    architecture, _ = read_config({"model_type": case["model_type"], **case["config"]}, case["model"], case["model"])
    checkpoint = str(case["checkpoint"])
    recompute = {"None": "none", "selective_mm_attn": "sac_mm_attn"}.get(checkpoint, "full")
    strategy = Strategy(fusion="eager", micro_batch_size=case["b"], seq_length=case["s"], recompute=recompute)  # type: ignore[arg-type]
    assume = {"attention_kernel": KERNELS[case["attn_impl"]]} | ({"recompute_early_stop": "false"} if checkpoint == "full_no_early_stop" else {})
    lowered = lower(architecture, strategy, assume)
    sizes = values(architecture, strategy) | {"n_z": case["s"], "n_w": case["s"], "n_c": case["s"]}
    found: Counter[tuple[str, str]] = Counter()

    def add(remembered: Remembered, index: int, phase: str, products: Any, times: int) -> None:
        flop = flops(remembered.placed, index, products, local=False).expr.evaluate(sizes)
        found[own_module(remembered.placed.block.ops[index].name), phase] += int(flop) * times

    for name, block in lowered.blocks.items():
        times = sum(s.repeat * s.kinds.count(name) for s in architecture.layers) or 1
        kind = architecture.layer_kinds.get(name)
        sizes |= {f"f_{name}": kind.ffn_hidden_size} if kind and kind.ffn_hidden_size else {}
        again = lowered.checkpointed[name].recomputed if name in lowered.checkpointed else ()
        for index, op in enumerate(block.placed.block.ops):
            if op.products:
                add(block, index, "fwd", op.products, times)
                if index in again:
                    add(block, index, "recompute", op.products, times)
        for kernel in block.differentiated.backward:
            if kernel.products:
                add(block, kernel.forward, "bwd_attn" if kernel.label == "backward" else f"bwd_{kernel.label}", kernel.products, times)
    return dict(found)


def flop_cases() -> Iterator[tuple[str, Flops, Callable[[], Flops], str]]:
    """FLOPs of a model of two layers by module and phase: fwd, bwd_dgrad, bwd_wgrad, bwd_attn, recompute."""
    for case in (oracle("flops.json") or {"cases": []})["cases"]:
        name = flop_name(case)
        yield name, reported(case), lambda case=case: derived(case), FLOP_EXCEPTIONS.get(name, "")  # type: ignore[misc]
