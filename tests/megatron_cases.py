"""The cases of ../shared/oracle/megatron.json as symsim architectures and strategies."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from symsim.api.result import Result, derive
from symsim.cost.count import flops as executed
from symsim.cost.reduce import tensor_parallel_gradients
from symsim.evaluation.buffers import gradient_buffers
from symsim.inputs.architecture import Architecture, Attention, LayerKind, Mlp, Moe
from symsim.inputs.layer_pattern import compress
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.lowering.differentiate import elements
from symsim.pipeline.stages import holds


def architecture(case: dict[str, Any]) -> Architecture:
    m = case["config"]["model"]
    strategy = case["config"].get("strategy") or {}
    gated = m["gated_linear_unit"]
    activation = {"gelu": "gelu", None: "silu" if gated else "relu2"}[m.get("act")]
    bias = m.get("add_bias_linear", False)
    if m.get("multi_latent_attention"):
        attention = Attention(
            kind="mla",
            num_attention_heads=m["num_attention_heads"],
            q_lora_rank=m["q_lora_rank"],
            kv_lora_rank=m["kv_lora_rank"],
            qk_head_dim=m["qk_head_dim"],
            qk_pos_emb_head_dim=m["qk_pos_emb_head_dim"],
            v_head_dim=m["v_head_dim"],
            q_input_norm=m["q_lora_rank"] is None and m.get("qk_layernorm", False),
            latent_norm=m.get("qk_layernorm", False),
            out_bias=bias,
        )
    else:
        attention = Attention(
            num_attention_heads=m["num_attention_heads"],
            num_query_groups=m.get("num_query_groups"),
            kv_channels=m.get("kv_channels"),
            qkv_bias=bias or m.get("add_qkv_bias", False),
            out_bias=bias,
            qk_norm="head" if m.get("qk_layernorm") else "none",
            output_gate=m.get("attention_output_gate", False),
            sinks=m.get("softmax_type") == "learnable",
        )
    moe = None
    frequency: list[int] = [0] * m["num_layers"]
    if m.get("num_moe_experts"):
        moe = Moe(
            num_moe_experts=m["num_moe_experts"],
            moe_router_topk=m["moe_router_topk"],
            moe_ffn_hidden_size=m.get("moe_ffn_hidden_size", m["ffn_hidden_size"]),
            gated=gated,
            activation=activation,
            expert_bias=bias,
            moe_shared_expert_intermediate_size=m.get("moe_shared_expert_intermediate_size"),
            moe_shared_expert_gate=m.get("moe_shared_expert_gate", False),
            moe_router_score_function=m.get("moe_router_score_function", "softmax"),
            moe_router_pre_softmax=m.get("moe_router_pre_softmax", False),
            moe_latent_size=m.get("moe_latent_size"),
            latent_bias=bias,
            router_bias=bias,
            moe_router_enable_expert_bias="buffer" if m.get("moe_router_enable_expert_bias") else "none",
        )
        freq = m.get("moe_layer_freq", 1)
        frequency = freq if isinstance(freq, list) else [int(i % freq == 0) for i in range(m["num_layers"])]
    layer_norm = m["normalization"] == "LayerNorm"
    return Architecture(
        name=case["name"],
        hidden_size=m["hidden_size"],
        vocab_size=m["vocab_size"],
        layers=compress(["moe" if f else "dense" for f in frequency]),
        layer_kinds={"dense": LayerKind(), "moe": LayerKind(ffn="moe")} if moe else {"dense": LayerKind()},
        attention=attention,
        mlp=Mlp(ffn_hidden_size=m["ffn_hidden_size"], gated=gated, activation=activation, bias=bias),
        moe=moe,
        normalization=m["normalization"],
        norm_bias=layer_norm,
        tie_word_embeddings=m.get("tied", False),
        position_embedding={"learned_absolute": "learned", "none": "none"}.get(m.get("pos", "rope"), "rope"),
        position_embedding_rows=m.get("max_seq", 4096) if m.get("pos") == "learned_absolute" else None,
        mtp_num_layers=m.get("mtp_num_layers", 0),
        mtp_use_repeated_layer=m.get("mtp_use_repeated_layer", False),
        hidden_dropout=strategy.get("hidden_dropout", 0.0),
        attention_dropout=strategy.get("attention_dropout", 0.0),
    )


def strategy(case: dict[str, Any]) -> Strategy:
    given = case["config"].get("strategy") or {}
    m = case["config"]["model"]
    p = case["result"]["parallel"]
    aux = given.get("moe_router_load_balancing_type", m.get("moe_router_load_balancing_type", "aux_loss")) if m.get("moe_aux_loss_coeff") else "none"
    ddp = case["config"].get("ddp") or {}
    plain = (
        "num_layers_in_first_pipeline_stage",
        "num_layers_in_last_pipeline_stage",
        "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
        "pipeline_model_parallel_layout",
        "fp32_residual_connection",
        "distribute_saved_activations",
        "moe_expert_capacity_factor",
        "moe_pad_expert_input_to_capacity",
        "moe_token_dispatcher_type",
        "recompute_method",
        "recompute_num_layers",
        "activation_func_fp8_input_store",
    )
    result = {k: given[k] for k in plain if k in given}
    return Strategy(
        tp=p["tp"],
        pp=p["pp"],
        vpp=p["vpp"] or 1,
        cp=p["cp"],
        ep=p["ep"],
        etp=p["etp"],
        dp=p["dp"],
        sp=p["sp"] and p["tp"] > 1,
        num_distributed_optimizer_instances=p["n_distopt"],
        zero=0 if ddp.get("use_distributed_optimizer") is False else 1,
        grad_reduce_in_fp32=ddp.get("grad_reduce_in_fp32", True),
        pad_buckets_for_high_nccl_busbw=ddp.get("pad_buckets_for_high_nccl_busbw", False),
        micro_batch_size=case["result"].get("micro_batch_size", 1),
        seq_length=case["result"].get("seq_length", 4096),
        recompute=given.get("recompute_granularity") or "none",
        **({"recompute_modules": tuple(given["recompute_modules"])} if given.get("recompute_modules") else {}),
        cross_entropy_fusion=given.get("cross_entropy_fusion_impl", "native") if given.get("cross_entropy_loss_fusion") else "unfused",
        moe_router_dtype="fp32" if m.get("moe_router_dtype") == "fp32" else "compute",
        moe_router_load_balancing_type=aux,
        **result,
    )


def assumptions(case: dict[str, Any]) -> dict[str, str]:
    return {"attention_kernel": "flash" if case["config"].get("fused") else "math"}


# --- comparisons: each gives (expected, computed) ------------------------------------------------------------------

LOCAL_MLA = (
    "the local spec splits MLA's down-projections over TP and gathers their outputs; symsim places them as TransformerEngine does, on every rank"
)
PARAMETER_EXCEPTIONS = {
    "deepseek_v2_lite_tp2_ep4_local_mla": LOCAL_MLA,
    "mhc_dense_tp2": "manifold-constrained hyper-connections are not modelled",
}
MESSAGE_EXCEPTIONS = {"mla_tp2_sp_local": LOCAL_MLA}
DTYPES = {"bfloat16": "bf16", "float32": "fp32"}


def parameters(case: dict[str, Any]) -> tuple[Any, Any]:
    """(total, expert, summed over TP at the end of the step) parameters of every pipeline rank."""
    result = derive(architecture(case), strategy(case))
    ours = []
    for stage, held in zip(result.stages, result.to_json()["params"]["per_rank"], strict=True):
        at = result.stage_values(stage)
        over_tp = sum(tensor_parallel_gradients(result.lowered, b).evaluate(result.values) * at[holds(b)] for b in result.lowered.blocks)
        ours.append((held["total"], held["expert"], over_tp if result.strategy.sp else 0))
    sequence_parallel = result.strategy.sp
    theirs = [(r["numel"], r["expert_numel"], r["sequence_parallel_numel"] if sequence_parallel else 0) for r in case["result"]["ranks"]]
    return theirs, ours


def buffers(case: dict[str, Any]) -> tuple[Any, Any]:
    """Gradient buffers: kind, elements with and without padding, every bucket, ranks that share it."""
    result = derive(architecture(case), strategy(case))
    ours = [(b.kind, b.elements, b.parameters, list(b.buckets), b.shard) for b in gradient_buffers(result, result.stages[0])]
    theirs = [(b["kind"], b["numel"], b["numel_unpadded"], b["bucket_numel"], b["shard_group_size"]) for b in case["result"]["buffers"]]
    return theirs, ours


def _layers(case: dict[str, Any], result: Result) -> list[tuple[str, Any, int, Fraction]]:
    """(block, lowered variant, how often, load imbalance) in the order of the model, layer by layer: dropless routing is
    data, so each traced layer's own rows stand for the imbalance symbol where the trace shows them."""
    model, plan = result.model, result.strategy
    kinds = [kind for segment in model.layers for kind in segment.kinds * segment.repeat]
    loads = iter(_loads(case, result))

    def load(kind: str) -> Fraction:
        return next(loads, Fraction(1)) if model.layer_kinds[kind].ffn == "moe" else Fraction(1)

    found: list[tuple[str, Any, int, Fraction]] = []
    for index, kind in enumerate(kinds):
        again = kind in result.lowered.checkpointed and (plan.recompute_method == "uniform" or index < plan.recompute_num_layers)
        found.append((kind, (result.lowered.checkpointed if again else result.lowered.blocks)[kind], 1, load(kind)))
    found += [("mtp", result.lowered.blocks["mtp"], 1, load(kinds[-1])) for _ in range(model.mtp_num_layers)]
    return [*found, *((name, result.lowered.blocks[name], 1, Fraction(1)) for name in ("embedding", "head"))]


