"""What docs/accuracy.md says of systems of one chip, or of one board, host or network: which coefficients they share, and why the others differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from symsim.inputs.curves import SYMBOLS
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import symbol_values
from symsim.inputs.systems import load_system

# of a system's symbols those that are no rate, size or price of a data sheet
_COEFFICIENT = re.compile(r"(eta|alpha|lambda|C)_[0-9].*|t_launch|t_gather|share_fp8")


@dataclass(frozen=True)
class Twins:
    """Systems that share coefficients, what makes them twins, and for patterns of symbols why these differ all the same."""

    systems: tuple[str, ...]
    why: str
    apart: Mapping[str, str]


TWINS = (
    Twins(
        ("h100-sxm", "h200-sxm", "h800-sxm"),
        "one chip",
        {
            r"eta_1_(deepep.*|all_gather|reduce_scatter|all_reduce|all_to_all|p2p|broadcast)": "NVLink of h800-sxm has 200 of 450 GB/s, and "
            "DeepEP's table is of that machine",
            r"eta_2_all_to_all": "DeepEP's table of h800-sxm; the other two have what steps of h100-sxm say of NCCL",
        },
    ),
    Twins(
        ("h100-sxm", "h20"),
        "one board, host and network",
        {
            r"tau_.*|omega_.*": "the multiprocessors of h20 multiply a quarter as fast, which hides exponentials",
            r"share_fp8|psi_.*": "what clocks under a power limit take off products of h100-sxm, which those of h20 do not reach",
        },
    ),
    Twins(
        ("b200-sxm", "gb200-nvl72"),
        "one chip, at 1000 W and at 1200 W",
        {
            r"eta_gemm|eta_group|share_fp8": "steps of each, of other software (SimuMax in bf16; Megatron-Bridge in FP8) at other clocks; "
            "b200-sxm has no steps in FP8 that are fitted, and none is taken off",
            r"eta_fa|eta_fab|zeta_fa|tau_.*": "single calls of each, by PyTorch and by cuDNN; those of b200-sxm at the clock of its steps",
            r".*_1_(deepep|hybridep)_.*|eta_1_all_reduce": "calls of each, of 8 ranks and of racks",
            r"eta_1_all_to_all": "what tokens wait for one another in steps of b200-sxm; its single calls for the other, of which no "
            "step says otherwise",
            r"t_launch": "hosts: x86 and Grace",
        },
    ),
    Twins(
        ("gb200-nvl72", "gb300-nvl72"),
        "one rack, host and exchange; the next chip",
        {r"eta_gemm|eta_group": "steps of each", r"(eta_fa|zeta|tau|omega|psi|kappa|phi)_?.*": "tables of cuDNN on each"},
    ),
    Twins(
        ("gb300-nvl72", "b300-sxm"),
        "one chip, at 1400 W and at 1100 W",
        {
            r".*_1_(deepep|hybridep)_.*|eta_1_(all_reduce|all_to_all)": "those of b200-sxm: a node of 8 ranks, not a rack",
            r"t_launch": "hosts: Grace and x86",
        },
    ),
    Twins(
        ("b200-sxm", "b300-sxm"),
        "one board and host; the next chip",
        {
            r"eta_gemm|eta_group|share_fp8": "those of gb300-nvl72, the same chip",
            r"(eta_fa|zeta|tau|omega|psi|kappa|phi)_?.*": "those of gb300-nvl72, the same chip",
        },
    ),
    Twins(
        ("a100-sxm-80", "a800-sxm"),
        "one chip, with links of 300 and 200 GB/s",
        {r"t_gather": "fitted to a800-sxm's steps, whose modules gather in Python; estimated for the other"},
    ),
)


def coefficients(name: str) -> dict[str, float]:
    """The coefficients of a system by symbol, the FP8 share among them (1 where nothing is taken off)."""
    system = load_system(name)
    found = {symbol: float(value) for symbol, value in symbol_values(system, Strategy()).items()}
    share = system.accelerator.fp8_share
    found["share_fp8"] = float(share.value) if share is not None else 1.0
    return {symbol: value for symbol, value in found.items() if symbol in SYMBOLS or _COEFFICIENT.fullmatch(symbol)}


def differing(twins: Twins) -> tuple[list[str], list[str]]:
    """Symbols that all of these systems give: those with one value, and those with several."""
    found = [coefficients(name) for name in twins.systems]
    every = [symbol for symbol in found[0] if all(symbol in one for one in found)]
    alike = [symbol for symbol in every if len({one[symbol] for one in found}) == 1]
    return alike, [symbol for symbol in every if symbol not in alike]


def section() -> list[str]:
    """Which coefficients twins share, and why the others are not the same."""
    lines = [
        "## Twins",
        "",
        "Systems of one chip, board, host or network have one value of a coefficient, but for those named here.",
        "",
        "| systems | twins as | coefficients alike | apart | because |",
        "|---|---|---|---|---|",
    ]
    for twins in TWINS:
        alike, apart = differing(twins)
        for pattern, reason in twins.apart.items():
            own = [f"`{symbol}`" for symbol in apart if re.fullmatch(pattern, symbol)]
            lines.append(f"| {', '.join(twins.systems)} | {twins.why} | {len(alike)} | {', '.join(own)} | {reason} |")
    return [*lines, ""]
