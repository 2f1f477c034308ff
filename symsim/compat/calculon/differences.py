"""What Calculon (git caa4b11) does otherwise, a row each. Places are files under calculon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from symsim.compat.calculon.layers import QKV, UP, Layer
from symsim.compat.calculon.machine import Machine
from symsim.compat.calculon.rules import Rules, Timed
from symsim.compat.calculon.settings import settings_of
from symsim.compat.calculon.totals import Totals, space_of
from symsim.compat.difference import Difference, Question
from symsim.errors import InputError

LAYERS, LLM = "llm/layers.py", "llm/llm.py"
SAVED, STEP = ("saved bytes", "peak"), ("step time",)
_ELEMENTWISE = ("norm", "activation", "add")
_IN_FP8 = ("quantise",)


def differences(question: Question) -> tuple[Difference, ...]:
    """The rows that concern a job. InputError for a model that is none of Calculon's, and for seconds on a system that is not."""
    if question.system is not None and "matrix" not in question.given.get("system", {}):
        raise InputError(f"--compat calculon on {question.system.name}: its seconds need a system file of Calculon, imported with the job")
    asked = settings_of(question)
    rules = Rules(question, space_of(question, asked))
    timed = _timed(rules) if question.system is not None else []
    return (*_model(question), *_counts(rules), *_saved(rules), *_held(rules), *timed)


def _model(question: Question) -> list[Difference]:
    model = question.model
    biases: dict[tuple[str, ...], Any] = {("attention", "qkv_bias"): False, ("attention", "out_bias"): False, ("mlp", "bias"): False}
    found = [
        Difference(
            "blocks-alone",
            "an embedding, a final norm, a head and the loss are part of the model",
            "blocks are all that there is",
            f"{LLM} Llm.compile",
            ("weights", "gradients", "optimizer states", "saved bytes", "FLOPs", "peak", "step time"),
            {"alone": True},
        ),
        Difference(
            "biases",
            "linear maps have the biases of the model",
            "none; a norm has its bias",
            f"{LAYERS} Linear",
            ("weights", "gradients", "optimizer states", "peak", "step time"),
            model=biases,
        ),
    ]
    if not (model.hidden_dropout and model.attention_dropout):
        rates: dict[tuple[str, ...], Any] = {("hidden_dropout",): model.hidden_dropout or 0.1, ("attention_dropout",): model.attention_dropout or 0.1}
        found.append(
            Difference("dropout", "dropout as the model has it", "always there, with its masks", f"{LLM} _build_attn_block", SAVED, model=rates)
        )
    if question.assumptions.get("attention_kernel") != "math":
        found.append(
            Difference(
                "attention-written-out",
                "a fused attention keeps no scores",
                "scores, softmax and dropout are layers of their own",
                f"{LLM} _build_attn_block",
                ("saved bytes", "FLOPs", "peak", "step time"),
                assumptions={"attention_kernel": "math"},
            )
        )
    return found


def _counts(rules: Rules) -> list[Difference]:
    asked, every = rules.asked, (*_ELEMENTWISE, "attention", "einsum")
    found = [
        Difference(
            "vector-operations",
            "FLOPs are those of products",
            "those of norms, softmax, dropout, GeLU, additions and reductions too",
            f"{LAYERS} LayerNorm, SoftMax, DropOut, GeLU, ElementWise, Fork, TPComm",
            ("FLOPs",),
            {"counted": dict.fromkeys((*_ELEMENTWISE, "attention"), rules.counted)},
        ),
        Difference(
            "recomputed-sums",
            "what runs again is counted by itself, with the product of the values",
            "at each layer that runs again all that the block has done so far, without that product",
            f"{LLM} Llm._compute_block_stats (block_re_flops)",
            ("FLOPs",),
            {"again": {"flops": rules.flops_again}},
        ),
    ]
    if asked.multiquery:
        found.append(
            Difference(
                "keys-on-every-rank",
                "of one query group each tensor rank computes a share, and gathers",
                "each rank computes the keys and values whole, and keeps them once a head",
                f"{LLM} _build_attn_block (multiquery)",
                ("weights", "FLOPs", "saved bytes", "peak", "step time"),
                {"counted": {"einsum": rules.counted}, "kernels": {}},
            )
        )
    if not asked.training:
        found.append(
            Difference(
                "forward-alone",
                "a training step",
                "inference: no backward, gradients or states",
                f"{LLM} Llm.Execution (training)",
                ("FLOPs", "gradients", "optimizer states", "step time"),
                {"counted": dict.fromkeys(every, rules.counted)},
            )
        )
    return found


def _kept(name: str, here: str, there: str, source: str, rows: Mapping[tuple[str, str], Fraction | int]) -> Difference:
    return Difference(name, here, there, source, SAVED, {"kept": {key: Fraction(width) for key, width in rows.items()}})


