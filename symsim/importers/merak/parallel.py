"""Merak's degrees, tensor and sequence parallelism, ZeRO and the types of its states, as options of symsim."""

from __future__ import annotations

from typing import Any

from symsim.importers.keys import Entry, Keys
from symsim.inputs.architecture import Architecture
from symsim.inputs.limits import MOST_STAGES

WHOLE_VOCABULARY = ("embedding.V=none", "lm_head.V=none", "loss.V=none")
# core/tensor_parallel/mp_mapping.py: models whose linear maps Merak splits without being told
MAPPED = ("gpt2", "bert", "t5", "vit")
# names that transformers' modules have for the halves of a layer (a list's name splits every module whose name holds it)
_HALVES = {
    "attention in": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "attn.c_attn", "attention.self.query", "attention.query_key_value"),
    "attention out": ("self_attn.o_proj", "self_attn.out_proj", "attn.c_proj", "attention.output.dense", "attention.dense"),
    "mlp in": ("mlp.gate_proj", "mlp.up_proj", "mlp.c_fc", "intermediate.dense", "mlp.dense_h_to_4h", "mlp.fc1", "layers.0.fc1", "mlp.fc_in"),
    "mlp out": ("mlp.down_proj", "mlp.c_proj", "layer.0.output.dense", "mlp.dense_4h_to_h", "mlp.fc2", "layers.0.fc2", "mlp.fc_out"),
}
_MOVED = {"attention": ("attention.a=none", "attention.g=none"), "mlp": ("mlp.f=none",)}


def degrees(keys: Keys, strategy: dict[str, Any]) -> None:
    """pp, tp and dp of Merak.init; 1 where it is not among the inputs."""
    for name in ("pp", "tp", "dp"):
        found = keys.integer(name, to=name, least=1)
        # stages are counted through before the strategy is checked
        if name == "pp" and (found or 1) > MOST_STAGES:
            raise keys.wrong(name, f"at most {MOST_STAGES} stages")
        strategy[name] = found or 1
        if found is None:
            keys.note(name, "derived", name, "1, since no Merak.init says more")


def sequence_parallel(keys: Keys, strategy: dict[str, Any], version: str, faithful: bool, notes: list[str]) -> None:
    """Until 2025-05 Megatron's, inside the tensor-parallel group; since 2025-06 Ulysses', over `sp` ranks of its own."""
    ranks = keys.integer("sp", 1, to="cp", why="Ulysses: heads over the ranks in attention, the sequence elsewhere", least=1)
    asked = keys.flag("sequence_parallel", False, to="sp" if version == "seed" else "cp, cp_comm_type")
    dim = keys.choice("sequence_dim", {"0": 0, "1": 1})
    if dim is not None:
        keys.note("sequence_dim", "no_cost_effect" if dim else "not_modelled", why=_dim(dim))
    if version == "seed":
        if asked:
            strategy["sp"] = True
        if ranks > 1:
            keys.note("sp", "refused", why="Merak.init has no sp before 2025-06; leave it out, or give --version head")
            keys.refuse("sp", "Merak.init has no sp before 2025-06; --version head has")
        return
    if asked and ranks > 1:
        strategy |= {"cp": ranks, "cp_comm_type": "a2a"}
        said = f"gradients are not summed over the {ranks} ranks of sp at head (core/mpu/topology.py): the message over dp*sp that is meant is timed"
        notes.append(f"{said}; --faithful says what it saves" if not faithful else said)
        if faithful:
            saved = "without it a rank sends (dp*sp - 1)/(dp*sp) of its gradients less where dp=1, and a factor sp fewer ranks take part where not"
            keys.rows["sp gradients"] = Entry("sp gradients", "(defect)", "not_modelled", why=saved)
    elif asked:
        keys.note("sequence_parallel", "no_cost_effect", why="sp=1: there is no rank to share a sequence with (since 2025-06 it is Ulysses')")
    elif ranks > 1:
        keys.note("sp", "not_modelled", why=f"without sequence_parallel {ranks} ranks do the same: {ranks} times the machines for the same step")


def _dim(dim: int) -> str:
    return "as transformers' modules have it" if dim else "a transposition before each exchange: two passes over a layer's q, k, v and output"


