"""What each assumption moves, and by how much, on three models that many know: derivations/effects.yaml, made by `python docs/remake.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict

from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.reading import parse_yaml, read_text
from symsim.inputs.shipped import derivations_directory
from symsim.inputs.validation import validate

SYSTEM = "h100-sxm"
CASES = {
    "gpt3-175b": "tp=8,sp=true,pp=8,dp=8,num_microbatches=64,recompute=selective,fusion=te",
    "llama3-70b": "tp=8,sp=true,cp=2,pp=4,dp=8,num_microbatches=32,seq_length=8192,overlap_grad_reduce=true,overlap_param_gather=true",
    "deepseek-v3": "tp=2,sp=true,pp=8,ep=32,dp=64,num_microbatches=32,recompute=selective,recompute_modules=core_attn+mlp,fp8=blockwise",
}
QUANTITIES = {
    "forward": "FLOPs of a forward",
    "backward": "FLOPs of a backward",
    "recompute": "FLOPs computed again",
    "messages": "bytes handed to messages",
    "saved": "saved bytes of a micro-batch",
    "peak": "peak memory",
    "step": "time of a step",
    "mfu": "MFU",
}


class Effect(BaseModel):
    """One alternative to a default: by quantity the change over the default's number, a share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    assumption: str
    choice: str
    moves: dict[str, dict[str, float]]
    refused: str = ""


class File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    cases: dict[str, str]
    effects: tuple[Effect, ...]


def stored() -> File:
    """The effects that were measured last."""
    path = derivations_directory() / "effects.yaml"
    document = parse_yaml(read_text(path), str(path))
    return validate(File, document.data, document.where, document)


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


def said(effect: Effect) -> str:
    """One line: half: forward -2.1 % gpt3-175b, -5.3 % llama3-70b; step ..."""
    by_quantity = {q: [f"{100 * m[q]:+.2g} % {model}" for model, m in effect.moves.items() if q in m] for q in QUANTITIES}
    parts = [f"{q} {', '.join(amounts)}" for q, amounts in by_quantity.items() if amounts]
    if effect.refused and not parts:
        return f"{effect.choice}: refused in these cases"
    return f"{effect.choice}: {'; '.join(parts) or 'moves none of the three'}"
