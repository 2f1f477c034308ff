"""What frameworks run and symsim refuses: the framework's own behaviour, as rules that change a strategy and say so in the ledger."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from symsim.importers.keys import Entry, Keys
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy as Options
from symsim.inputs.strategy import default_dp

Strategy = dict[str, Any]


_MAIN_STAY = "timed as with it; without it fp32 main parameters stay on the device beside their copies: 4 bytes a parameter of a shard more"


def settle(keys: Keys, strategy: Strategy, architecture: Architecture | None, who: str) -> None:
    """Apply every rule to the strategy in place. who: the framework, for the ledger's sentences.

    Rules that ask for the model are applied where it is known.
    """
    for rule in RULES:
        changed = rule(strategy, architecture)
        if changed is None:
            continue
        option, value, why = changed
        if value is None:
            strategy.pop(option, None)
        else:
            strategy[option] = value
        key = next((row.key for row in keys.rows.values() if row.to == option), None)
        if key is None:
            keys.rows[option] = Entry(option, "(default)", "derived", option, f"{why} in {who}")
        else:
            keys.note(key, "no_cost_effect" if value is None else "derived", option, f"{why} in {who}")


def states_on_host(keys: Keys, strategy: Strategy) -> None:
    """Megatron-Core's states on the host without the optimizer that knows several types, which Megatron-LM's command line alone refuses
    (training/arguments.py validate_args; core/optimizer/__init__.py _get_megatron_optimizer_based_on_param_groups does not ask)."""
    if not strategy.get("optimizer_cpu_offload") or strategy.get("use_precision_aware_optimizer") or strategy.get("fusion", "te") != "te":
        return
    strategy["use_precision_aware_optimizer"] = True
    keys.rows["use_precision_aware_optimizer"] = Entry(
        "use_precision_aware_optimizer", "(default)", "not_modelled", "use_precision_aware_optimizer", _MAIN_STAY
    )


Changed = tuple[str, Any, str] | None


def _sequence_parallel(strategy: Strategy, _: Architecture | None) -> Changed:
    # Megatron-LM training/arguments.py validate_args warns and switches it off
    return ("sp", None, "off at tp=1") if strategy.get("sp") and strategy.get("tp", 1) == 1 else None


def _tp_overlap(strategy: Strategy, _: Architecture | None) -> Changed:
    # Megatron-LM training/arguments.py asks for sequence parallelism with it
    needs = strategy.get("tp", 1) == 1 or not strategy.get("sp")
    return ("tp_comm_overlap", None, "nothing to overlap without sequence parallelism") if strategy.get("tp_comm_overlap") and needs else None


def _tp_message(option: str, strategy: Strategy, _: Architecture | None) -> Changed:
    alone = option in strategy and not strategy.get("tp_comm_overlap")
    return (option, None, "read with tp_comm_overlap only") if alone else None


_TP_MESSAGES = tuple(name for name in Options.model_fields if name.startswith(("tp_comm_overlap_", "tp_comm_bulk_")))


def _param_gather(strategy: Strategy, _: Architecture | None) -> Changed:
    alone = strategy.get("overlap_param_gather") and not strategy.get("overlap_grad_reduce")
    return ("overlap_param_gather", None, "without effect unless overlap_grad_reduce is set") if alone else None


def _param_gather_in_update(strategy: Strategy, _: Architecture | None) -> Changed:
    # Megatron-LM training/arguments.py asks for chunks and overlapped gathers
    key = "overlap_param_gather_with_optimizer_step"
    alone = strategy.get(key) and not (strategy.get("overlap_param_gather") and strategy.get("vpp", 1) > 1)
    return (key, None, "chunks are updated one by one with overlap_param_gather and vpp above 1 alone") if alone else None


def _split_checkpoints(strategy: Strategy, _: Architecture | None) -> Changed:
    # Megatron-DeepSpeed splits them over the ranks of model parallelism, of which there may be one
    alone = strategy.get("distribute_saved_activations") and strategy.get("tp", 1) == 1
    return ("distribute_saved_activations", None, "one tensor-parallel rank keeps them whole") if alone else None


def _p2p(strategy: Strategy, _: Architecture | None) -> Changed:
    # Megatron-Core pipeline_parallel/schedules.py reads it in the interleaved schedule alone
    idle = strategy.get("overlap_p2p_comm") and strategy.get("vpp", 1) == 1
    return ("overlap_p2p_comm", None, "read by the interleaved schedule only") if idle else None


def _waits(strategy: Strategy, _: Architecture | None) -> Changed:
    idle = "p2p_comm" in strategy and (strategy.get("pp", 1) == 1 or strategy.get("vpp", 1) > 1)
    return ("p2p_comm", None, "one stage sends nothing, and interleaved ones overlap or wait") if idle else None


def _shared_experts(strategy: Strategy, architecture: Architecture | None) -> Changed:
    if not strategy.get("moe_shared_expert_overlap") or architecture is None:
        return None
    shared = architecture.moe is not None and architecture.moe.moe_shared_expert_intermediate_size
    return None if shared else ("moe_shared_expert_overlap", None, "ignored for a model without shared experts")


def _exchange(option: str, strategy: Strategy, architecture: Architecture | None) -> Changed:
    idle = option in strategy and (strategy.get("ep", 1) == 1 or (architecture is not None and architecture.moe is None))
    return (option, None, "nothing is exchanged without expert parallelism") if idle else None


def _dispatcher(strategy: Strategy, architecture: Architecture | None) -> Changed:
    # Megatron-Core transformer/moe/token_dispatcher.py asks for ranks to exchange with
    alone = strategy.get("ep", 1) == 1 or (architecture is not None and architecture.moe is None)
    flex = strategy.get("moe_token_dispatcher_type") == "flex"
    return ("moe_token_dispatcher_type", None, "nothing is exchanged without expert parallelism") if flex and alone else None


def _of_flex(option: str, strategy: Strategy, _: Architecture | None) -> Changed:
    idle = option in strategy and strategy.get("moe_token_dispatcher_type") != "flex"
    return (option, None, "read with moe_token_dispatcher_type=flex only") if idle else None


_FLEX = tuple(n for n in Options.model_fields if n.startswith(("moe_flex_dispatcher_", "moe_permute_fusion_", "moe_expert_rank_", "moe_paged_")))


def _experts(strategy: Strategy, architecture: Architecture | None) -> Changed:
    dense = architecture is not None and architecture.moe is None
    return ("ep", None, "ignored for a model without experts") if dense and strategy.get("ep", 1) > 1 else None


def _expert_tensors(strategy: Strategy, architecture: Architecture | None) -> Changed:
    dense = architecture is not None and architecture.moe is None
    return ("etp", None, "ignored for a model without experts") if dense and strategy.get("etp", 1) > 1 else None


def _recomputed(strategy: Strategy, architecture: Architecture | None) -> Changed:
    """Modules that run again and that the model has: Megatron-Core asks each module for its own name."""
    modules = strategy.get("recompute_modules")
    if not modules or architecture is None:
        return None
    mixture, latent = architecture.moe is not None, architecture.attention.kind == "mla"
    shared = architecture.moe is not None and bool(architecture.moe.moe_shared_expert_intermediate_size)
    streams = architecture.hyper_connections is not None
    has = {"mhc": streams, "moe": mixture, "moe_act": mixture, "mla_up_proj": latent, "shared_experts": shared, "mlp": architecture.mlp is not None}
    kept = [module for module in modules if has.get(module, True)]
    if len(kept) == len(modules):
        return None
    missing = ", ".join(module for module in modules if module not in kept)
    return ("recompute_modules", kept or None, f"{missing} is no module of this model")


def _whole(strategy: Strategy, _: Architecture | None) -> Changed:
    full = strategy.get("recompute") == "full" and "recompute_modules" in strategy
    return ("recompute_modules", None, "not read under full recomputation") if full else None


RULES: tuple[Callable[[Strategy, Architecture | None], Changed], ...] = (
    _sequence_parallel,
    _tp_overlap,
    *(partial(_tp_message, option) for option in _TP_MESSAGES),
    _param_gather,
    _param_gather_in_update,
    _split_checkpoints,
    _p2p,
    _waits,
    _shared_experts,
    _experts,
    *(partial(_exchange, option) for option in ("overlap_dispatch_backward_with_experts_wgrad", "ep_overlap_early_attn_memory_release")),
    _dispatcher,
    *(partial(_of_flex, option) for option in _FLEX),
    _expert_tensors,
    _recomputed,
    _whole,
)


def split_sequence(keys: Keys, strategy: Strategy, architecture: Architecture | None, who: str) -> None:
    """A mixture on several tensor-parallel ranks without sequence parallelism, which Megatron-Core refuses and others run: with it here."""
    if architecture is None or architecture.moe is None or strategy.get("tp", 1) == 1 or strategy.get("sp"):
        return
    strategy["sp"] = True
    why = f"{who} runs the router on every rank's copy of all tokens; symsim splits them over tensor-parallel ranks: as many bytes in two messages"
    keys.rows["sp"] = Entry("sp", "(default)", "derived", "sp", why)


def parts_apart(keys: Keys, strategy: Strategy, architecture: Architecture | None, key: str) -> None:
    """Context parallelism that hands the state of a mixer from rank to rank (axolotl monkeypatch/models/mamba_utils.py, Automodel
    models/qwen3_5_moe/cp_linear_attn.py), where symsim exchanges heads for whole sequences and cannot: parts of sequences are rows of their own."""
    cp, length = int(strategy.get("cp", 1)), strategy.get("seq_length")
    if architecture is None or cp == 1 or not isinstance(length, int) or length % cp:
        return
    mixers = {kind.mixer for kind in map(architecture.layer_kinds.__getitem__, architecture.kind_names())}
    spec, tp = architecture.linear_attention, int(strategy.get("tp", 1))
    scan = "mamba" in mixers and strategy.get("fusion") != "te"
    if not scan and (spec is None or "linear_attention" not in mixers or spec.linear_num_key_heads // tp % cp == 0):
        return
    replicas = int(strategy.get("dp", 1)) * cp
    for option in ("cp", "cp_comm_type"):
        strategy.pop(option, None)
    strategy |= {"dp": replicas, "seq_length": length // cp}
    if strategy.get("packed_document_length"):
        strategy["packed_document_length"] = min(strategy["packed_document_length"], length // cp)
    why = f"the state of a mixer goes from rank to rank: parts of {length // cp} tokens are timed as rows of their own, without attention's "
    keys.note(key, "not_modelled", "seq_length, dp", f"{why}scores over other parts (of these {cp - 1} of {cp} are missing) and its messages")


def uneven_stages(layers: int, pp: int, *, ends: bool = False) -> str | None:
    """The layout of DeepSpeed's pipelines where stages do not divide the layers: one more in the first ones (runtime/utils.py
    partition_balanced); None where they divide, or are too few. ends: the embedding and the head count as layers."""
    each, more = divmod(layers + 2 * ends, pp)
    counts = [each + (stage < more) for stage in range(pp)]
    if ends:
        counts[0], counts[-1] = counts[0] - 1, counts[-1] - 1
    if (not more and not ends) or min(counts) < 0 or not layers >= pp > 1:
        return None
    parts = [f"t*{count}" if count else "" for count in counts]
    return "|".join(["E" + parts[0], *parts[1:-1], parts[-1] + "L"])


def padded_vocabulary(size: int, multiple: int) -> int:
    """The vocabulary with unused rows up to a multiple (Megatron-LM training/tokenizer: make_vocab_size_divisible_by times tp)."""
    return -(-size // multiple) * multiple


def data_parallel(strategy: Strategy, world: int | None) -> int | None:
    """dp of so many ranks; without a number of ranks the smallest that holds the experts and every replica of the shards. None where the
    ranks do not divide."""
    tp, cp, pp = (int(strategy.get(name, 1)) for name in ("tp", "cp", "pp"))
    if world is None:
        shards = int(strategy.get("num_distributed_optimizer_instances", 1))
        return math.lcm(default_dp(tp, cp, int(strategy.get("ep", 1)), int(strategy.get("etp", tp))), shards // math.gcd(shards, cp))
    return None if world % (tp * cp * pp) else world // (tp * cp * pp)
