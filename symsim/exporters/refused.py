"""What trainers refuse to start with, and other systems run: rules of a model and a strategy, as those of `symsim/lowering/checks.py`.

An exporter says them of what it is to write, and a plan's space is without what they refuse. Sources: Megatron-LM d98e8a64 (2026-08-22)
training/arguments.py (validate_args), core/transformer/transformer_config.py; torchtitan b5bcd76c6 (2026-08-21) models/common/decoder.py,
models/qwen3_5/model.py, models/kimi_k2_7/parallelize.py, models/*/__init__.py; the parent of 9810191bb (2026-02-23), the last with TOML files,
models/*/__init__.py, models/*/model/args.py, models/*/infra/parallelize.py; PyTorch torch/distributed/pipelining/schedules.py; DeepSpeed 0.16.4
runtime/engine.py, runtime/pipe/engine.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from symsim.errors import InputError
from symsim.exporters.torchtitan_models import called
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.lowering.checks import Rule

_ITS_OWN_HEAD = ("qwen3_5",)
_WITHOUT_CONTEXT = ("qwen3_5", "kimi_k2_7")
# positions that the flavors' rotary embeddings have; of kimi_k2_7 those of Moonlight
_POSITIONS = {"deepseek_v3": 16_384, "gpt_oss": 131_072, "kimi_k2_7": 8_192, "llama3": 131_072, "qwen3": 40_960, "qwen3_5": 262_144}
_OLDER_WITHOUT_STAGES = ("gpt_oss", "qwen3")
# their attention is FlexAttention
_OLDER_WITHOUT_CONTEXT = ("deepseek_v3", "gpt_oss")


def check(rules: Iterable[Rule], architecture: Architecture, strategy: Strategy) -> None:
    """InputError with the sentence of the first that refuses."""
    for rule in rules:
        rule(architecture, strategy)


def rules_of(target: str, suffix: str = "") -> tuple[Rule, ...]:
    """Those of the version of a target of `symsim export` that reads files of a suffix."""
    return REFUSED.get(f"{target} {suffix}", REFUSED.get(target, ()))


def _chunks_of_two_stages(_: Architecture, s: Strategy) -> None:
    if s.vpp > 1 and s.pp == 2 and not s.overlap_p2p_comm:
        raise InputError("Megatron-LM interleaves the chunks of two stages with overlap_p2p_comm=true only; give it, or pp=4 or more")


def _groups_of_stages(_: Architecture, s: Strategy) -> None:
    group = s.microbatch_group_size_per_vp_stage
    if group is not None and s.vpp > 1 and group < s.pp:
        raise InputError(f"Megatron-LM runs as many micro-batches as stages, pp={s.pp}, or more through a chunk in a row; there are {group}")


def _experts_with_biases(a: Architecture, s: Strategy) -> None:
    if a.moe is not None and a.moe.expert_bias and s.expert_tp > 1:
        raise InputError(f"Megatron-LM does not split experts whose products have biases, as {a.name} has, over etp={s.expert_tp} ranks; give etp=1")


def _context_of_chosen_keys(a: Architecture, s: Strategy) -> None:
    chosen = a.attention.dsa_indexer_topk is not None and not a.attention.dsa_indexer_block
    if s.cp > 1 and chosen and s.cp_comm_type != "all_gather":
        raise InputError(f"Megatron-LM runs attention to chosen keys, as {a.name} has, over context ranks with cp_comm_type=all_gather alone")


def _heads_of_keys(a: Architecture, s: Strategy) -> None:
    heads = a.attention.num_attention_heads if a.attention.kind == "mla" else a.query_groups
    if heads % s.tp:
        raise InputError(
            f"torchtitan splits heads of keys and values over tensor ranks and copies none: tp={s.tp} does not divide the {heads} of {a.name}"
        )


def _enough_microbatches(_: Architecture, s: Strategy) -> None:
    if s.pp == 1:
        return
    least = {"1f1b": s.pp if s.vpp == 1 else 1, "dualpipev": 2 * s.pp}.get(s.schedule, 1)
    if s.flush_microbatches < least:
        raise InputError(
            f"torchtitan runs schedule={s.schedule} with as many micro-batches as stages, {least}, or more; there are {s.flush_microbatches}"
        )


def _tied_head(a: Architecture, s: Strategy) -> None:
    if s.pp > 1 and a.tie_word_embeddings and called(a)[0] not in _ITS_OWN_HEAD:
        raise InputError(f"torchtitan does not cut a model into stages whose head is its embedding, as that of {a.name} is; give pp=1")


def _whole_sequences(a: Architecture, s: Strategy) -> None:
    if s.cp > 1 and (name := called(a)[0]) in _WITHOUT_CONTEXT:
        raise InputError(f"torchtitan runs {name}, as {a.name} is called there, without context parallelism; give cp=1")


def _positions(a: Architecture, s: Strategy) -> None:
    name = called(a)[0]
    if s.seq_length > (most := _POSITIONS.get(name, s.seq_length)):
        raise InputError(
            f"torchtitan has rotary positions for {most} tokens of {name}, as {a.name} is called there; seq_length={s.seq_length} is more"
        )


def _older_stages(a: Architecture, s: Strategy) -> None:
    if s.pp > 1 and (name := called(a)[0]) in _OLDER_WITHOUT_STAGES:
        raise InputError(
            f"the last torchtitan with TOML files does not cut {name} into stages: write {a.name} into a file that ends in .py, or give pp=1"
        )


def _older_context(a: Architecture, s: Strategy) -> None:
    if s.cp > 1 and (name := called(a)[0]) in _OLDER_WITHOUT_CONTEXT:
        raise InputError(
            f"the last torchtitan with TOML files runs {name} without context ranks: write {a.name} into a file that ends in .py, or give cp=1"
        )


def _sums_of_fp16(_: Architecture, s: Strategy) -> None:
    if s.zero == 0 and s.precision == "fp16" and s.grad_reduce_in_fp32:
        raise InputError("DeepSpeed does not sum gradients of fp16 in fp32 without ZeRO; give zero=1, or grad_reduce_in_fp32=false")


def _shards_of_stages(_: Architecture, s: Strategy) -> None:
    if s.zero >= 2 and s.pp > 1:
        raise InputError(
            f"DeepSpeed does not shard gradients over the ranks of a pipeline's stage: zero={s.zero} with pp={s.pp}; give zero=1, or pp=1"
        )


# by target, with the suffix where versions differ. Each reads only what it decides on, as the rules of a strategy do
REFUSED: Mapping[str, tuple[Rule, ...]] = {
    "megatron": (_chunks_of_two_stages, _groups_of_stages, _experts_with_biases, _context_of_chosen_keys),
    "torchtitan": (_heads_of_keys, _enough_microbatches, _tied_head, _whole_sequences, _positions),
    "torchtitan .toml": (_heads_of_keys, _enough_microbatches, _older_stages, _older_context),
    "deepspeed": (_sums_of_fp16, _shards_of_stages),
}