def _loads(case: dict[str, Any], result: Result) -> list[Fraction]:
    """The load imbalance of each layer of experts, as far as it is not 1."""
    plan = result.strategy
    if result.model.moe is None or plan.moe_pad_expert_input_to_capacity:
        return []
    if plan.moe_token_dispatcher_type == "alltoall" and plan.ep > 1:
        return [Fraction(e[4], e[3]) for e in case["result"]["order"] if e[:2] == ["fwd", "all_to_all"]][::3]
    if plan.moe_token_dispatcher_type == "allgather":
        return [_load_by_flops(case, result)] * (result.model.num_layers + result.model.mtp_num_layers)
    return []


def _load_by_flops(case: dict[str, Any], result: Result) -> Fraction:
    """The all-gather dispatcher's rows are nowhere in the trace; its forward FLOPs give them, backward is left to check."""
    expected, numbers = case["result"]["flops"]["fwd"], {**result.numbers}

    def forward(load: int) -> Fraction:
        numbers["lam"] = load
        total = Fraction(0)
        for name, block in result.lowered.blocks.items():
            times = int(result.numbers[f"L_{name}"]) if name in result.model.layer_kinds else result.model.mtp_num_layers if name == "mtp" else 1
            total += times * sum(
                Fraction(executed(block.placed, i, op.products, local=True).expr.evaluate(numbers))
                for i, op in enumerate(block.placed.block.ops)
                if op.products
            )
        return total

    base = forward(0)
    return (expected - base) / (forward(1) - base) if forward(1) != base else Fraction(1)


