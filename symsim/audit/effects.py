"""Measures what each assumption moves, and by how much, on three models that many know: `python docs/remake.py` stores it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.effects import QUANTITIES, Effect

SYSTEM = "h100-sxm"
CASES = {
    "gpt3-175b": "tp=8,sp=true,pp=8,dp=8,num_microbatches=64,recompute=selective,fusion=te",
    "llama3-70b": "tp=8,sp=true,cp=2,pp=4,dp=8,num_microbatches=32,seq_length=8192,overlap_grad_reduce=true,overlap_param_gather=true",
    "deepseek-v3": "tp=2,sp=true,pp=8,ep=32,dp=64,num_microbatches=32,recompute=selective,recompute_modules=core_attn+mlp,fp8=blockwise",
}


def alternatives() -> Iterator[tuple[str, str]]:
    """Every choice of every assumption but its default."""
    return ((name, choice) for name, known in ASSUMPTIONS.items() for choice in known.choices if choice != known.default)


def measure(name: str, choice: str, defaults: Mapping[str, Mapping[str, float]]) -> Effect:
    """What a choice moves in the three cases; defaults: their numbers (`numbers`)."""
    from symsim.errors import InputError

    moves, refused = {}, []
    for model, before in defaults.items():
        try:
            after = numbers(model, {f"assume.{name}": choice})
        except InputError as error:
            refused.append(f"{model}: {error}")
            continue
        found = {q: float(f"{after[q] / before[q] - 1:.3g}") for q in QUANTITIES if before[q] and abs(after[q] / before[q] - 1) >= 5e-5}
        if found:
            moves[model] = found
    return Effect(assumption=name, choice=choice, moves=moves, refused="; ".join(refused))


def numbers(model: str, overrides: Mapping[str, str]) -> dict[str, float]:
    """The quantities of one case."""
    from symsim.api.python import derive

    found = derive(model, CASES[model], overrides=dict(overrides), system=SYSTEM).to_json()
    flops = found["flops"]
    sent = sum(m["send_bytes"] * m["count"] for m in found["messages"])
    saved = max(found["activations"]["saved_per_microbatch"])
    counted = (flops["forward"], flops["backward"], flops["recompute"], sent, saved, found["memory"]["peak"], found["time"]["step"], found["mfu"])
    return dict(zip(QUANTITIES, map(float, counted)))
