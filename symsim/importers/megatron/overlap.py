"""Which messages of a step run beside computation, as Megatron-LM's arguments say."""

from __future__ import annotations

from symsim.importers.megatron.settings import Settings
from symsim.pipeline.layout import pipeline_layout

# switches of tp_comm_overlap: on by default (an argument takes one out), and off
_ON = ("tp_comm_overlap_ag", "tp_comm_overlap_rs", "tp_comm_bulk_dgrad", "tp_comm_bulk_wgrad")
_OFF = ("tp_comm_overlap_rs_dgrad", "tp_comm_overlap_disable_qkv", "tp_comm_overlap_disable_fc1")


def tensor_parallel_messages(read: Settings) -> None:
    """Which messages tp_comm_overlap takes; without it none of the switches is read."""
    keys = read.keys
    for option in _ON:
        for argument in (f"no_{option}", f"disable_{option}"):
            if keys.flag(argument, False, to=option, why="the opposite"):
                read.options[option] = False
    for option in _OFF:
        if keys.flag(option, False, to=option):
            read.options[option] = True


def boundary_tensors(read: Settings) -> None:
    """How boundary tensors travel between stages, behind what says the stages and whether the interleaved schedule overlaps them."""
    keys, options = read.keys, read.options
    pipeline, interleaved = options.get("pp", 1) > 1, options.get("vpp", 1) > 1
    batched = keys.flag("batch_p2p_comm", None, to="p2p_comm", why="batched")
    if keys.flag("use_ring_exchange_p2p", False, to="p2p_comm", why="batched: one call sends and receives"):
        batched = True
    if pipeline and not interleaved:
        options["p2p_comm"] = "batched" if batched is not False else "single"
        if batched is None:
            keys.note("batch_p2p_comm", "derived", "p2p_comm", "batched: a rank waits for each exchange, by default where stages hold one chunk")
    for key in ("batch_p2p_comm", "use_ring_exchange_p2p"):
        if keys.has(key) and not (pipeline and not interleaved):
            why = "the interleaved schedule waits for each or overlaps them: overlap_p2p_comm" if interleaved else _ALONE
            keys.note(key, "no_cost_effect", why=why)
    # Megatron-Core p2p_communication.py waits so behind every batched exchange, unless it is told otherwise
    waits = options.get("p2p_comm") == "batched"
    for key, default in (("batch_p2p_sync", waits), ("variable_seq_lengths", False)):
        if keys.flag(key, default, to=key):
            if pipeline:
                options[key] = True
            else:
                keys.note(key, "no_cost_effect", why=_ALONE)
    if waits and not keys.has("batch_p2p_sync"):
        keys.note("batch_p2p_sync", "derived", "batch_p2p_sync", "true: the host waits behind every batched exchange, by default")
    _prediction_alone(read, pipeline)
    _ends(read)
    _deferred(read, pipeline)


def timers(read: Settings) -> None:
    """Timers of forward, backward and boundary tensors, each of which waits for the device (megatron/core/timers.py Timer.start, stop); of a whole
    step those of the levels below do."""
    level = read.keys.integer("timing_log_level", 0, to="host_waits")
    if level > 1:
        read.options["host_waits"] = 4 if read.options.get("pp", 1) > 1 else 2
    elif read.keys.has("timing_log_level"):
        read.keys.note("timing_log_level", "no_cost_effect", why="timers wait for the device a few times a step")


_ALONE = "one stage sends nothing"


def _ends(read: Settings) -> None:
    """Whether the overlap holds in the warm-up and the flush."""
    keys, options, key = read.keys, read.options, "overlap_p2p_communication_warmup_flush"
    given = keys.flag(key, None, to="overlap_p2p_comm_warmup_flush")
    if options.get("overlap_p2p_comm"):
        options["overlap_p2p_comm_warmup_flush"] = bool(given)
        if given is None:
            keys.note(key, "derived", "overlap_p2p_comm_warmup_flush", "false unless it is given")
    elif given is not None:
        keys.note(key, "no_cost_effect", why="read with overlap_p2p_comm only")


def _deferred(read: Settings, pipeline: bool) -> None:
    keys, key, limit = read.keys, "defer_embedding_wgrad_compute", "wgrad_deferral_limit"
    on, most = keys.flag(key, False, to=key), keys.integer(limit, 0, to=limit)
    if on and pipeline:
        read.options |= {key: True, **({limit: most} if most else {})}
    elif on:
        keys.note(key, "no_cost_effect", why=_ALONE)
    if not (on and pipeline) and keys.has(limit):
        keys.note(limit, "no_cost_effect", why=f"read with {key} only")


def _prediction_alone(read: Settings, pipeline: bool) -> None:
    """Multi-token prediction on another rank than the last, as the layout says; the length of its tensors is sent ahead."""
    keys, options, key = read.keys, read.options, "mtp_standalone"
    layout = options.get("pipeline_model_parallel_layout")
    parts = pipeline_layout(str(layout)) if layout is not None else ()
    alone = any("m" in part and (number + 1) % options.get("pp", 1) for number, part in enumerate(parts))
    if alone and pipeline:
        options["variable_seq_lengths"] = True
    if keys.flag(key, False, to="pipeline_model_parallel_layout"):
        said = "shapes are sent ahead; behind the trunk 1 + D tensors travel, of which one is timed"
        why = said if alone else "set from the layout, which has none of it on an earlier rank"
        keys.note(key, "mapped" if alone else "no_cost_effect", "pipeline_model_parallel_layout" if alone else "", why)
