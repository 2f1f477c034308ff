"""The part of docs/accuracy.md on causes of errors that an audit of the first edition (commit 04862ea) ranked:"
" what became of each, and the steps now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

Step = tuple[str, float]  # a row's id and its error


@dataclass(frozen=True)
class Cause:
    """What was wrong, what was done about it, which steps show it (none: the evidence is in `done`), and what they were off before, in words."""

    what: str
    done: str
    shows: Callable[[str], bool] | None = None
    before: str = ""


def _has(*words: str, without: str = "\0") -> Callable[[str], bool]:
    return lambda name: all(word in name for word in words) and without not in name


CAUSES = (
    Cause(
        "experts multiplied at the rate of BF16 under FP8",
        "mended: grouped products take the recipe's type forward and backward (`tests/test_step_time.py`)",
        _has("bridge/", "DeepSeek"),
        "19.9 %",
    ),
    Cause(
        "guessed settings of Megatron-Bridge's rows",
        "mended: settings are those of the recipes at the tag of each container; the table of what is guessed counts the rest",
        _has("bridge/", "Qwen3_235B"),
        "16.1 %",
    ),
    Cause("a hop of 11.9 us on GB200 and GB300", "mended: 5.55 us and 30.1 us a call, as measured on B200, which has the same links"),
    Cause(
        "the all-to-all of B200 at 0.213, fitted to steps",
        "apart: dispatchers have shares from their own tables (0.60 to 0.70); plain all-to-all keeps what steps of "
        "DeepSeek-V2 say, which with the 0.644 "
        "of single calls would be 7 to 13 % short, as SimuMax's own predictions are: tokens wait for one another there",
        _has("b200/deepseekv2"),
    ),
    Cause(
        "GPT-OSS: a defect of cuDNN in one container, biases of experts in passes of their own, attention blind to head size",
        "mended but for the defect: the passes are counted, and attention takes its head size; the row of 26.06.01 "
        "stays 41 % short, as its own footnote explains",
        _has("GPT_OSS", without="26.06.01"),
        "36 % short",
    ),
    Cause(
        "micro-batches of one on Qwen3-30B are bound by the host",
        "mended: launches of the host by framework, graphs by scope. Micro-batches of eight on GB300 and B300 before container 26.06 stay "
        "12 to 18 % short, on both hosts alike, so that kernels lack about 3 ms a layer: not padding of experts, "
        "which returns at once where HybridEP has padded "
        "(TransformerEngine module/fp8_padding.py), nor a router in fp32, which Megatron-Bridge does not set for it; copies of static "
        "inputs of graphs would be 0.5 %, by hand",
        _has("bridge/", "Qwen3_30B"),
        "18 % short",
    ),
    Cause(
        "overlap of the expert exchange hid twice what machines hide",
        "mended: the exchange takes multiprocessors from what runs beside it, by the dispatcher's own count",
    ),
    Cause(
        "ZeRO-3 of 2021 gathers over one ring",
        "mended: `fsdp_rings=one`, gathers in the order of DeepSpeed 0.3",
        _has("narayanan/table2-ZeRO"),
        "57.6 %",
    ),
    Cause(
        "folding rows: FP8 rate, causal count, chunks",
        "mended as the audit found. FSDP on Qwen2 stays 26 % short: it would be 6 % long if no gather were hidden, but the other 19 steps with "
        "zero=3 would be 16 to 49 % long so, and micro-batches of two would make it 61 % short; it alone has most of its weights in rings of four "
        "ranks a node",
        _has("folding/"),
        "11.3 %",
    ),
    Cause(
        "ms-swift's experts by Megatron: uneven loads",
        "not mended: an imbalance of 1.8 would explain time and memory, and none is published. The same script at pp=2 instead of tp=2, its experts "
        "on as many ranks, took 2.5 s, and 2.95 with full recomputation (its headers at ea23c5e9d and c3f3ca4a4): these come out 10 and 4 % short, "
        "so that most is of tp=2. Experts without a capacity gather over it in shares of uneven size, for which torch sends one broadcast a rank "
        "(Megatron-Core 0.12 tensor_parallel/mappings.py): in twice the time at two ranks, 19 % would be left. "
        "Left so: it would bring runs of parallel folding with etp=tp, 1.5 to 5.8 % less by model than those with etp=1, to 0 to 2 % more, but "
        "those of Qwen2 on 64 to 256 GPUs too far, as if half of it were so; how channels are divided between broadcasts is not known",
        _has("swift/moe", "megatron"),
        "25.6 % short",
    ),
    Cause(
        "Llama 3 405B without its interleaving and end chunks",
        "mended: `llama3-405b-16k` and `-long` have both, and fit (`tests/test_sharded_stages.py`: at most a fifth "
        "above the printed 400 and 380 TFLOP/s)",
    ),
    Cause(
        "DeepSeek-V3's small error was cancellation (optimizer, bubble)",
        "mended: DualPipe's bubble and the passes of the optimizer are those of its schedule and its states; the step "
        "comes to 20.3 s without MTP, where "
        "180 thousand H800 hours a trillion tokens (arXiv:2412.19437) are 19.9 with it",
    ),
    Cause(
        "kernels of H100: attention blind to head size and length, FP8 products of few rows, twins that differ",
        "mended: the section on kernels; systems of one chip share every coefficient of kernels and the FP8 share (`tests/test_kernel_tables.py`)",
        _has("megatron-h100/"),
    ),
    Cause(
        "attention of B200 at the clock of single calls",
        "mended: in steps it is as much slower as products are; calls of 32K tokens in SimuMax's own table say so",
        _has("b200/", "_cp"),
        "3.1 %",
    ),
    Cause(
        "memory of DeepSeek-V3: inputs of SwiGLU in 16 bits, FP8 copies of what is recomputed, attention's output, norms, DualPipe's two stages, MTP",
        "mended: 104.6 GiB has become what the section on peaks says, of 69; the two stages of a rank are one of each end (`tests/test_memory.py`)",
    ),
    Cause(
        "30 of 429 runs that ran were said not to fit",
        "mended: `fp8_param_gather`, FP8 copies that shard under zero=3, offload by module, ZeRO-2 under a pipeline; "
        "the section on what fits counts them",
    ),
    Cause(
        "peaks of model cards: Llama 3 70B 16 to 30 % above, Moonlight 17 %",
        "the section on peaks: Llama 3 70B follows its recipe (no cache of transposes, gradients in bf16) and is compared with "
        "the last stage, whose rank wrote the log; Moonlight keeps whole fp32 parameters, as Megatron-Core does for the recipe of FP8 that "
        "Megatron-Bridge names without FP8",
    ),
)


def section(steps: Sequence[Step]) -> list[str]:
    """A table of all; steps whose error is known."""
    lines = [
        "## Causes of the first edition's errors",
        "",
        "What an audit of the first edition (commit 04862ea) found, in its order, and what was found since. Errors are "
        "mean absolute ones of the steps that show a cause.",
        "",
        "| cause | what became of it | steps | before | now |",
        "|---|---|---|---|---|",
    ]
    for cause in CAUSES:
        own = [error for name, error in steps if cause.shows is not None and cause.shows(name)]
        now = f"{len(own)} | {cause.before} | {mean(map(abs, own)):.1%}, {mean(own):+.1%} in the mean" if own else " | | "
        lines.append(f"| {cause.what} | {cause.done} | {now} |")
    return [*lines, ""]