def _saved(rules: Rules) -> list[Difference]:
    """What kernels keep for backward."""
    asked, strategy, space = rules.asked, rules.question.strategy, rules.space
    w = asked.width
    found = [
        _kept(
            "norm-statistics",
            "a norm keeps its input, and a mean and a deviation a row in fp32",
            "its input alone",
            f"{LAYERS} LayerNorm",
            {("norm", "rsigma"): 0, ("norm", "mu"): 0},
        ),
        _kept(
            "attention-mask",
            "the causal mask and its kind are kept where the core runs again",
            "neither is there",
            f"{LLM} _build_attn_block",
            {("attention", "attention_mask"): 0, ("attention", "mask_type"): 0, ("constant", "*"): 0},
        ),
    ]
    if asked.width == 1:
        found.append(_one_byte())
    inputs = {"q_proj": (QKV, "AttnBlock"), "up_proj": (UP, "MlpBlock")}
    there = {label: _held_input(space.layers, of, part) / _elements(rules) for label, (of, part) in inputs.items()}
    if asked.recompute != "full" and (any(width != w for width in there.values()) or rules.question.assumptions.get("save_gathered") == "true"):
        found.append(
            Difference(
                "inputs-of-products",
                "a gathered input is kept as its share, or whole where asked; one that is not gathered is kept",
                "beside its share the whole of it; of attention that runs again nothing, though nobody makes it again",
                f"{LLM} _build_attn_block, _build_mlp_block (activation_stored)",
                SAVED,
                {"kept": {(label, "out"): width for label, width in there.items()}},
                {"save_gathered": "false"},
            )
        )
    if asked.recompute == "full" and strategy.sp and strategy.tp > 1:
        found.append(
            _kept(
                "whole-checkpoints",
                "a rank keeps its share of a block's input",
                "all of it",
                f"{LLM} _compute_block_stats",
                {("norm", "x"): w * strategy.tp},
            )
        )
    if asked.fused:
        found.append(_kept("activation-fused", "an activation keeps its input", "nothing", f"{LAYERS} GeLU", {("activation", "*"): 0}))
    if asked.beside != "none" and asked.messages != "rs_ag":
        rows = {(label, "out"): 0 for label in ("o_proj", "down_proj")}
        found.append(
            _kept("inputs-in-pieces", "a product keeps its input", "none, beside an all-reduce in pieces", f"{LAYERS} LinearOverlapped", rows)
        )
    found += [_of_one_group(rules)] if asked.multiquery else []
    return found


def _of_one_group(rules: Rules) -> Difference:
    asked, tp = rules.asked, rules.question.strategy.tp
    heads = rules.question.model.attention.num_attention_heads
    # where the core runs again, and where a rank has one head, keys and values are in the queries' storage
    times = 3 if asked.recompute == "attn_only" or heads == tp else 1
    share = asked.width * Fraction(times * heads, tp * (heads + 2))
    return _kept(
        "queries-of-a-rank",
        "queries, keys and values of all ranks stay gathered",
        "those of a rank's heads, keys and values repeated to each",
        f"{LLM} _build_attn_block (multiquery)",
        {**{("attention", f"{of}_proj.out"): share for of in "qkv"}, ("attention", "repeated"): asked.width, ("copy", "*"): 0},
    )


def _one_byte() -> Difference:
    kinds = ("norm", "einsum", "attention", "activation", "add")
    rows: dict[tuple[str, str], Fraction] = {(kind, "*"): Fraction(1) for kind in kinds}
    return Difference(
        "one-byte-tensors",
        "products in FP8: weights and activations in 16 bits, with quantised copies",
        "one byte an element of every tensor",
        "system.py System.TypeSizes",
        ("weights", "saved bytes", "peak", "step time"),
        {"kept": rows},
        strategy={"fp8": None},
    )


def _held_input(layers: Iterable[Layer], of: str, part: str) -> Fraction:
    """Bytes that stay of the input of a part's first product: of the message, the fork and the product itself."""
    names = tuple(f"{part}_{name}" for name in ("F", "Multihead_Fork", "KV_Fork"))
    return sum((Fraction(layer.kept) for layer in layers if layer.stored and (layer.of == of or layer.name in names)), Fraction(0))


def _elements(rules: Rules) -> int:
    """Of the input of a part's first product, as a rank has it before a gather."""
    strategy, h = rules.question.strategy, rules.question.model.hidden_size
    return strategy.micro_batch_size * strategy.seq_length * h // (strategy.tp if strategy.sp else 1)


