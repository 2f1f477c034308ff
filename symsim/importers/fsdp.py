"""PyTorch's fully sharded data parallelism as the Hugging Face Trainer, Accelerate and Axolotl ask for it: a list of words, and a section.

Sources: transformers 4.50.3 and 5.23 training_args.py (fsdp, fsdp_config); accelerate 1.x utils/dataclasses.py
FullyShardedDataParallelPlugin; torch.distributed.fsdp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symsim.errors import nearest
from symsim.importers.keys import Entry, Keys, Silent, silent
from symsim.importers.ranks import NODE

# what FSDP shards and when it frees: version 1's names and numbers
_STRATEGIES = {
    "full_shard": (True, False),
    "shard_grad_op": (False, False),
    "hybrid_shard": (True, True),
    "hybrid_shard_zero2": (False, True),
    "1": (True, False),
    "2": (False, False),
    "4": (True, True),
    "5": (False, True),
}
_UNSHARDED = ("no_shard", "3", "ddp")
_WORDS = ("auto_wrap", "offload")
_WRAP = "layers are the units here, as TRANSFORMER_BASED_WRAP makes them; other units change how much is gathered at once"
_LOADED = "how weights come into memory and leave it, before and after the steps"
_ORDER = "the order in which gathers are issued; beside computation either way"

_SILENT: dict[str, Silent] = {
    **silent("no_cost_effect", _LOADED, "sync_module_states cpu_ram_efficient_loading state_dict_type final_state_dict_type"),
    **silent("no_cost_effect", _ORDER, "backward_prefetch backward_prefetch_policy forward_prefetch limit_all_gathers"),
    **silent("no_cost_effect", "how parameters are shown to the optimizer; the same shards", "use_orig_params ignored_modules ignored_parameters"),
    **silent("no_cost_effect", "pinned or pageable memory of what is on the host", "cpu_offload_pin_memory"),
    **silent("no_cost_effect", _WRAP, "transformer_layer_cls_to_wrap transformer_cls_names_to_wrap auto_wrap_policy min_num_params"),
    **silent("refused", "of TPUs, which no system here is; leave it out", "xla xla_fsdp_v2 xla_fsdp_settings xla_fsdp_grad_ckpt"),
    **silent("no_cost_effect", "version 1 and 2 shard the same bytes; version 2 adds no copies", "version fsdp_version"),
    **silent("not_modelled", "types other than those of bf16 or fp16: 4 bytes in place of 2 for what it names", "mixed_precision_policy"),
}


def silent_names(section: str) -> dict[str, Silent]:
    """The keys of a section that no formula reads, with and without the older prefix `fsdp_`."""
    return {f"{section}.{prefix}{key}": said for key, said in _SILENT.items() for prefix in ("", "fsdp_")}


def sharded(
    keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], switch: str = "fsdp", section: str = "fsdp_config", on: bool = False
) -> bool:
    """Whether the job shards with FSDP; then its options and assumptions are set. InputError for a word that FSDP does not have.

    on: something else than the switch asks for it already.
    """
    words = () if on else _words(keys, switch)
    key = _either(keys, section, "sharding_strategy")
    if words is None and key is None:
        return False
    kind = next((word for word in words or () if word in (*_STRATEGIES, *_UNSHARDED)), None)
    if key is not None:
        kind = keys.choice(key, _spellings(), to="zero")
    if kind in _UNSHARDED:
        keys.note(key or switch, to="zero", why="replicated")
        strategy["zero"] = 0
        return False
    resharded, hybrid = _STRATEGIES[kind or "full_shard"]
    if words is not None and not on:
        keys.note(switch, to="zero")
    strategy["zero"] = 3
    again = _either(keys, section, "reshard_after_forward")
    if again is not None:
        resharded = keys.choice(again, _RESHARDED, to="reshard_after_forward")
    if not resharded:
        strategy["reshard_after_forward"] = False
    assumptions |= {"fsdp_parameters": "main"}
    if hybrid:
        _hybrid(keys, strategy, key or switch)
    _sync(keys, strategy)
    _section(keys, strategy, section, words or ())
    return True


_RESHARDED: Mapping[str, bool] = {
    **{word: True for word in ("true", "True", "FULL_SHARD", "full_shard", "HYBRID_SHARD", "1")},
    **{word: False for word in ("false", "False", "SHARD_GRAD_OP", "shard_grad_op", "0")},
}


def _spellings() -> dict[str, str]:
    names = [*_STRATEGIES, *_UNSHARDED]
    return {spelling: name for name in names for spelling in (name, name.upper())}


def _words(keys: Keys, switch: str) -> tuple[str, ...] | None:
    """The words of the switch; None where it is off."""
    if not keys.has(switch) or keys.given[switch].value in (False, "", [], "no"):
        return None
    if keys.given[switch].value is True:
        return ()
    found = tuple(str(word).casefold() for word in keys.texts(switch, [], to="zero"))
    valid = [*_STRATEGIES, *_UNSHARDED, *_WORDS]
    for word in found:
        if word not in valid and word != "true":
            raise keys.wrong(
                switch, f"words of {', '.join(_WORDS)} and {', '.join(n for n in _STRATEGIES if not n.isdigit())}; {nearest(word, valid)}"
            )
    return found


def _either(keys: Keys, section: str, key: str) -> str | None:
    """The key of the section under either spelling, where it is given."""
    return next((name for name in (f"{section}.{key}", f"{section}.fsdp_{key}") if keys.has(name)), None)


def _hybrid(keys: Keys, strategy: dict[str, Any], key: str) -> None:
    """Shards stay in a node, of 8 ranks, and nodes are replicas."""
    ranks = int(strategy.get("dp", NODE))
    if ranks % NODE == 0:
        strategy["num_distributed_optimizer_instances"] = ranks // NODE
        keys.note(key, to="zero, num_distributed_optimizer_instances", why=f"shards inside nodes of {NODE}, replicas across them")
    else:
        keys.note(key, to="zero", why=f"{ranks} ranks are one node, inside which it is FULL_SHARD")


def _sync(keys: Keys, strategy: dict[str, Any]) -> None:
    if int(strategy.get("num_microbatches", 1)) > 1:
        strategy["gradient_sync"] = "last_microbatch"

        why = "the Trainer synchronises at the last micro-batch alone (no_sync), so gradients wait unsharded"
        keys.rows["no_sync"] = Entry("no_sync", "(default)", "derived", "gradient_sync", why)


def _section(keys: Keys, strategy: dict[str, Any], section: str, words: tuple[str, ...]) -> None:
    for key in ("offload_params", "cpu_offload"):
        name = _either(keys, section, key)
        if name is not None and keys.flag(name, to="optimizer_cpu_offload"):
            words = (*words, "offload")
            keys.note(name, to="offload_parameters, optimizer_cpu_offload", why=HOST_PARAMETERS)
    if "offload" in words:
        strategy |= {**host_states(str(strategy.get("precision"))), "offload_parameters": True, "offload_gradients": True, "host_update": "torch"}
    name = _either(keys, section, "activation_checkpointing")
    if name is not None and keys.flag(name, to="recompute"):
        strategy["recompute"] = "full"


HOST_PARAMETERS = "shards, gradients, states and their update are on the host"


def host_states(precision: str) -> dict[str, Any]:
    """Options that keep fp32 states and their update on the host."""
    whole = {"store_param_remainders": False} if precision == "bf16" else {}
    return {"use_precision_aware_optimizer": True, **whole, "optimizer_cpu_offload": True}


def narrow_gathers(keys: Keys, strategy: dict[str, Any], key: str) -> None:
    """Shards that are cast to 8 bits before they are gathered, where products are scaled by tensors (torchao float8/fsdp_utils.py)."""
    if not keys.flag(key, False, to="fp8_param_gather"):
        return
    if strategy.get("fp8") == "tensorwise" and strategy.get("zero") == 3:
        strategy["fp8_param_gather"] = True
    else:
        keys.note(key, "no_cost_effect", why="no shards are gathered" if strategy.get("fp8") == "tensorwise" else "no products scaled by tensors")
