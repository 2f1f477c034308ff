"""Combinations of an architecture and a strategy that no system would run, refused with the reason.

The rules are Megatron-Core 0.20's (and TransformerEngine's for attention under context parallelism); the numbers in
parentheses are lines of the file named beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from symsim.algebra.vocabulary import SYMBOLS
from symsim.errors import InputError, cut
from symsim.frameworks.choices import FRAMEWORKS
from symsim.inputs.architecture import Architecture
from symsim.inputs.lengths import attention_documents, documents, is_cut
from symsim.inputs.limits import MOST_STAGES
from symsim.inputs.strategy import Strategy, default_dp
from symsim.inputs.trained import depths
from symsim.lowering.checks_fusions import fusions
from symsim.lowering.checks_loss import loss
from symsim.lowering.checks_mixers import heads, heads_of_a_rank, mixers
from symsim.lowering.checks_overlap import overlap
from symsim.lowering.checks_recompute import recomputation
from symsim.lowering.checks_shards import sharded_stages
from symsim.lowering.checks_tuning import tuning
from symsim.lowering.checks_update import autocast, in_backward, on_the_host, optimizer_states
from symsim.lowering.shares import divides, divisors
from symsim.pipeline.layout import pipeline_layout
from symsim.pipeline.schedules import check_schedule, schedule_of
from symsim.placement import names
from symsim.placement.given import named_placement
from symsim.placement.sizes import values

# of a model and a strategy, or what stands for many in a grid: InputError where it refuses
Rule = Callable[[Architecture, Any], None]


def check(architecture: Architecture, strategy: Strategy) -> None:
    """InputError with the reason when `architecture` cannot be trained under `strategy`."""
    for rule in RULES:
        rule(architecture, strategy)


def _has_moe(architecture: Architecture) -> bool:
    return any(architecture.layer_kinds[kind].ffn == "moe" for kind in architecture.kind_names())


def _depths(architecture: Architecture, strategy: Strategy) -> None:
    if architecture.mtp_num_layers > architecture.num_layers:
        raise InputError(f"mtp_num_layers={architecture.mtp_num_layers} is more than the {architecture.num_layers} layers of {architecture.name}")


# Dimensions that tensor ranks share by a rule of its own; of any other they need whole shares
OWN_RULES = frozenset({"a", "g", "f", "f_s", "V", "h_o", "h_c", "H_k", "H_v", "H_m", "G_m", "D_i", "G_o", "a_2", "g_2"})

# A vocabulary that no rank has a part of
WHOLE_VOCABULARY = frozenset({"embedding.V=none", "lm_head.V=none", "loss.V=none"})


def _named_placement(architecture: Architecture, strategy: Strategy) -> None:
    if strategy.placement is None:
        return
    from symsim.lowering.lower import declared_alone

    named_placement(architecture, strategy, declared_alone(architecture))


def _tensor_parallel(architecture: Architecture, strategy: Strategy) -> None:
    tp = strategy.tp
    if strategy.sp and tp == 1:
        raise InputError("sp=true needs tp above 1: sequence parallelism splits the sequence over the tensor-parallel ranks")
    if strategy.distribute_saved_activations and tp == 1:
        raise InputError("distribute_saved_activations=true needs tp above 1: it splits saved activations over the tensor-parallel ranks")
    used = {mixer for kind in architecture.kind_names() for mixer in architecture.layer_kinds[kind].mixers}
    heads(architecture, strategy)
    if "short_convolution" in used:
        divides("tp", tp, "hidden_size", architecture.hidden_size)
    mixers(architecture, strategy)
    others = set(names.BY_TENSOR) - OWN_RULES
    for dim, size in values(architecture, strategy).items() if others else ():
        if dim in others:
            divides("tp", tp, f"{dim} ({SYMBOLS[dim].meaning})", int(size))
    if architecture.vocab_size % tp and not WHOLE_VOCABULARY <= set(strategy.placement or ()):
        # Megatron's default make_vocab_size_divisible_by is 128 for each tensor-parallel rank
        step = 128 * tp
        padded = -(-architecture.vocab_size // step) * step
        raise InputError(
            f"tp={tp} does not divide vocab_size={architecture.vocab_size}, and symsim does not pad the vocabulary; "
            f"give the padded size, for example --set vocab_size={padded}"
        )
    if architecture.embedding_rows is not None:
        divides("tp", tp, "embedding_rows", architecture.embedding_rows)
    for kind_name in architecture.kind_names():
        kind = architecture.layer_kinds[kind_name]
        if kind.has_mlp and architecture.mlp is not None:
            divides("tp", tp, "ffn_hidden_size", kind.ffn_hidden_size or architecture.mlp.ffn_hidden_size)
    if _has_moe(architecture) and architecture.moe is not None:
        if architecture.moe.moe_shared_expert_intermediate_size is not None:
            divides("tp", tp, "moe_shared_expert_intermediate_size", architecture.moe.moe_shared_expert_intermediate_size)
        if tp > 1 and not strategy.sp:
            raise InputError(f"a mixture of experts with tp={tp} needs sp=true: Megatron-Core refuses to train it without sequence parallelism")


def _experts(architecture: Architecture, strategy: Strategy) -> None:
    ep, etp, moe = strategy.ep, strategy.expert_tp, architecture.moe
    if not _has_moe(architecture) or moe is None:
        if ep > 1:
            raise InputError(f"ep={ep} needs a mixture of experts, and {architecture.name} has none")
        if strategy.etp not in (None, 1, strategy.tp):
            raise InputError(f"etp={strategy.etp} needs a mixture of experts, and {architecture.name} has none")
        if strategy.moe_expert_capacity_factor is not None or strategy.moe_pad_expert_input_to_capacity:
            name = "moe_expert_capacity_factor" if strategy.moe_expert_capacity_factor is not None else "moe_pad_expert_input_to_capacity"
            raise InputError(f"{name} needs a mixture of experts, and {architecture.name} has none")
        return
    divides("ep", ep, "num_moe_experts", moe.num_moe_experts)
    divides("etp", etp, "moe_ffn_hidden_size", moe.moe_ffn_hidden_size)
    ranks = strategy.tp * strategy.cp * strategy.dp
    if ranks % (etp * ep):
        default = "" if strategy.etp is not None else " (etp is tp unless given)"
        raise InputError(
            f"etp*ep={etp}*{ep} does not divide the {ranks} ranks of a pipeline stage (tp*cp*dp={strategy.tp}*{strategy.cp}*"
            f"{strategy.dp}){default}; {_experts_fit(strategy, ranks, moe.num_moe_experts)}"
        )
    if strategy.moe_pad_expert_input_to_capacity and strategy.moe_expert_capacity_factor is None:
        raise InputError("moe_pad_expert_input_to_capacity=true needs moe_expert_capacity_factor, the capacity to pad to")
    _flex(strategy)
    if strategy.moe_expert_capacity_factor is not None and strategy.moe_token_dispatcher_type == "allgather":
        raise InputError("moe_expert_capacity_factor needs moe_token_dispatcher_type=alltoall: the allgather dispatcher drops no tokens")


def _experts_fit(strategy: Strategy, ranks: int, experts: int) -> str:
    """What makes the ranks hold whole groups of experts: more replicas, or fewer ranks in a group."""
    etp, ep = strategy.expert_tp, strategy.ep
    least = default_dp(strategy.tp, strategy.cp, ep, etp)
    said = [f"dp={-(-strategy.dp // least) * least}"]
    said += [f"ep={n}" for n in range(ep - 1, 0, -1) if ranks % (etp * n) == 0 and experts % n == 0][:1]
    said += [f"etp={n}" for n in range(etp - 1, 0, -1) if ranks % (n * ep) == 0][:1]
    return f"give {' or '.join(said)}"


def _flex(strategy: Strategy) -> None:
    """Megatron-Core transformer/transformer_config.py, transformer/moe/token_dispatcher.py (MoEFlexTokenDispatcher)."""
    backend = strategy.moe_flex_dispatcher_backend
    if strategy.moe_token_dispatcher_type != "flex":
        for name in ("moe_flex_dispatcher_num_sms", "moe_permute_fusion_into_hybridep", "moe_expert_rank_capacity_factor", "moe_paged_stash"):
            if getattr(strategy, name):
                raise InputError(f"{name} belongs to moe_token_dispatcher_type=flex, which is {strategy.moe_token_dispatcher_type}")
        return
    if strategy.moe_expert_rank_capacity_factor is not None and backend != "hybridep":
        raise InputError(f"moe_expert_rank_capacity_factor needs moe_flex_dispatcher_backend=hybridep, which is {backend}")
    if strategy.moe_paged_stash and strategy.moe_expert_rank_capacity_factor is None:
        raise InputError("moe_paged_stash needs moe_expert_rank_capacity_factor, rows of a fixed number")
    if strategy.ep == 1:
        raise InputError("moe_token_dispatcher_type=flex exchanges tokens over experts' ranks; give ep=2 or more")
    if strategy.fusion != "te":
        raise InputError("moe_token_dispatcher_type=flex works with fusion=te only")
    if strategy.moe_permute_fusion_into_hybridep and backend != "hybridep":
        raise InputError(f"moe_permute_fusion_into_hybridep needs moe_flex_dispatcher_backend=hybridep, which is {backend}")
    if strategy.moe_pad_expert_input_to_capacity and backend == "deepep":
        raise InputError("moe_pad_expert_input_to_capacity does not work with moe_flex_dispatcher_backend=deepep; give hybridep, or alltoall")


def _graphs(architecture: Architecture, strategy: Strategy) -> None:
    """Megatron-Core transformer/transformer_config.py, cuda_graph_impl and cuda_graph_modules."""
    impl, scope = strategy.cuda_graph_impl, strategy.cuda_graph_scope
    if scope and impl in ("none", "full_iteration"):
        raise InputError(f"cuda_graph_scope belongs to cuda_graph_impl=local or transformer_engine, and cuda_graph_impl is {impl}")
    if impl == "none":
        return
    if strategy.fusion != "te" and impl != "full_iteration":
        raise InputError(f"cuda_graph_impl={impl} works with fusion=te only; full_iteration with any")
    if "moe_preprocess" in scope and "moe_router" not in scope:
        raise InputError("cuda_graph_scope=moe_preprocess needs moe_router beside it")
    if "moe" in scope and "moe_router" in scope:
        raise InputError("cuda_graph_scope names moe_router, which is part of moe; give one of them")
    whole = impl != "full_iteration" and (not scope or "moe" in scope)
    fixed = strategy.moe_pad_expert_input_to_capacity or strategy.moe_expert_rank_capacity_factor is not None
    if whole and _has_moe(architecture) and not fixed:
        what = "cuda_graph_scope=moe" if scope else "a whole layer as a CUDA graph (no cuda_graph_scope)"
        raise InputError(f"{what} needs rows of a fixed number: moe_pad_expert_input_to_capacity=true with moe_expert_capacity_factor")


def _context_parallel(architecture: Architecture, strategy: Strategy) -> None:
    cp, kind, sizes = strategy.cp, strategy.cp_comm_type, strategy.hierarchical_context_parallel_sizes
    if sizes is not None and kind != "a2a+p2p":
        raise InputError(f"hierarchical_context_parallel_sizes belongs to cp_comm_type=a2a+p2p, and cp_comm_type is {kind}")
    if strategy.cp_saved_output != "attention" and (kind != "a2a" or cp == 1):
        raise InputError(f"cp_saved_output={strategy.cp_saved_output} needs cp_comm_type=a2a and cp above 1, whose exchange takes attention's output")
    if kind == "a2a+p2p":
        if sizes is None:
            raise InputError(
                f"cp_comm_type=a2a+p2p needs hierarchical_context_parallel_sizes, the a2a and p2p degrees, for example 2+{max(cp // 2, 1)}"
            )
        if len(sizes) != 2 or math.prod(sizes) != cp:
            raise InputError(
                f"hierarchical_context_parallel_sizes={'+'.join(map(str, sizes))} must be two degrees (a2a, p2p) whose product is cp={cp}"
            )
    if cp == 1:
        return
    seq = strategy.seq_length
    # the causal load balance gives every rank one early and one late chunk (TE context_parallel.py)
    whole = kind == "a2a" or strategy.cp_partition_mode == "contiguous"
    chunks = cp if whole else 2 * cp
    if seq % chunks:
        raise InputError(
            f"seq_length={seq} is not a multiple of {'cp' if whole else '2*cp'}={chunks}, the chunks that "
            f"cp={cp} with cp_comm_type={kind} cuts a sequence into"
        )
    windowed = [name for name in architecture.kind_names() if architecture.layer_kinds[name].window is not None]
    exchanged = cp if kind == "a2a" else sizes[0] if sizes is not None else 1
    if exchanged > 1:
        # each rank trades its slice of the sequence for a share of the heads it holds after tp (TE context_parallel.py:4246)
        others = "" if architecture.has_sinks else ", or cp_comm_type=all_gather" if windowed else ", or cp_comm_type=p2p or all_gather"
        for name, count in heads_of_a_rank(architecture, strategy):
            if count % exchanged:
                raise InputError(
                    f"cp_comm_type={kind} spreads heads over {exchanged} ranks, which does not divide {name}/tp={count}; "
                    f"valid: {divisors(count)}{others}"
                )
    if architecture.has_sinks and kind != "a2a":
        raise InputError(f"cp={cp} with cp_comm_type={kind} does not support learned softmax offsets (attention.sinks); use cp_comm_type=a2a")
    if windowed and kind in ("p2p", "a2a+p2p"):
        raise InputError(
            f"cp={cp} with cp_comm_type={kind} does not support sliding-window attention (layers '{windowed[0]}'); use cp_comm_type=a2a or all_gather"
        )


def _sequence(architecture: Architecture, strategy: Strategy) -> None:
    if strategy.sp and strategy.seq_length % (strategy.tp * strategy.cp):
        product = strategy.tp * strategy.cp
        nearest_length = -(-strategy.seq_length // product) * product
        raise InputError(
            f"sp=true splits seq_length={strategy.seq_length} over tp*cp={product} ranks, which does not divide it; "
            f"the next length that fits is {nearest_length}"
        )
    _documents(strategy)
    if strategy.mlp_padding_free and (architecture.parallel_block or architecture.hyper_connections):
        raise InputError("mlp_padding_free needs attention in front of the network, on one stream: there padding is left out between the two")
    lengths = attention_documents(strategy)
    if lengths is not None and lengths.varied and architecture.attention.dsa_indexer_topk:
        raise InputError("document_lengths that vary are not counted for attention over chosen keys; give packed_document_length instead")
    if lengths is not None and lengths.varied and architecture.several_windows:
        raise InputError("document_lengths that vary are not counted for windows of several sizes; give packed_document_length instead")
    if lengths is not None and architecture.compressed_attention is not None:
        raise InputError("documents in a row are not counted for compressed attention, whose entries would reach from one into the next; give none")


def _documents(strategy: Strategy) -> None:
    lengths, row = documents(strategy), strategy.seq_length
    if strategy.document_lengths is not None and strategy.packed_document_length is not None:
        raise InputError("document_lengths and packed_document_length both say how long documents are; give one of them")
    name = "packed_document_length" if strategy.document_lengths is None else "document_lengths"
    for option in ("padding_free", "mlp_padding_free"):
        if getattr(strategy, option) and (lengths is None or is_cut(strategy)):
            raise InputError(f"{option}=true needs the lengths of documents, one to a row, uncut: document_lengths=lognormal:MEAN+CV, @FILE or N")
    if lengths is None:
        return
    if strategy.mlp_padding_free and (strategy.padding_free or strategy.micro_batch_size == 1):
        one = "padding_free=true pads none; set one of them" if strategy.padding_free else "micro_batch_size=1 has one row alone"
        raise InputError(f"mlp_padding_free is of rows that are padded to a longer one beside them; {one}")
    if lengths.longest is not None and lengths.longest[0] > row:
        length, where = lengths.longest
        raise InputError(f"{where}: a document of {length:,} tokens does not fit into a row of seq_length={row}: cut it, as the trainer does")
    if lengths.mean > row:
        raise InputError(f"{name}={lengths.mean} is longer than the sequence of {row} tokens it is packed into")
    if lengths.uncut > row:
        raise InputError(
            f"document_lengths={cut(str(strategy.document_lengths), 60)}: E[u^2]/E[u] is {float(lengths.uncut):,.0f} tokens, more than the row of "
            f"seq_length={row}: most of the attention would be of documents that rows cut; give document_lengths=cut:..., or lengths of what is left"
        )


def _pipeline(architecture: Architecture, strategy: Strategy) -> None:
    pp, vpp, layers = strategy.pp, strategy.vpp, architecture.num_layers
    chunks = pp * vpp
    first, last = strategy.num_layers_in_first_pipeline_stage, strategy.num_layers_in_last_pipeline_stage
    extra = strategy.account_for_embedding_in_pipeline_split + strategy.account_for_loss_in_pipeline_split
    layout = strategy.pipeline_model_parallel_layout
    if chunks > MOST_STAGES:
        raise InputError(f"pp*vpp={pp}*{vpp}={chunks} stages are too many: at most {MOST_STAGES:,} are evaluated")
    if vpp > 1 and pp == 1:
        raise InputError(f"vpp={vpp} needs pp above 1: virtual stages interleave the pipeline's stages")
    ends = [
        (name, count)
        for name, count in (("num_layers_in_first_pipeline_stage", first), ("num_layers_in_last_pipeline_stage", last))
        if count is not None
    ]
    ends_count = sum(count for _, count in ends)
    if ends and extra:
        raise InputError(f"{ends[0][0]} cannot be given together with account_for_embedding_in_pipeline_split or account_for_loss_in_pipeline_split")
    if ends and pp == 1:
        raise InputError(f"{ends[0][0]} needs pp above 1")
    if layout is not None:
        if ends or extra:
            name = ends[0][0] if ends else "account_for_embedding_in_pipeline_split or account_for_loss_in_pipeline_split"
            raise InputError(f"pipeline_model_parallel_layout already places every layer; it cannot be given together with {name}")
        _layout(architecture, strategy, layout)
    elif ends:
        for name, count in ends:
            if count % vpp:
                raise InputError(f"vpp={vpp} does not divide {name}={count}; valid: {divisors(count)}")
        middle = pp - len(ends)
        rest = layers - ends_count
        if rest < 0 or (middle == 0 and rest):
            raise InputError(
                f"{' and '.join(n for n, _ in ends)} hold {ends_count} layers of {layers}, and pp={pp} leaves {middle} stages for the rest"
            )
        if middle and (rest == 0 or rest % (middle * vpp)):
            raise InputError(
                f"the {rest} layers left after {' and '.join(n for n, _ in ends)} do not divide into {middle} stages"
                f"{f' of vpp={vpp} chunks' if vpp > 1 else ''}"
            )
    elif pp > layers + extra:
        raise InputError(f"pp={pp} is more than the {layers} layers of {architecture.name}")
    elif pp * vpp > layers + extra:
        raise InputError(f"pp*vpp={pp}*{vpp}={chunks} is more than the {layers} layers of {architecture.name}")


def _layout(architecture: Architecture, strategy: Strategy, text: str) -> None:
    stages = pipeline_layout(text)
    where = "pipeline_model_parallel_layout"
    if len(stages) != strategy.pp * strategy.vpp:
        raise InputError(f"{where} has {len(stages)} stages, and pp*vpp={strategy.pp}*{strategy.vpp} needs {strategy.pp * strategy.vpp}")
    joined = "".join(stages)
    if joined.count("E") != 1 or not stages[0].startswith("E"):
        raise InputError(f"{where} must begin with its only E, the embedding")
    if joined.count("L") != 1 or not stages[-1].endswith("L"):
        raise InputError(f"{where} must end with its only L, the loss")
    if joined.count("t") != architecture.num_layers:
        raise InputError(f"{where} places {joined.count('t')} layers, and {architecture.name} has {architecture.num_layers}")
    after = depths(architecture, strategy.mtp_num_layers)
    if joined.count("m") != after:
        raise InputError(f"{where} places {joined.count('m')} multi-token prediction depths, and {after} are trained")
    if "m" in joined and joined.index("m") < joined.rindex("t"):
        raise InputError(f"{where} places a multi-token prediction depth (m) before the last layer (t)")


def whole_batches(_: Architecture, strategy: Strategy) -> None:
    given = strategy.global_batch_size
    if given is not None:
        per_round = strategy.micro_batch_size * strategy.dp
        if given % per_round:
            raise InputError(
                f"global_batch_size={given} is not a multiple of micro_batch_size*dp={strategy.micro_batch_size}*{strategy.dp}={per_round}"
            )
        if strategy.num_microbatches is not None and strategy.num_microbatches * per_round != given:
            raise InputError(
                f"num_microbatches={strategy.num_microbatches} and global_batch_size={given} disagree: micro_batch_size*dp={per_round} "
                f"makes {given // per_round} micro-batches; give one of the two"
            )


def _rounds(_: Architecture, strategy: Strategy) -> None:
    # one group of pp micro-batches goes through each chunk in turn (schedules.py:1161)
    own_group, at_once = strategy.microbatch_group_size_per_vp_stage is not None, strategy.flush_microbatches
    of = "flush" if strategy.pipeline_flushes > 1 else "step"
    if strategy.vpp > 1 and strategy.schedule in ("1f1b", "interleaved") and not own_group and at_once % strategy.pp:
        raise InputError(f"vpp={strategy.vpp} needs the micro-batches of a {of} ({at_once}) to be a multiple of pp={strategy.pp}")


# what Megatron-Core does at the ends of the one pipeline of a step
_OF_ONE_FLUSH = (
    "defer_embedding_wgrad_compute",
    "num_microbatches_with_partial_activation_checkpoints",
    "overlap_moe_expert_parallel_comm",
    "overlap_param_gather_with_optimizer_step",
)


def _flushes(_: Architecture, strategy: Strategy) -> None:
    times = strategy.pipeline_flushes
    if times == 1:
        return
    asked = f"pipeline_flushes={times}"
    if strategy.pp == 1:
        raise InputError(f"{asked} needs pp above 1: one stage has no pipeline to empty, and adds up the gradients of its micro-batches anyway")
    divides("pipeline_flushes", times, "num_microbatches", strategy.microbatches)
    if strategy.gradient_sync == "every_group":
        raise InputError(f"{asked} has no groups of micro-batches to reduce gradients after; give gradient_sync=every_flush, or last_microbatch")
    for name in _OF_ONE_FLUSH:
        if getattr(strategy, name) != Strategy.model_fields[name].default:
            said = str(getattr(strategy, name)).lower()
            raise InputError(f"{asked} is of PyTorch's pipelines, and {name}={said} of Megatron-Core's; give one of them")


def _schedule(_: Architecture, strategy: Strategy) -> None:
    group = strategy.microbatch_group_size_per_vp_stage
    if group is not None and (schedule_of(strategy).chunks != "any" or strategy.schedule == "looped_bfs" or strategy.vpp == 1):
        raise InputError(f"microbatch_group_size_per_vp_stage={group} works with interleaved schedules only; give vpp=2 or more")
    # Megatron-Core schedules.py, forward_backward_pipelining_with_interleaving; PyTorch's runs fewer micro-batches than stages as one group
    at_once = strategy.flush_microbatches
    if group is not None and strategy.schedule != "grouped_interleaved" and not min(strategy.pp, at_once) <= group <= at_once:
        most = f"num_microbatches={strategy.microbatches}" + (f"/{strategy.pipeline_flushes}" if strategy.pipeline_flushes > 1 else "")
        raise InputError(f"microbatch_group_size_per_vp_stage={group} should lie between pp={strategy.pp} and {most}")
    if strategy.schedule == "interleaved" and strategy.vpp == 1:
        raise InputError("schedule=interleaved needs vpp above 1")
    check_schedule(strategy)
    if strategy.defer_embedding_wgrad_compute and (strategy.pp == 1 or strategy.schedule not in ("1f1b", "interleaved")):
        what = f"schedule={strategy.schedule} runs them apart already, or all at once" if strategy.pp > 1 else "pp=1 has no stage that waits"
        raise InputError(f"defer_embedding_wgrad_compute moves weight gradients into the end of 1f1b, and {what}")


def _data_parallel(architecture: Architecture, strategy: Strategy) -> None:
    instances, ranks = strategy.num_distributed_optimizer_instances, strategy.dp * strategy.cp
    if instances > 1 and strategy.zero == 0:
        raise InputError(f"num_distributed_optimizer_instances={instances} needs zero=1 or above: there is no sharded optimizer to replicate")
    if ranks % instances:
        raise InputError(f"num_distributed_optimizer_instances={instances} does not divide dp*cp={ranks}; valid: {divisors(ranks)}")
    if _has_moe(architecture) and strategy.expert_shard_ranks is None and strategy.expert_dp % instances:
        raise InputError(
            f"num_distributed_optimizer_instances={instances} does not divide the expert data-parallel degree "
            f"tp*cp*dp/(etp*ep)={strategy.expert_dp}; valid: {divisors(strategy.expert_dp)}"
        )
    kept = strategy.reshard_after_forward
    if not isinstance(kept, bool) and (ranks // instances) % kept:
        raise InputError(
            f"reshard_after_forward={kept} does not divide the {ranks // instances} ranks that share a parameter; "
            f"valid: {divisors(ranks // instances)}"
        )


def _left_out(architecture: Architecture, strategy: Strategy) -> None:
    """Layers that a recipe leaves in the type of the computation."""
    first, last = strategy.num_layers_at_start_in_bf16, strategy.num_layers_at_end_in_bf16
    if not first and not last:
        return
    given = f"num_layers_at_start_in_bf16={first}, num_layers_at_end_in_bf16={last}"
    if strategy.fp8 in ("none", "delayed"):
        raise InputError(f"{given}: needs a recipe that leaves layers out: fp8=tensorwise, blockwise, mxfp8 or nvfp4")
    if first + last > architecture.num_layers:
        raise InputError(f"{given}: {architecture.name} has {architecture.num_layers} layers")


def _precision(architecture: Architecture, strategy: Strategy) -> None:
    if strategy.fp8_param_gather and (strategy.fp8 == "none" or strategy.zero == 0):
        raise InputError("fp8_param_gather=true needs an FP8 recipe and a distributed optimizer (zero=1, 2 or 3), which gathers what it updates")
    if strategy.fp8_dot_product_attention and strategy.fp8 in ("none", "blockwise"):
        raise InputError("fp8_dot_product_attention=true needs a recipe that has it: fp8=delayed, tensorwise, mxfp8 or nvfp4")
    if strategy.fp8_multi_head_attention and not strategy.fp8_dot_product_attention:
        raise InputError("fp8_multi_head_attention=true needs fp8_dot_product_attention=true, whose casts it leaves out")
    if strategy.fp8_output_proj and (strategy.fp8 != "mxfp8" or architecture.tie_word_embeddings or strategy.defer_embedding_wgrad_compute):
        raise InputError("fp8_output_proj=true needs fp8=mxfp8, weights that are not the embedding's, and no defer_embedding_wgrad_compute")
    if strategy.keep_fp8_transpose_cache and (strategy.zero != 3 or not strategy.fp8_param_gather):
        raise InputError("keep_fp8_transpose_cache=true needs fp8_param_gather=true and zero=3: elsewhere the transposed forms stay in any case")
    _left_out(architecture, strategy)
    if strategy.fp8 == "none":
        return
    if strategy.precision == "fp32":
        raise InputError(f"fp8={strategy.fp8} needs precision=bf16 or fp16: fp8 GEMMs are not mixed with fp32 weights")
    dropping = [m for m in strategy.recompute_modules if m in ("layernorm", "moe_act")] if strategy.recompute == "selective" else []
    if strategy.fp8 == "delayed" and dropping and strategy.recompute_operations is None:
        instead = "which it cannot cast again; give fp8=tensorwise"
        raise InputError(f"fp8=delayed does not work with recompute_modules={dropping[0]}, which drops inputs of products, {instead}")
    if not FRAMEWORKS[strategy.fusion].fp8:
        able = " or ".join(name for name, framework in FRAMEWORKS.items() if framework.fp8)
        raise InputError(f"fp8={strategy.fp8} needs fusion={able}: the {strategy.fusion} modules have no fp8 GEMMs")


# Each reads only what it decides on, so that a grid asks it once for every set of what it reads (symsim/grid/tabulate.py)
RULES: tuple[Rule, ...] = (
    _depths,
    _named_placement,
    _tensor_parallel,
    _experts,
    _graphs,
    _context_parallel,
    _sequence,
    _pipeline,
    whole_batches,
    _flushes,
    _rounds,
    _schedule,
    loss,
    _data_parallel,
    sharded_stages,
    overlap,
    optimizer_states,
    autocast,
    in_backward,
    on_the_host,
    recomputation,
    _precision,
    fusions,
    tuning,
)