def _held(rules: Rules) -> list[Difference]:
    """What a rank holds for the step, and at its peak."""
    found = [
        Difference(
            "gradients-in-16-bits",
            "gradients of all parameters, as they are accumulated",
            "one block's in fp32, the others' in the type of weights, sharded with the optimizer",
            f"{LLM} Llm._compute_batch_stats (weight_grad_space)",
            ("gradients", "peak"),
            {"held": {"gradients": rules.gradients}},
        ),
        Difference(
            "peak-as-a-sum",
            "the largest moment of a step",
            "weights, activations of all blocks in flight, and all gradients of a block at once; of what is offloaded two blocks",
            f"{LLM} Llm._get_mem_cap_reqs",
            ("peak",),
            {"held": {"peak": rules.peak}},
        ),
    ]
    if rules.asked.multiquery or rules.asked.width == 1:
        why = "keys and values of one group whole on every rank" if rules.asked.multiquery else "one byte a weight"
        found.append(
            Difference(
                "weights-held",
                "weights as ranks and types have them",
                why,
                f"{LAYERS} Linear",
                ("weights", "peak"),
                {"held": {"weights": rules.weights}},
            )
        )
    offloads = {
        name: None for name in ("optimizer_cpu_offload", "use_precision_aware_optimizer", "store_param_remainders", "cpu_offloading_num_layers")
    }
    given = rules.question.strategy.model_fields_set & offloads.keys()
    if given or rules.asked.multiquery or not rules.asked.training:
        found.append(
            Difference(
                "states-of-blocks",
                "states of the parameters that a rank updates, on the host where they are offloaded",
                "12 bytes a weight of its blocks, wherever they are",
                f"{LAYERS} Layer.get_optimizer",
                ("optimizer states", "peak"),
                {"held": {"optimizer": rules.optimizer}},
                strategy={name: None for name in given},
            )
        )
    return found


def _timed(rules: Rules) -> list[Difference]:
    """What seconds come from."""
    question = rules.question
    machine = Machine(question.given["system"], rules.asked, question.strategy.tp)
    machine.check()
    timed = Timed(rules, Totals(question, rules.space, machine))

    def kernels(name: str, here: str, there: str, source: str, kinds: Iterable[str]) -> Difference:
        options = {"kernels": dict.fromkeys(kinds, timed.seconds), "moved": dict.fromkeys(kinds, rules.moved)}
        return Difference(name, here, there, source, STEP, options)

    return [
        kernels(
            "products",
            "a curve of waves and tiles",
            "operations at a share of the peak by their size in steps, and accesses after them",
            f"{LAYERS} Linear, LinearOverlapped",
            ("einsum",),
        ),
        kernels(
            "attention-kernels",
            "products of whole rows and the passes between them",
            "two products, a softmax and a dropout, each with its operations and its accesses",
            f"{LAYERS} BatchMatMul, SoftMax, DropOut",
            ("attention",),
        ),
        kernels(
            "elementwise-kernels",
            "fused kernels that read and write once",
            "a kernel each, its operations on the vector engine added to its accesses",
            f"{LAYERS} LayerNorm, GeLU, DropOut, ElementWise, Fork",
            _ELEMENTWISE,
        ),
        Difference(
            "recomputed-seconds",
            "the core runs again with the product of the values",
            "without it",
            f"{LLM} _build_attn_block (needs_recompute)",
            STEP,
            {"again": {"seconds": timed.seconds_again}},
        ),
        *_sent(rules, timed),
        Difference(
            "host-launches",
            "a block takes at least as long as the host launches its kernels, and copies take their time",
            "neither is there",
            "system.py System",
            STEP,
            {what: dict.fromkeys(("copy", *_IN_FP8), timed.nothing) for what in ("kernels", "moved")},
            {"host_launch": "hidden"},
        ),
    ]


def _sent(rules: Rules, timed: Timed) -> list[Difference]:
    return [
        Difference(
            "collectives",
            "rings over the tiers that a group spans; messages in pieces beside products by what hides them",
            "one tier a group and one latency a call; a rank adds and copies for its messages; pieces slow their product",
            f"network.py Network.time; {LAYERS} TPComm, LinearOverlapped",
            STEP,
            {"collective": timed.collective},
            strategy={"tp_comm_overlap": None},
        ),
        Difference(
            "gathers-again",
            "every gathered input is gathered again for its weight gradient",
            "where asked, for attention that runs again, and once under full recomputation",
            f"{LLM} _build_attn_block, _build_mlp_block (needs_recomm)",
            STEP,
            {"messages": {"again": rules.sent_again}},
            {"save_gathered": "false"},
        ),
        Difference(
            "pipeline",
            "stages of their own length, boundary tensors on their way in a closed form",
            "equal stages, every boundary tensor waited for, in the bubble's chunks too; traffic to the second memory block by block",
            f"{LLM} Llm._compute_batch_stats (bubble_time)",
            STEP,
            {"pipeline": timed.pipeline},
            {"pipeline_scatter_gather": "false"},
        ),
        Difference(
            "data-parallel",
            "gradients scattered and parameters gathered, beside the last backward and the first forward where asked",
            "a block's weights in 16 bits, each block by itself; both halves beside backward",
            f"{LLM} Llm._compute_batch_stats (dp_comm_time_exposed)",
            STEP,
            {"update": timed.update},
            strategy={"overlap_grad_reduce": None, "overlap_param_gather": None},
        ),
        Difference(
            "optimizer-passes",
            "gradients and states are read and written",
            "states are moved once, 11 operations a parameter",
            f"{LAYERS} Layer.get_optim_step_mem_accessed",
            STEP,
            {"passes": timed.passes},
        ),
    ]
