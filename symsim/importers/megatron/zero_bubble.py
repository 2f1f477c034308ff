"""The zero-bubble fork of Megatron-LM: its schedules as symsim's (sail-sg/zero-bubble-pipeline-parallelism, core/zbpp_utils.py; read 2026-11)."""

from __future__ import annotations

from symsim.importers.keys import Silent, shown, silent
from symsim.importers.megatron.settings import Settings

_IDLE = "takes part in no step: what is timed before a schedule is made, and messages that go ahead of others"
TABLE: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        _IDLE,
        """
        enable_zb_runtime no_pre_communication_optimization
        zero_bubble_pipeline_timers_start_iter zero_bubble_pipeline_timers_end_iter
        zero_bubble_adaptive_memory_limit_percentile profile_memory_iter enable_exactly_numeric_match measure_activation_memory
        """,
    ),
    **silent(
        "not_modelled",
        "the update begins before the norm of all gradients is known: a reduction over stages less",
        "enable_optimizer_post_validation",
    ),
    **silent(
        "not_modelled",
        "activations of chunks go to the host and come back: their bytes less, and what of the transfers is exposed",
        "offload_chunk_num offload_time auto_offload_time offload_overlap_sr cpu_offload no_paired_barrier offload_continuous_buffers",
        (0, "0"),
    ),
    **silent("not_modelled", "norms, activation functions and masks run again: their outputs less, and a pass each more", "recompute_lgd"),
    **silent("not_modelled", "a sequence in parts, one after the other: a smaller bubble", "num_seq_splits", (1, "1")),
}


def schedule(read: Settings) -> None:
    """Set the schedule that the fork's switches name, where there is a pipeline."""
    keys, options = read.keys, read.options
    pp = options.get("pp", 1)
    _groups(read)
    bent = keys.flag("zero_bubble_v_schedule", False, to="schedule, vpp", why="two chunks a rank in the shape of a V")
    apart = keys.flag("enable_zero_bubble", False, to="schedule") or bent
    whole = keys.flag("enable_1f1b_v", False, to="schedule, vpp", why="two chunks a rank in the shape of a V, backwards whole")
    pending = shown(keys.given["zero_bubble_max_pending_backward"].value) if keys.has("zero_bubble_max_pending_backward") else "auto"
    setup = keys.choice("zero_bubble_v_schedule_mem_setup", {"zb": "zbv", "half": "v_half", "min": "v_min"}, "zbv", to="schedule")
    if keys.has("zero_bubble_max_pending_backward"):
        keys.note("zero_bubble_max_pending_backward", "no_cost_effect", why="read with enable_zero_bubble alone")
    if pp > 2 and whole and not apart:
        options |= {"schedule": "1f1b_v", "vpp": 2}
    elif pp == 2 and whole:
        keys.note("enable_1f1b_v", "not_modelled", why="two ranks hold as much as without it, in an order that has no row: one chunk is timed")
    if pp == 1 or not apart:
        return
    if bent:
        options |= {"schedule": "zbv" if pp == 2 else setup, "vpp": 2}
        if pp == 2 and setup != "zbv":
            why = "two ranks hold four chunks all the same (the first a chunk less with min), in an order that has no row: that of zb is timed"
            keys.note("zero_bubble_v_schedule_mem_setup", "not_modelled", why=why)
        return
    if options.get("vpp", 1) > 1:
        options["schedule"] = "interleaved_zb"
        return
    twice = pending == "auto" or (pending.isdigit() and int(pending) >= 2 * pp)
    options["schedule"] = "zb_h2" if twice else "zb_h1"
    if pending == "auto":
        read.derived("zero_bubble_max_pending_backward", "schedule", "zb_h2", "so many as leave no bubble; as memory holds there")
    else:
        keys.note("zero_bubble_max_pending_backward", to="schedule", why=f"{pending} micro-batches on {pp} stages")


def padded_layers(read: Settings, layers: int) -> int:
    """Layers with those of allow_padding_num_layers that are none: as many as stages divide (training/arguments.py)."""
    pp = read.options.get("pp", 1)
    return -(-layers // pp) * pp if read.keys.flag("allow_padding_num_layers", False) else layers


def padded_layout(read: Settings) -> None:
    """What stages hold where allow_padding_num_layers adds layers that are none: one each in the place of the last of the model's chunks and of its
    first ones (legacy/model/transformer.py, get_offset)."""
    keys, options = read.keys, read.options
    if not keys.flag("allow_padding_num_layers", False, to="pipeline_model_parallel_layout") or read.architecture is None:
        return
    layers, chunks = read.architecture.num_layers, options.get("pp", 1) * options.get("vpp", 1)
    missing = padded_layers(read, layers) - layers
    if not missing:
        keys.note("allow_padding_num_layers", "no_cost_effect", why="the stages divide the layers")
        return
    if (layers + missing) % chunks:
        raise keys.wrong("allow_padding_num_layers", f"given with {layers + missing} layers, padded, that {chunks} chunks divide")
    held = [(layers + missing) // chunks] * chunks
    for chunk in range(-1, missing - 1):
        held[chunk] -= 1
    options["pipeline_model_parallel_layout"] = "E" + "|".join("t" * own for own in held) + "L"
    why = f"{layers} layers and {missing} that are none over {chunks} chunks"
    keys.note("allow_padding_num_layers", to="pipeline_model_parallel_layout", why=why)


def _groups(read: Settings) -> None:
    """interleave_group_size of the interleaved schedule, which is another than Megatron-Core's with groups of that size. Groups of more micro-batches
    than ranks are of as many (scheduler/group_interleaved_1f1b.py); those of fewer than half run several at a time, and have no row."""
    keys, options = read.keys, read.options
    group = keys.integer("interleave_group_size", 0, least=0, to="microbatch_group_size_per_vp_stage")
    p, v = options.get("pp", 1), options.get("vpp", 1)
    if not keys.has("interleave_group_size"):
        return
    if not group:
        keys.note("interleave_group_size", "no_cost_effect", why="none is asked for")
    elif v == 1 or p == 1 or any(keys.flag(name, False) for name in ("enable_zero_bubble", "zero_bubble_v_schedule", "enable_1f1b_v")):
        keys.note("interleave_group_size", "no_cost_effect", why="read by the interleaved schedule alone, with whole backwards")
    elif 2 * group >= p:
        options |= {"schedule": "grouped_interleaved", "microbatch_group_size_per_vp_stage": min(group, p)}
        keys.note("interleave_group_size", to="schedule, microbatch_group_size_per_vp_stage", why=f"groups of {min(group, p)}, {v} chunks a rank")
    else:
        why = f"several groups of fewer than {(p + 1) // 2} run through the chunks at a time; those of {p} of Megatron-Core's schedule are counted"
        keys.note("interleave_group_size", "not_modelled", why=why)
