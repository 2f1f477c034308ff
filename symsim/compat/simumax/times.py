"""What SimuMax's seconds come from, a row each; there are none where no system file of SimuMax was imported."""

from __future__ import annotations

from symsim.compat.difference import Difference, Question
from symsim.compat.simumax.kernels import LEFT_OUT, MOVED, Kernels
from symsim.compat.simumax.machine import Machine
from symsim.compat.simumax.messages import Messages
from symsim.compat.simumax.pipeline import Pipeline
from symsim.compat.simumax.settings import Settings

STEP = ("step time",)


def timed(question: Question, asked: Settings) -> list[Difference]:
    """The rows of time."""
    if question.system is None or "accelerator" not in question.given.get("system", {}):
        return []
    machine = Machine(question.given["system"])
    return [*_kernels(Kernels(machine, question)), *_messages(Messages(machine, question), question, asked), *_pipeline(machine, question)]


def _pipeline(machine: Machine, question: Question) -> list[Difference]:
    if question.strategy.pp == 1:
        return []
    return [
        Difference(
            "blocking-exchanges",
            "boundary tensors travel while ranks compute, by a closed form",
            "ranks stand still for every one, replayed in their order",
            "perf_llm.py PerfLLM.calculate_1f1b_bubble, _compute_interleaved_sync_schedule_from_ppschedule",
            STEP,
            {"pipeline": Pipeline(machine, question).seconds},
        )
    ]


def _kernels(rules: Kernels) -> list[Difference]:
    return [
        Difference(
            "products",
            "a curve of waves and tiles, fitted to the tables of shapes",
            "the share of the shape, one share for all that are in no table, and a latency",
            "config.py SystemConfig.compute_op_accuracy_time",
            STEP,
            {"kernels": {"einsum": rules.product, "grouped": rules.grouped}},
        ),
        Difference(
            "attention-kernels",
            "a curve over the pairs that a causal kernel works through",
            "the share of the shape, of the whole square of scores",
            "transformer/dense_module.py CoreAttention._comp_leaf_mem_accessed_info",
            STEP,
            {"kernels": {"attention": rules.attention}},
        ),
        Difference(
            "memory-kernels",
            "a kernel reads its operands and writes its results once",
            "its own count of bytes, a table's whole rows too, and a latency for each pass",
            "transformer/dense_module.py, moe_module.py _comp_leaf_mem_accessed_info",
            STEP,
            {"kernels": dict.fromkeys(MOVED, rules.moves)},
        ),
        Difference(
            "kernels-left-out",
            "residual additions, rotary embeddings, copies and the choice of experts take their time",
            "they take none",
            "transformer/language_model.py LLMBlock",
            STEP,
            {"kernels": dict.fromkeys(LEFT_OUT, rules.nothing)},
        ),
        Difference(
            "host-launches",
            "a block takes at least as long as the host launches its kernels",
            "the host is not modelled",
            "config.py SystemConfig",
            STEP,
            assumptions={"host_launch": "hidden"},
        ),
    ]


def _messages(rules: Messages, question: Question, asked: Settings) -> list[Difference]:
    strategy = question.strategy
    found = [
        Difference(
            "collectives",
            "rings and exchanges over the tiers that a group spans",
            "one tier a group, one volume a collective, hops that count in nodes of eight alone",
            "config.py SystemConfig.compute_net_op_time",
            STEP,
            {"collective": rules.seconds},
        ),
        Difference(
            "buckets",
            "the bytes of gradients and parameters that there are",
            "whole buckets of 160 MB, of parameters twice as many with experts, and nothing for ZeRO-2 and 3",
            "perf_llm.py PerfLLM._compute_dp_time",
            STEP,
            {"update": rules.update},
        ),
        Difference(
            "optimizer-passes",
            "states are read and written, two passes",
            "three passes over states, and a latency for each",
            "perf_llm.py PerfLLM._compute_optim_time",
            STEP,
            {"passes": rules.passes},
        ),
    ]
    found.append(
        Difference(
            "stragglers",
            "as assume.stragglers has it",
            "a factor on the pipeline that grows with the nodes, on unless switched off",
            "perf_llm.py estimate_straggler_increase_ratio",
            STEP,
            {"slower": rules.slower() if asked.strategy.get("enable_straggler_model", True) else 1.0},
            {"stragglers": "none"},
        )
    )
    found += _of_tensor_ranks(rules) if strategy.tp > 1 else []
    found += _of_experts(rules) if question.model.moe is not None else []
    found += _of_context_ranks(rules, asked) if strategy.cp > 1 else []
    return found


def _of_context_ranks(rules: Messages, asked: Settings) -> list[Difference]:
    once = Difference(
        "exchanged-once",
        "attention that runs again exchanges its heads again",
        "it does not",
        "transformer/dense_module.py CoreAttention._comp_leaf_intra_net_info",
        STEP,
        {"messages": {"not-again": rules.not_again}},
    )
    output = Difference(
        "output-exchanged-again",
        "backward exchanges the gradient of attention's output",
        "and the output, before TE 2.8",
        "transformer/dense_module.py CoreAttention._get_cp_a2a_stage_specs",
        STEP,
        {"messages": {"output-again": rules.output_again}},
    )
    # a strategy that says so has it where a backward reads it, which is not where scores are written out
    said = rules.question.strategy.cp_saved_output == "projection" and asked.flash
    return [once, *([output] if asked.output_goes_again and not said else [])]


def _of_tensor_ranks(rules: Messages) -> list[Difference]:
    again = Difference(
        "input-gathered-again",
        "an input that is kept gathered is not gathered again",
        "with FP8 it is, for the weight gradient",
        "transformer/dense_module.py LinearCol._comp_leaf_intra_net_info",
        STEP,
        {"messages": {"gathered-again": rules.gathered_again}},
    )
    maxima = Difference(
        "maxima-reduced",
        "the maximum of a tensor that is cast to FP8 is reduced over the ranks that share it",
        "no such message is there",
        "transformer/dense_module.py QuantizedColLinear, QuantizedRowLinear",
        STEP,
        {"messages": {"without-maxima": rules.without_maxima}},
    )
    strategy = rules.question.strategy
    return [
        *([maxima] if strategy.fp8 != "none" else []),
        *([again] if strategy.fp8 != "none" and strategy.sp else []),
        Difference(
            "embedding-reduced",
            "a rank's share of the embedding's output is scattered from all of it",
            "the share is reduced whole, and gathered as if it were all",
            "transformer/dense_module.py Embedding._comp_leaf_intra_net_info",
            STEP,
            {"messages": {"embedding": rules.embedding}},
        ),
        Difference(
            "loss-reduced",
            "the fused loss gathers three rows once",
            "it reduces one row, then two",
            "transformer/dense_module.py ParallelCE._comp_leaf_intra_net_info",
            STEP,
            {"messages": {"loss": rules.loss}},
        ),
    ]


def _of_experts(rules: Messages) -> list[Difference]:
    return [
        Difference(
            "probabilities-sent",
            "a probability travels with every row",
            "a row of all experts with every token",
            "transformer/moe_module.py Permutation._comp_leaf_intra_net_info",
            STEP,
            {"messages": {"probabilities": rules.probabilities}},
            {"dispatcher_metadata": "omitted"},
        ),
        Difference(
            "combine-over-etp",
            "the combine carries what the dispatch did",
            "with expert tensor parallelism as many times that as there are ranks",
            "transformer/moe_module.py UnPermutation._comp_leaf_intra_net_info",
            STEP,
            {"messages": {"combined": rules.combined}},
        ),
    ]