def collectives(case: dict[str, Any]) -> tuple[Any, Any]:
    """Every call by (phase, op, group, send, recv), and bytes by (phase, op, group, dtype)."""
    result = derive(architecture(case), strategy(case), assumptions(case))
    calls: Counter[Any] = Counter()
    typed: Counter[Any] = Counter()
    for _, variant, times, load in _layers(case, result):
        numbers = {**result.numbers, "lam": load}
        for _, m in (*variant.differentiated.forward_messages, *variant.backward_messages):
            phase, n = {"forward": "fwd", "backward": "bwd"}[m.phase], times * int(m.count.evaluate(numbers))
            send, receive = int(m.send_bytes.evaluate(numbers)), int(m.receive_bytes.evaluate(numbers))
            calls[phase, m.op, m.axis, send, receive] += n
            typed[phase, m.op, m.axis, m.dtype] += n * send
    expected: Counter[Any] = Counter((e[0], e[1].removesuffix("_v"), *e[2:]) for e in case["result"]["order"])
    expected_typed: Counter[Any] = Counter()
    for c in case["result"]["collectives"]:
        expected_typed[c["phase"], c["op"].removesuffix("_v"), c["group"], DTYPES.get(c["dtype"], c["dtype"])] += c["send_bytes"]
    return (expected, expected_typed), (calls, typed)