def tensor_parallel(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], model: Architecture | None) -> None:
    """Which linear maps are split, whether the vocabulary is, and what overlaps."""
    split = keys.flag("parallel_vocab", False, to="placement")
    level = keys.choice("tp_overlapping_level", {"0": 0, "1": 1, "2": 2, "3": 3}, 0)
    if strategy["tp"] == 1:
        for key in ("parallel_vocab", "tp_overlapping_level", *_LISTS):
            if key in keys.given:
                keys.note(key, "no_cost_effect", why="nothing is split at tp=1")
        return
    lists = _lists(keys, model)
    # every column-parallel linear has a copy region of its own (core/mpu/layers.py ColumnParallelLinear)
    assumptions["shared_redistribution"] = "false"
    own = "each projection's input gradient has an all-reduce of its own (core/mpu/layers.py)"
    keys.rows["column parallel"] = Entry("column parallel", "(default)", "derived", "assume.shared_redistribution", own)
    placed = [] if split else [*WHOLE_VOCABULARY]
    if not split:
        keys.note("parallel_vocab", "mapped" if "parallel_vocab" in keys.given else "derived", "placement", _whole())
        if strategy.get("sp"):
            placed += ["lm_head.s=cp", "loss.s=cp"]
    placed += [entry for part in lists for entry in _MOVED[part]]
    if placed:
        strategy["placement"] = placed
    _overlap(keys, strategy, level, model)


_LISTS = ("col_para_list", "row_para_list", "input_output_mapping", "weight_change_list")


def _whole() -> str:
    return "embedding, head, logits and loss whole on every tensor rank: the head's FLOPs are not divided"


def _overlap(keys: Keys, strategy: dict[str, Any], level: int, model: Architecture | None) -> None:
    """tp_overlapping_level: halves of a micro-batch, inside a linear map (1), a layer (2), from layer to layer (3)."""
    if not level:
        return
    fell = level > 1 and model is not None and "gpt2" not in model.modelling
    if strategy.get("sp") or strategy["micro_batch_size"] % 2:
        why = "sequence parallelism has no all-reduce" if strategy.get("sp") else "a micro-batch of an odd number of sequences has no equal halves"
        keys.note("tp_overlapping_level", "not_modelled", why=f"{why}: none is hidden here")
        return
    strategy["tp_comm_halves"] = ("linear", "layer", "model")[0 if fell else level - 1]
    why = "levels 2 and 3 are GPT-2's alone, others fall back to 1" if fell else ""
    keys.note("tp_overlapping_level", "mapped", "tp_comm_halves", why)


def _lists(keys: Keys, model: Architecture | None) -> list[str]:
    """The halves of a layer that the lists of set_tp_layer_lists leave whole on every rank."""
    column, row = (keys.texts(name, to="placement") for name in ("col_para_list", "row_para_list"))
    mapped = _pairs(keys, "input_output_mapping")
    divided = _divided(keys)
    if divided:
        column, row = ([*(names or ()), *(name for name, dim in divided if dim == at)] for at, names in enumerate((column, row)))
    if column is None and row is None and mapped is None:
        if model is not None and not any(name in model.modelling for name in MAPPED):
            why = "not given: attention and feed-forward networks are taken as split; Merak asks for set_tp_layer_lists with this model"
            keys.rows["set_tp_layer_lists"] = Entry("set_tp_layer_lists", "(default)", "derived", "tp", why)
        return []
    whole = []
    for part in ("attention", "mlp"):
        into, out = (_listed(part, half, column if half == "in" else row, mapped, model) for half in ("in", "out"))
        if into != out:
            key = next(name for name in _LISTS if name in keys.given)
            lacks = "row_para_list names no map out of it" if into else "col_para_list names no map into it"
            keys.refuse(key, f"{part} is split on one side only: {lacks}, so that shapes do not fit")
        elif not into:
            whole.append(part)
    return whole


def _divided(keys: Keys) -> list[tuple[str, int]]:
    """Of weight_change_list the linear maps, which it splits by outputs (0) or inputs (1) as the two lists do (core/tensor_parallel/mp_attrs.py)."""
    key = "weight_change_list"
    pairs = [(str(name), int(dim)) for name, dim in _pairs(keys, key) or ()]
    maps = [pair for pair in pairs if any(pair[0] in module for half in _HALVES.values() for module in half)]
    others = [name for name, _ in pairs if name not in dict(maps)]
    if any(word in name for name in others for word in _TABLES):
        keys.note(key, "not_modelled", why="a table of tokens or positions that is divided: its bytes over the tensor-parallel ranks")
    elif key in keys.given and not maps:
        keys.note(key, "no_cost_effect", why="no linear map and no table of a decoder is called so")
    return maps


# what transformers calls tables of tokens and positions
_TABLES = ("embed", "wte", "wpe")


def _listed(part: str, half: str, names: Any, mapped: Any, model: Architecture | None) -> bool:
    if names and any(name in module for name in names for module in _HALVES[f"{part} {half}"]):
        return True
    if not mapped:
        return False
    style = "col" if half == "in" else "row"
    wide = 4.0 if model is None or model.mlp is None else model.mlp.ffn_hidden_size / model.hidden_size
    ratios = [float(b) / float(a) for a, b, how in mapped if how == style and float(a)]
    if part == "mlp":
        return any(abs(ratio - (wide if half == "in" else 1 / wide)) < 1e-9 for ratio in ratios)
    return any(abs(ratio - wide) > 1e-9 and ratio >= 1 for ratio in ratios) if half == "in" else any(abs(ratio - 1) < 1e-9 for ratio in ratios)


