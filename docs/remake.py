"""Remake docs/strategy.md, docs/assumptions.md, docs/accuracy.md, and what the other pages show of output (`docs/guide.py`): `python docs/remake.py`.

The accuracy page compares every case of ../shared/oracle; where that is absent, the page is left as it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from symsim.api.listing import values_of  # noqa: E402
from symsim.audit.effects import SYSTEM  # noqa: E402
from symsim.inputs.assumptions import ASSUMPTIONS  # noqa: E402
from symsim.inputs.spellings import ALIASES  # noqa: E402
from symsim.inputs.strategy import Strategy  # noqa: E402


def strategy_page() -> str:
    """Every option: name, choices, default, meaning, and the long names that mean it."""
    lines = [
        "# Strategy",
        "",
        "Inline (`-s tp=8,pp=4,recompute=selective,recompute_modules=core_attn+mlp`) or a YAML file with the same keys.",
        "Every option may be an axis of a [sweep](sweep.md). Made by `python docs/remake.py` from `symsim/inputs/strategy.py`.",
        "",
        "| option | values | default | meaning | also accepted |",
        "|---|---|---|---|---|",
    ]
    for name, field in Strategy.model_fields.items():
        other = ", ".join(f"`{long}`" for long, short in ALIASES.items() if short == name)
        lines.append(
            f"| `{name}` | {values_of(field.annotation)} | {_default(field.default)} | {(field.description or '').replace('|', '&#124;')} | {other} |"
        )
    lines += ["", "`world=64` (or `world_size`) gives the number of ranks: dp is what tp, cp and pp leave of them, and a dp beside it must agree."]
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    if value is None:
        return ""
    return "+".join(value) if isinstance(value, tuple) else str(value).lower() if isinstance(value, bool) else str(value)


def effects() -> None:
    """derivations/effects.json, and docs/assumptions.md from it."""
    from symsim.audit.effects import CASES, alternatives, measure, numbers
    from symsim.inputs.effects import said

    before = {model: numbers(model, {}) for model in CASES}
    found = [measure(name, choice, before) for name, choice in alternatives()]
    rows = ",\n".join(f"  {json.dumps({k: v for k, v in e.model_dump().items() if v != ''})}" for e in found)
    head = f'"system": {json.dumps(SYSTEM)}, "cases": {json.dumps(CASES)}'
    (ROOT / "derivations" / "effects.json").write_text(f'{{{head}, "effects": [\n{rows}\n]}}\n')
    lines = [
        "# Assumptions",
        "",
        "What follows neither from a layer's einsums nor from a strategy's placement is a named assumption, which `--set assume.NAME=VALUE`",
        f"overrides and every report prints. What the alternatives move, one at a time, on {SYSTEM}, of",
        "",
        *(f"- `{model}`: `{strategy}`" for model, strategy in CASES.items()),
        "",
        "Made by `python docs/remake.py`; `symsim list assumptions` shows the same.",
        "",
        "| assumption | default | meaning | source | an alternative moves |",
        "|---|---|---|---|---|",
    ]
    for name, known in ASSUMPTIONS.items():
        moved = "<br>".join(said(e).replace("|", "&#124;") for e in found if e.assumption == name)
        lines.append(f"| `{name}` | {known.default} | {known.meaning.replace('|', '&#124;')} | {known.source.replace('|', '&#124;')} | {moved} |")
    (ROOT / "docs" / "assumptions.md").write_text("\n".join(lines) + "\n")


def comparisons() -> Iterator[tuple[str, str, str, Any, Any, str]]:
    """(file, what, case, expected, computed, reason of an exception) of every comparison."""
    import comm_cases
    import hf_cases
    import megatron_cases as megatron
    import param_cases
    from shared import cases

    for name, case in cases("params.json", "models"):
        yield "params.json", "parameters: total, active, by module", name, *param_cases.parameters(name, case), ""
    for name, flops, computed, reason in hf_cases.flop_cases():
        yield "flops.json", "FLOPs by module and phase", name, flops, computed(), reason
    for name, kept, computed, reason in hf_cases.activation_cases():
        yield "activations.json", "saved bytes (`eager`), polynomials in b and s", name, kept, computed(), reason
    for case in cases("comm.json", "cases"):
        expected, ours = comm_cases.KINDS[case["kind"]](case)
        yield "comm.json", f"messages: {case['kind']}", case["name"], expected, ours, ""
    for section, what, compare, reasons in (
        ("params", "parameters of every rank: total, expert, summed over TP", megatron.parameters, megatron.PARAMETER_EXCEPTIONS),
        ("ddp", "gradient buffers and buckets", megatron.buffers, {}),
        ("trace", "collectives of traced layers", megatron.collectives, megatron.MESSAGE_EXCEPTIONS),
        ("trace", "FLOPs of traced layers", megatron.flops, {}),
        ("trace", "saved bytes (te), fused traces", megatron.saved, {}),
    ):
        for case in cases("megatron.json", "sections", section):
            if compare is not megatron.saved or case["name"].startswith("fused_"):
                expected, ours = compare(case)
                yield "megatron.json", what, case["name"], expected, ours, reasons.get(case["name"], "")


def accuracy_page() -> str:
    import accuracy_mixers

    groups: dict[tuple[str, str], list[tuple[str, bool, str]]] = {}
    for file, what, name, expected, computed, reason in comparisons():
        groups.setdefault((file, what), []).append((name, expected == computed, reason))
    lines = [
        "# Accuracy",
        "",
        "Every case of the oracles, compared as integers: equal means equal, not close. Made by `python docs/remake.py`; the same",
        "comparisons run as tests.",
        "",
        "| oracle | compared | cases | equal | exceptions |",
        "|---|---|---|---|---|",
    ]
    for (file, what), rows in groups.items():
        equal = sum(same for _, same, _ in rows)
        lines.append(f"| {file} | {what} | {len(rows)} | {equal} | {len(rows) - equal or ''} |")
    total = [r for rows in groups.values() for r in rows]
    lines += [f"| all | | {len(total)} | {sum(s for _, s, _ in total)} | {sum(not s for _, s, _ in total)} |", "", "## Exceptions", ""]
    for (file, what), rows in groups.items():
        for name, same, reason in rows:
            if not same:
                lines.append(f"- {file}, {what}, `{name}`: {reason or '**unexplained**'}")
    lines += [
        "",
        "Published parameter totals (`derivations/published_totals.yaml`) are compared by `tests/test_published_totals.py`; all are equal.",
        "",
        accuracy_mixers.section(),
    ]
    return "\n".join(lines)


def main() -> None:
    import accuracy_measured
    import guide
    from shared import SHARED

    (ROOT / "docs" / "strategy.md").write_text(strategy_page())
    compared = (SHARED / "oracle").is_dir() and (SHARED / "measured").is_dir()
    # it makes the spreads that the intervals of all other pages stand on
    measured = accuracy_measured.section(ROOT / "docs") if compared else ""
    effects()
    guide.main()
    if compared:
        (ROOT / "docs" / "accuracy.md").write_text(accuracy_page() + "\n" + measured)
    else:
        print("docs/accuracy.md is left as it is: ../shared is not on this machine", file=sys.stderr)


if __name__ == "__main__":
    main()
