"""The numbers behind the symbols: sizes of a model, degrees of a strategy, and the dimensions of a block."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from symsim.algebra.expr import ONE, Expr, Number, ceil, expr, floor, log2, maximum, minimum, sqrt, symbol
from symsim.inputs.architecture import Architecture, Moe
from symsim.inputs.lengths import attention_documents, documents, networks_pack
from symsim.inputs.strategy import Strategy
from symsim.inputs.watched import unheeded
from symsim.ir.block import TOKENS, Dim
from symsim.pipeline.schedules import schedule_sizes
from symsim.placement.mesh import Mesh

WINDOW = symbol("w")
# the dimension of keys, and how far its attention reaches
REACHES = {"n_z": "all", "n_b": "both", "n_w": "window", "n_c": "chunk", "n_v": "band", "n_k": "chosen", "n_j": "compressed", "n_p": "picked"}
# what `_of_ranks` knows of every strategy
_OF_RANKS = ("m", "tp", "cp", "pp", "vpp", "ep", "etp", "dp", "edp", "inst", "group")


def reached_by(keys: str, assumptions: Mapping[str, str]) -> str:
    """How far attention over a dimension of keys reaches as it runs: kernels that know of chosen keys by a mask alone work through all, and so
    does the stage that warms the indexer up."""
    reach = REACHES[keys]
    of_all = {"chosen": "all", "picked": "compressed"}
    if reach not in of_all:
        return reach
    return of_all[reach] if assumptions["attention_kernel"] != "flash" or assumptions["dsa_stage"] == "warm_up" else reach


def own_keys(model: Architecture, kind: str) -> dict[str, str]:
    """Symbols of the keys that a kind of layer has of its own, by dimension."""
    spec = model.layer_kinds[kind]
    dims = {"compressed": ("n_j",), "picked": ("n_p", "n_e")}.get(spec.reach, ())
    if model.several_windows:
        dims = {"window": ("n_w",), "chunk": ("n_c",), "band": ("n_v",)}.get(spec.reach, dims)
    return {dim: f"{dim}_{kind}" for dim in dims}


def own_symbols(model: Architecture, kind: str) -> dict[str, Expr]:
    """The symbols that `keys_per_query` takes of a kind of layer."""
    tokens = {"m_x": symbol(f"m_x_{kind}")} if model.layer_kinds[kind].compression else {}
    return tokens | ({"w": symbol(f"w_{kind}")} if model.several_windows else {})


def values(model: Architecture, strategy: Strategy) -> dict[str, Number]:
    """Every symbol of vocabulary.py that the model and the strategy determine. Sizes that no formula holds move nothing: reading them here is no
    use of them."""
    with unheeded(model):
        return {**_values(model, strategy), **_of_ranks(strategy)}


def _of_ranks(strategy: Strategy) -> dict[str, Number]:
    """Degrees, and what follows from them: all strategies have these."""
    return {
        "m": strategy.microbatches,
        "tp": strategy.tp,
        "cp": strategy.cp,
        "pp": strategy.pp,
        "vpp": strategy.vpp,
        "ep": strategy.ep,
        "etp": strategy.expert_tp,
        "dp": strategy.dp,
        "edp": strategy.expert_dp,
        "inst": strategy.num_distributed_optimizer_instances,
        "group": schedule_sizes(strategy)["group"],
    }


def _values(model: Architecture, strategy: Strategy) -> dict[str, Number]:
    at, lengths = model.attention, documents(strategy)
    found: dict[str, Number | None] = {
        "b": strategy.micro_batch_size,
        "s": strategy.seq_length,
        "lam": 1,
        "h": model.hidden_size,
        "V": model.vocab_size,
        "L": model.num_layers,
        "P": model.position_embedding_rows,
        "h_e": model.embedding_size,
        "h_y": model.head_size,
        "T_v": model.token_types,
        "V_t": model.embedding_rows,
        "a": at.num_attention_heads,
        "g": model.query_groups if at.kind == "gqa" else None,
        "d": model.head_dim if at.kind == "gqa" else None,
        "r_q": at.q_lora_rank,
        "r_k": at.kv_lora_rank,
        "d_k": at.qk_head_dim,
        "d_r": at.qk_pos_emb_head_dim,
        "d_v": at.v_head_dim,
        "k_x": at.dsa_indexer_topk,
        "a_x": at.dsa_indexer_n_heads,
        "d_x": at.dsa_indexer_head_dim,
        "c_x": at.dsa_indexer_block,
        "r": strategy.lora_rank if strategy.tuner_type == "lora" else None,
        "r_e": strategy.lora_expert_rank if strategy.tuner_type == "lora" else None,
        "o": strategy.oft_block_size if strategy.tuner_type == "oft" else None,
        "D": model.mtp_num_layers,
    }
    found |= _of_networks(model)
    if lengths is not None:
        found |= lengths.values(alone=strategy.padding_free or strategy.mlp_padding_free)
        if strategy.padding_free:
            found |= {"s": lengths.mean, "s_max": strategy.seq_length}
        for w in {kind.window for kind in model.layer_kinds.values() if kind.window}:
            found |= lengths.inside(w)
    if strategy.hierarchical_context_parallel_sizes:
        found |= dict(zip(("cp_a2a", "cp_p2p"), strategy.hierarchical_context_parallel_sizes))
    return {name: value for name, value in found.items() if value is not None}


def _of_networks(model: Architecture) -> dict[str, Number | None]:
    """Sizes of feed-forward networks, experts, linear attention and state-space mixers, where the model has them."""
    found: dict[str, Number | None] = {}
    if model.mlp:
        found["f"] = model.mlp.ffn_hidden_size
    if model.moe:
        moe = model.moe
        found |= {
            "E": moe.num_moe_experts,
            "K": moe.moe_router_topk,
            "f_e": moe.moe_ffn_hidden_size,
            "f_s": moe.moe_shared_expert_intermediate_size,
            "ell": moe.moe_latent_size,
        }
    if model.linear_attention:
        la = model.linear_attention
        found |= {
            "H_k": la.linear_num_key_heads,
            "H_v": la.linear_num_value_heads,
            "D_k": la.linear_key_head_dim,
            "D_v": la.linear_value_head_dim,
            "W_c": la.linear_conv_kernel_dim,
        }
    if model.lightning_attention:
        found["C_l"] = model.lightning_attention.block_size
    if model.compressed_attention:
        found |= {"G_o": model.compressed_attention.output_groups, "r_o": model.compressed_attention.output_rank}
    if model.short_convolution:
        found["W_l"] = model.short_convolution.conv_kernel_dim
    if model.selective_scan:
        scan = model.selective_scan
        found |= {"D_i": scan.channels, "N_i": scan.state_dim, "r_i": scan.step_rank, "W_i": scan.conv_kernel_dim}
    if model.hyper_connections:
        found["n_r"] = model.hyper_connections.streams
    if model.altup:
        found["n_r"] = model.altup.num_inputs
    if model.norm_gate_rank:
        found["r_n"] = model.norm_gate_rank
    if model.laurel_rank:
        found["r_u"] = model.laurel_rank
    if model.per_layer_input:
        found |= {"h_p": model.per_layer_input.hidden_size, "V_p": model.per_layer_input.vocab_size}
    if model.shared_block:
        found["r_b"] = model.shared_block.adapter_rank
    if model.mamba:
        ssm = model.mamba
        found |= {
            "H_m": ssm.mamba_num_heads,
            "D_m": ssm.mamba_head_dim,
            "G_m": ssm.mamba_num_groups,
            "N_m": ssm.mamba_state_dim,
            "W_m": ssm.mamba_conv_kernel_dim,
            "Q_m": ssm.mamba_chunk_size,
        }
    return found


def entries_per_query(causal: str, m_x: Expr, most: Expr | None = None) -> Expr:
    """Mean number of entries of `m_x` tokens each that are complete before a query, at most `most` of them."""
    s = symbol("s")
    whole = floor(s / m_x)
    if causal in ("full", "half"):
        every = whole if causal == "full" else whole / 2
        return every if most is None else minimum(most, every)
    seen = whole if most is None else minimum(most, whole)
    return (m_x * seen * (seen - 1) / 2 + seen * (s - m_x * seen + 1)) / s


def keys_per_query(causal: str, reach: str, strategy: Strategy, *, w: Expr = WINDOW, m_x: Expr = ONE, block: Expr = ONE) -> Expr:
    """Mean number of keys a query is charged for (assumption `causal`); in packed sequences those of its own document.

    reach: both: all before and behind it, whatever `causal` says; all; chosen: query i sees min(i, k_x) keys, of the `block` that it is in those
    up to itself; window: min(i, w) keys, so
    the exact mean is w' - w'(w'-1)/(2s) with w' = min(w, s); band: those of a window to either side, itself once; chunk: it
    sees those since the last multiple of w, so floor(s/w) chunks of w(w+1)/2 pairs and a last one of r(r+1)/2, r = s mod w. compressed: those of a
    window and all entries of m_x tokens before it; picked: at most k_x of these.

    Where the documents' lengths u differ, the mean is over all tokens, which are in long documents more often: f(u) of a document's pairs
    is E[f(u)]/E[u] a token, and E[u^2]/E[u] = u (1 + q_u).
    """
    lengths = attention_documents(strategy)
    s = symbol("s") if lengths is None else symbol("u")
    varied = lengths is not None and lengths.varied
    if reach in ("compressed", "picked"):
        most = symbol("k_x") if reach == "picked" else None
        return keys_per_query(causal, "window", strategy, w=w) + entries_per_query(causal, m_x, most)
    if reach == "both" or (reach == "band" and causal in ("full", "half")):
        return span("both", strategy)
    if reach == "band":
        return 2 * keys_per_query("exact", "window", strategy, w=w) - 1
    if causal in ("full", "half"):
        every = span("all", strategy)
        if reach == "chosen":
            return minimum(symbol("k_x"), every if causal == "full" else every / 2)
        return every if causal == "full" else every / 2
    if varied and reach == "window":
        u, inside = symbol("u"), symbol("u_w")
        return ((symbol("u_ww") + inside) / 2 + w * (u - inside)) / u
    if reach == "all" or varied:
        return (span(reach, strategy) + 1) / 2
    if reach == "chunk":
        chunks = floor(s / w)
        rest = s - chunks * w
        return (chunks * w * (w + 1) + rest * (rest + 1)) / (2 * s)
    most = minimum(symbol("k_x") if reach == "chosen" else w, s)
    if reach == "chosen" and block != ONE:
        rest = s - most
        part = rest - floor(rest / block) * block
        return (most * (most + 1) + 2 * rest * (most - block) + floor(rest / block) * block * (block + 1) + part * (part + 1)) / (2 * s)
    return most - most * (most - 1) / (2 * s)


def span(reach: str, strategy: Strategy, *, w: Expr = WINDOW) -> Expr:
    """The keys that a token has in reach on average, before and behind it: of its row or document, at most a window or its chunk."""
    if reach == "band":
        return minimum(2 * span("window", strategy, w=w) - 1, span("both", strategy))
    lengths = attention_documents(strategy)
    if lengths is None or not lengths.varied:
        row = symbol("s") if lengths is None else symbol("u")
        return row if reach in ("all", "both") else minimum(symbol("k_x") if reach == "chosen" else w, row)
    u = symbol("u")
    if reach in ("all", "both"):
        return u * (1 + symbol("q_u"))
    if reach == "window":
        return (symbol("u_ww") + w * (u - symbol("u_w"))) / u
    return (w * (u - symbol("u_r")) + symbol("u_rr")) / u


def tokens_per_rank(strategy: Strategy, mesh: Mesh) -> Expr:
    """Tokens of a micro-batch that one rank routes: b s / c, and / t with sequence parallelism; of rows that are padded, b u / c."""
    shards = mesh.group(mesh.context_axes) * (mesh.degree("tp") if mesh.sequence_parallel else 1)
    return routed_tokens(strategy) / shards


def routed_tokens(strategy: Strategy) -> Expr:
    """Tokens of a micro-batch that are routed."""
    return symbol("b") * symbol("u" if networks_pack(strategy) else "s")


def capacity(strategy: Strategy, mesh: Mesh) -> Expr:
    """Rows an expert takes from one rank: ceil(factor * tokens * K / E) (Megatron-Core moe_utils.get_capacity)."""
    factor = Fraction(str(strategy.moe_expert_capacity_factor or 1))
    return ceil(tokens_per_rank(strategy, mesh) * symbol("K") * expr(factor) / symbol("E"))


def reached(moe: Moe, units: Expr) -> Expr:
    """Of `units` equal parts of the experts' ranks, those that hold an expert of a token, in the mean over all choices of its K experts
    out of E: units (1 - C(E - E/units, K) / C(E, K))."""
    missed = ONE
    for taken in range(moe.moe_router_topk):
        missed = missed * (1 - moe.num_moe_experts / (units * (moe.num_moe_experts - taken)))
    return maximum(1, units * (1 - missed))


def reached_in_turn(units: Expr) -> Expr:
    """The same of K experts in a row, the next K of the next token: as many as hold K, where one of K and E/units divides the other."""
    return maximum(1, units * symbol("K") / symbol("E"))


def busiest(moe: Moe, strategy: Strategy, mesh: Mesh) -> Expr:
    """Rows of the busiest of e experts' ranks over the mean, where each of T tokens a rank takes K of E experts at random.

    Rows of a rank have the mean K T and the variance K T (1 - 1/e) (E - K)/(E - 1), and a correlation of -1/(e - 1), since their sum is given. So
    the largest lies as far above the mean as that of e independent numbers of the variance K T (E - K)/(E - 1): of normal ones by about
    1.541 (sqrt(log2 e + 1.4) - sqrt(1.4)) standard deviations (within 4 per cent for e from 2 to 256).
    """
    ranks, experts, chosen = mesh.degree("ep"), moe.num_moe_experts, moe.moe_router_topk
    if ranks == ONE or chosen == experts:
        return ONE
    deviation = sqrt(Fraction(experts - chosen, experts - 1) / (chosen * tokens_per_rank(strategy, mesh)))
    above = Fraction("1.541") * (sqrt(log2(ranks) + Fraction("1.4")) - sqrt(Fraction("1.4")))
    return minimum(ranks, 1 + above * deviation)


def set_aside_rows(strategy: Strategy, load: Expr) -> tuple[Expr | None, Expr | None]:
    """What memory is set aside for, over the rows of the busiest rank (moe_expert_rank_capacity_factor), and what is kept of it in pages
    (Megatron-Core transformer/moe/paged_stash.py: moe_paged_stash_buffer_size_factor_cuda, 1.1 of the mean)."""
    if strategy.moe_expert_rank_capacity_factor is None:
        return None, None
    room = Fraction(str(strategy.moe_expert_rank_capacity_factor)) / load
    return room, Fraction("1.1") / load if strategy.moe_paged_stash else room


def dimensions(
    model: Architecture, strategy: Strategy, mesh: Mesh, own: Mapping[str, str], load: str = "balanced", experts: bool = True
) -> Mapping[str, Dim]:
    """Dimensions of a block. `R`, the rows of an expert rank, is a local size (before etp shards it): tokens a rank
    routes, times K, times etp for the gather over expert-tensor ranks, times the load imbalance. `R_u`, under the flex dispatcher, are tokens that
    arrive there: each once, however many of its experts are there. own: symbols of sizes that a kind has of its own.
    load: the assumption expert_load. experts: with those of experts.
    """
    with unheeded(model):
        sized = {name: Dim(symbol(name)) for name in (*_OF_RANKS, *_values(model, strategy)) if name not in ("lam",)}
    return {
        **sized,
        "f": Dim(symbol("f")),
        **(_of_experts(model, strategy, mesh, load) if experts else {}),
        "n_z": Dim(symbol("n_z")),
        "n_b": Dim(symbol("n_b")),
        "n_w": Dim(symbol("n_w")),
        "n_c": Dim(symbol("n_c")),
        "n_v": Dim(symbol("n_v")),
        "n_k": Dim(symbol("n_k")),
        "one": Dim(expr(1)),
        "y": Dim(expr(strategy.num_labels)),
        "z": Dim(symbol("s")),
        **({TOKENS: Dim(symbol("u"), parts=("s",))} if networks_pack(strategy) else {}),
        **{dim: Dim(symbol(name)) for dim, name in own.items()},
    }


def _of_experts(model: Architecture, strategy: Strategy, mesh: Mesh, chosen: str) -> dict[str, Dim]:
    load = symbol("lam") * (busiest(model.moe, strategy, mesh) if chosen == "random" and model.moe else ONE)
    rows = tokens_per_rank(strategy, mesh) * symbol("K") * mesh.degree("etp") * load
    logical = routed_tokens(strategy) * symbol("K")
    if model.moe and strategy.moe_pad_expert_input_to_capacity:
        rows = symbol("E") * symbol("C") * mesh.degree("etp")
        logical = symbol("E") * symbol("C") * (routed_tokens(strategy) / tokens_per_rank(strategy, mesh))
    flex, set_aside = {}, set_aside_rows(strategy, load)
    if model.moe and strategy.moe_token_dispatcher_type == "flex":
        often = reached_in_turn(mesh.degree("ep")) if chosen == "in_turn" else reached(model.moe, mesh.degree("ep"))
        flex["R_u"] = Dim(tokens_per_rank(strategy, mesh) * often * mesh.degree("etp") * load, routed_tokens(strategy) * often)
    return {"C": Dim(symbol("C")), "R": Dim(rows, logical, room=set_aside[0], kept=set_aside[1]), **flex, "E_r": Dim(symbol("E"))}