def _pairs(keys: Keys, key: str) -> list[Any] | None:
    """A list of short lists; InputError for anything else."""
    if not keys.has(key):
        return None
    found = keys.given[key].value
    entries = 3 if key == "input_output_mapping" else 2
    right = "a list of (input, output, 'col' or 'row')" if entries == 3 else "a list of (layer, dimension)"
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, (list, tuple)) and len(one) == entries for one in found):
        raise keys.wrong(key, right)
    numbers = (one[:2] if entries == 3 else one[1:] for one in found)
    if not all(isinstance(n, (int, float)) and not isinstance(n, bool) and abs(n) < 10**9 for one in numbers for n in one):
        raise keys.wrong(key, right)
    if entries == 3 and not all(one[2] in ("col", "row") for one in found):
        raise keys.wrong(key, right)
    keys.note(key, to="placement")
    return list(found)


def data_parallel(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], faithful: bool, notes: list[str]) -> None:
    """ZeRO-1 or none, reduced once after the last backward in the type that products run in; which states there are."""
    stage = keys.number("zero_stage", to="zero")
    if stage not in (None, 0, 1):
        raise keys.wrong("zero_stage", "1, or left out: Merak has no stage 2 or 3")
    if stage is None:
        keys.note("zero_stage", "derived", "zero", "none in the code, where the document says 1")
    strategy["zero"] = int(stage or 0)
    permitted = keys.flag("zero_allow_untested_optimizer", False)
    if "zero_allow_untested_optimizer" in keys.given:
        keys.note("zero_allow_untested_optimizer", "no_cost_effect", why="a permission, checked as the optimizer is made")
    if stage and strategy["precision"] == "fp16" and not permitted:
        keys.refuse("zero_stage", "ZeRO takes fp16's own optimizer with a permission alone; give zero_allow_untested_optimizer=True")
    strategy["grad_reduce_in_fp32"] = strategy["precision"] == "fp32"
    why = "reduced in the type that products run in, after the pipeline"
    keys.rows["gradients"] = Entry("gradients", "(default)", "derived", "grad_reduce_in_fp32", why)
    backend = keys.text("half_precision_backend", "auto")
    if backend in ("cuda_amp", "apex"):
        keys.note("half_precision_backend", "not_modelled", why="weights stay in fp32 and are cast in every product: 4 bytes more a parameter")
    elif "half_precision_backend" in keys.given:
        keys.note("half_precision_backend", "no_cost_effect", why="Merak's own types hold")
    if strategy["precision"] == "bf16" and not stage:
        strategy["main_params_dtype"] = "bf16"
        why = "bf16 without ZeRO has no fp32 copy, and moments in bf16 (core/amp/amp_engine.py)"
        keys.rows["states"] = Entry("states", "(default)", "derived", "main_params_dtype", why)
        _unreduced(keys, strategy, faithful, notes)
    _scaling(keys, strategy, assumptions)


def _unreduced(keys: Keys, strategy: dict[str, Any], faithful: bool, notes: list[str]) -> None:
    if strategy["dp"] == 1:
        return
    said = "gradients of bf16 weights are in no bucket at head (core/engine_utils.py), so replicas drift apart: the all-reduce that is meant is timed"
    notes.append(said if faithful else f"{said}; --faithful says what it saves")
    if faithful:
        keys.rows["bf16 gradients"] = Entry("bf16 gradients", "(defect)", "not_modelled", why="a step is shorter by exposed_dp of symsim eval --json")


def _scaling(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """Sizes of messages, and what gradients are divided by."""
    size = keys.number("zero_reduce_bucket_size", to="ddp_bucket_size")
    if size is not None and strategy["zero"]:
        strategy["ddp_bucket_size"] = max(1, min(int(size), 10**15))
        keys.note("zero_reduce_bucket_size", to="ddp_bucket_size", why="gradients of a reduction, and parameters of a gather")
    elif size is not None:
        keys.note("zero_reduce_bucket_size", "no_cost_effect", why="read by ZeRO alone")
    before = keys.flag("prescale_gradients", False, to="assume.gradient_scaling")
    factor = keys.number("gradient_predivide_factor", 1.0)
    if not strategy["zero"]:
        for key in ("prescale_gradients", "gradient_predivide_factor"):
            if key in keys.given:
                keys.note(key, "no_cost_effect", why="read by ZeRO alone")
        return
    if not before:
        assumptions["gradient_scaling"] = "owned"
    if "prescale_gradients" not in keys.given:
        keys.note("prescale_gradients", "derived", "assume.gradient_scaling", "false by default: the share that a rank owns is divided")
    if factor is not None and "gradient_predivide_factor" in keys.given:
        keys.note("gradient_predivide_factor", "no_cost_effect", why="which number the pass multiplies by")