def flops(case: dict[str, Any]) -> tuple[Any, Any]:
    """Executed FLOPs of one rank, forward and backward (recomputation counted in backward)."""
    result = derive(architecture(case), strategy(case), assumptions(case))
    forward, backward = Fraction(0), Fraction(0)
    for _, variant, times, load in _layers(case, result):
        placed, numbers = variant.placed, {**result.numbers, "lam": load}
        for i, op in enumerate(placed.block.ops):
            n = executed(placed, i, op.products, local=True).expr.evaluate(numbers)
            forward += times * n
            backward += times * n * (i in variant.recomputed)
        for kernel in variant.differentiated.backward:
            backward += times * executed(placed, kernel.forward, kernel.products, local=True).expr.evaluate(numbers)
    return (case["result"]["flops"]["fwd"], case["result"]["flops"]["bwd"]), (forward, backward)


def saved(case: dict[str, Any]) -> tuple[Any, Any]:
    """Bytes alive after forward, of every layer (tables and masks are counted with the first that keeps them) and of the
    rest. Where layers' loads are known on the average only, of all layers together."""
    result = derive(architecture(case), strategy(case), assumptions(case))
    alive = dict(case["result"]["saved_for_backward"]["alive_bytes_after_forward"])
    layers, rest, shared = [], Fraction(0), False
    for name, variant, times, load in _layers(case, result):
        numbers = {**result.numbers, "lam": load}
        size = times * sum(s.bytes.evaluate(numbers) for s in variant.saved)
        tables = 0 if shared else sum(s.bytes.evaluate(numbers) for s in variant.shared)
        shared = shared or bool(variant.shared)
        if name in result.model.layer_kinds and variant is not result.lowered.checkpointed.get(name):
            layers.append(size + tables)
        elif name in result.model.layer_kinds:  # a group of layers keeps one input
            layers.append(0)
            rest += tables + (size if (len(layers) - 1) % (result.strategy.recompute_num_layers if _uniform(result) else 1) == 0 else 0)
        else:
            rest += size + tables
    # beside each depth's own loss Megatron-Core keeps its mask (int64 here), the masked loss and five scalars, left out of symsim
    rest += result.model.mtp_num_layers * (12 * result.strategy.micro_batch_size * result.strategy.seq_length + 20)
    theirs = [alive.pop(f"layer{i}", 0) for i in range(result.model.num_layers)]
    if result.strategy.moe_token_dispatcher_type == "allgather":
        return (sum(theirs), sum(alive.values())), (sum(layers), rest)
    return (theirs, sum(alive.values())), (layers, rest)


def _uniform(result: Result) -> bool:
    return result.strategy.recompute_method == "uniform"


def mixer(case: dict[str, Any]) -> tuple[Any, Any]:
    """Parameters of one gated-delta-net mixer on a rank; Megatron-Core's defaults are Qwen3-Next's sizes."""
    tp = case["result"]["parallel"]["tp"]
    result = derive(load_model("qwen3-next-80b-a3b").architecture, Strategy(tp=tp, sp=tp > 1))
    placed = next(b.placed for b in result.lowered.blocks.values() if any(op.kind == "delta_rule" for op in b.placed.block.ops))
    held = [t.name for t in placed.block.parameters() if t.name.startswith("attention.")]
    return case["result"]["numel"], sum(elements(placed, n).evaluate(result.values) for n in held)
