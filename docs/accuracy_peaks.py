"""The part of docs/accuracy.md on peaks that others published of runs whose steps they did not, and on runs that a paper says to have fitted."""

from __future__ import annotations

from dataclasses import dataclass

from accuracy_fits import SAID

from symsim.api.python import derive

# Megatron-Bridge at 067f987, skills/nemo-mbridge-perf-memory-tuning and -activation-recompute (SKILL.md, card.yaml)
_BRIDGE = "Megatron-Bridge, skills/nemo-mbridge-perf-memory-tuning and -activation-recompute"
# its recipe: FP8 with current scaling, weights gathered so, gradients in bf16, and disable_parameter_transpose_cache, which has no name here:
# taken for FP8 that is multiplied in any layout, which keeps inputs once as well. What its log said was then the peak of the last rank, which
# is of the last stage (training/utils/train_utils.py: writers are on the last rank; since issue 3167 the largest over the pipeline is)
_SFT = (
    "sp=true,seq_length=4096,micro_batch_size=1,global_batch_size=32,zero=1,fp8=tensorwise,fp8_param_gather=true,grad_reduce_in_fp32=false,"
    "overlap_grad_reduce=true,overlap_param_gather=true,cross_entropy_fusion=te,overlap_p2p_comm=true"
)
_SFT_SET = {"assume.fp8_layouts": "any", "assume.apply_rope_fusion": "true"}
_MOONLIGHT = (
    "tp=2,sp=true,ep=8,etp=1,dp=4,seq_length=4096,micro_batch_size=1,global_batch_size=4,zero=1,cross_entropy_fusion=te,"
    "use_precision_aware_optimizer=true,exp_avg_dtype=bf16,exp_avg_sq_dtype=bf16"
)
# the recipe asks for gradients in bf16, and for 16 bits of fp32 parameters; but fp8_recipe is "tensorwise" there without FP8 as well
# (training/mixed_precision.py MixedPrecisionConfig), for which Megatron-Core keeps whole fp32 parameters and makes fp32 gradients
_MOONLIGHT += ",grad_reduce_in_fp32=false,store_param_remainders=false"
_MOONLIGHT_SET = {"assume.moe_permute_fusion": "true", "assume.library_workspace": "hopper"}


@dataclass(frozen=True)
class Peak:
    """A published peak in bytes (None: that it fitted is all that is said) of a model under a strategy on a system, whose source is `by`; of the
    fullest stage, or of the last."""

    what: str
    model: str
    strategy: str
    system: str
    published: float | None
    by: str
    settings: tuple[tuple[str, str], ...] = ()
    said: str = ""
    of_last: bool = False


def _sft(what: str, degrees: str, gigabytes: float, more: str = "", said: str = "") -> Peak:
    plan = f"{degrees},{_SFT}{more}"
    return Peak(f"Llama 3 70B SFT, {what}", "llama3-70b", plan, "h100-sxm", gigabytes * 1e9, _BRIDGE, tuple(_SFT_SET.items()), said, True)


_DROPPED = ",recompute=selective,recompute_modules="
PEAKS = (
    _sft("TP4 PP4 VPP5", "tp=4,pp=4,vpp=5,dp=2", 58.8, said="ran out of memory by fragmentation; ran with expandable segments"),
    _sft("TP4 PP4 VPP10", "tp=4,pp=4,vpp=10,dp=2", 60.2),
    _sft("TP4 PP4 VPP5, norms again", "tp=4,pp=4,vpp=5,dp=2", 59.6, _DROPPED + "layernorm", "ran out of memory by fragmentation"),
    _sft("TP4 PP4 VPP5, MLP again", "tp=4,pp=4,vpp=5,dp=2", 55.6, _DROPPED + "mlp"),
    _sft("TP4 PP8 VPP5", "tp=4,pp=8,vpp=5,dp=1", 53.2),
    _sft("TP8 PP4 VPP5", "tp=8,pp=4,vpp=5,dp=1", 50.2),
    Peak("Moonlight 16B, TP2 EP8", "moonlight-16b-a3b", _MOONLIGHT, "h100-sxm", 36.618e9, _BRIDGE, tuple(_MOONLIGHT_SET.items())),
    Peak("DeepSeek-V3, 2048 H800", "deepseek-v3", "deepseek-v3-2048", "h800-sxm", 69 * 2**30, "arXiv:2412.19437; by hand, about 69 GiB"),
    Peak("Llama 3 405B, 16K H100, 8K tokens", "llama3.1-405b", "llama3-405b-16k", "h100-sxm", None, "arXiv:2407.21783, sec. 3.3.2"),
    Peak("Llama 3 405B, 16K H100, 128K tokens", "llama3.1-405b", "llama3-405b-long", "h100-sxm", None, "arXiv:2407.21783, sec. 3.3.2"),
)


def predicted(peak: Peak) -> tuple[float, str]:
    """Bytes at the peak of the fullest rank, or of one of the last stage, and whether the fullest fits: yes, tight or no."""
    result = derive(peak.model, peak.strategy, system=peak.system, overrides=dict(peak.settings))
    memory = result.to_json()["memory"]
    found = result.stage_numbers(result.stages[-1])["M_stage_peak"] if peak.of_last else memory["peak"]
    return float(found), str(memory["fits"])


def section() -> list[str]:
    """A table of all; published figures in GB are taken as 10^9 bytes."""
    lines = [
        "## Peaks of model cards and papers",
        "",
        "Runs whose peaks were published without a step that could be compared; GB are 10^9 bytes. All ran, or ran out "
        "of memory where the last column says so. Those of Llama 3 70B SFT are of the last stage, whose rank wrote the log.",
        "",
        "| run | published (GB) | predicted (GB) | error | symsim says | source | |",
        "|---|---|---|---|---|---|---|",
    ]
    for peak in PEAKS:
        found, fits = predicted(peak)
        published, error = (f"{peak.published / 1e9:.1f}", f"{found / peak.published - 1:+.1%}") if peak.published else ("fitted", "")
        lines.append(f"| {peak.what} | {published} | {found / 1e9:.1f} | {error} | {SAID[fits]} | {peak.by} | {peak.said} |")
    return [*lines, ""]
