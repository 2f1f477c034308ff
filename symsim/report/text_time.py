"""What `symsim eval -y SYSTEM` adds: the step, where its seconds and its bytes go, the slowest stage and its kernels."""

from __future__ import annotations

from collections.abc import Mapping

from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import BYTE
from symsim.report.amounts import THIN, human, plain, rate, seconds
from symsim.report.columns import stroke, table, wrapped
from symsim.report.kernels import Kernel, achieved, often
from symsim.report.step import LAUNCHES, MEMORY_PARTS, Step, between, stage_seconds, tags
from symsim.report.totals import left_out, ranges, thinned

_MOST = 10  # kernels shown
_BAR = 20


def blocks(step: Step) -> list[str]:
    """The answer first, then where it comes from; each a block of lines of at most 80 characters."""
    return [_answer(step), _where(step), _kernels(step), _stage_times(step), _bytes(step), _stage_memory(step), _tags(step)]


def answer_rows(step: Step) -> list[tuple[str, str, str]]:
    """What a step takes, does and needs: its name, its number, and what is said of it."""
    numbers = step.result.step_numbers
    ranks, rank_tokens = int(numbers["world"]), step.number("tokens_per_second") / numbers["world"]
    peak = rate(float(numbers["Phi"]), "FLOP/s")
    where = f", stage {step.fullest}" if step.depth > 1 else ""
    rows = [
        ("one step takes", seconds(numbers["t_step"]), f"{ranks:,} accelerator{'s' if ranks > 1 else ''}"),
        ("tokens a second", f"{step.number('tokens_per_second'):,.0f}", f"{rank_tokens:,.1f} on each accelerator"),
        ("MFU", _percent(step.number("mfu")), f"FLOPs the model needs, of {peak} each"),
        ("HFU", _percent(step.number("hfu")), "FLOPs executed, recomputation included, of the same"),
        ("peak memory", human(step.peak(step.fullest), BYTE), f"of {human(step.capacity, BYTE)}{where}: {_ascii(step.verdict)}"),
    ]
    for name, what, unit, source in (
        ("cost_per_trillion_tokens", "cost", "USD", "a trillion tokens, at the system's price"),
        ("energy_per_trillion_tokens", "energy", "MWh", "a trillion tokens, at the system's power"),
    ):
        if name in numbers:
            rows.append((what, f"{digits_of(step.number(name))} {unit}", source))
    return rows


def _answer(step: Step) -> str:
    rows = answer_rows(step)
    wide = [max(len(r[c]) for r in rows) for c in range(2)]
    lines = ["Step"]
    for name, amount, said in rows:
        lines.append(wrapped(f"  {name:<{wide[0]}}  {amount:>{wide[1]}}  {said}", hanging=6 + sum(wide)))
    if step.interval is not None:
        lines.insert(2, wrapped(f"  {between(step.interval)}", hanging=4))
    if step.above_peak:
        lines.append(wrapped(f"  {step.above_peak}", hanging=4))
    return "\n".join(lines)


def digits_of(value: float) -> str:
    """Four digits, thousands apart by commas."""
    return f"{float(f'{value:.4g}'):,.0f}" if abs(value) >= 1000 else plain(value)


def _ascii(text: str) -> str:
    return text.translate({0x2013: "-", 0x2212: "-", ord(THIN): " "})


def title(kernel: Kernel) -> str:
    """Block and operation; an operation that begins with the block's name says it already."""
    block = in_words(kernel.block)
    return kernel.operation if kernel.operation.startswith(f"{block}.") else f"{block} {kernel.operation}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _where(step: Step) -> str:
    most = max(p.share for p in step.parts)
    rows = [[p.name, seconds(p.seconds), _percent(p.share), stroke(p.share / most, _BAR).ljust(_BAR)] for p in step.parts if p.seconds]
    rows.append(["one step", seconds(step.number("t_step")), _percent(sum(p.share for p in step.parts)), " " * _BAR])
    return table("Where the time of a step goes", ["", "time", "share", ""], rows)


def _kernels(step: Step) -> str:
    micro = float(step.stage(step.slowest)["t_stage"])
    rows = [[f"{title(k)} {k.phase}", often(k), seconds(k.total), _percent(k.total / micro), k.bound, achieved(k)] for k in step.kernels[:_MOST]]
    shown = sum(k.total for k in step.kernels[:_MOST])
    rest = sum(k.total for k in step.kernels) - shown
    if len(step.kernels) > _MOST:
        rows.append([f"{len(step.kernels) - _MOST} other kernels", "", seconds(rest), _percent(rest / micro), "", ""])
    exposed = step.exposed(step.slowest)
    for what, time in (("messages that nothing hides", exposed), (LAUNCHES, step.launching)):
        if time > 1e-9 * micro:
            rows.append([what, "", seconds(time), _percent(time / micro), "", ""])
    of = f" of stage {step.slowest}" if step.depth > 1 else ""
    said = (
        "dgrad, wgrad: gradients of inputs and of weights. Bound: which alone would take longest: multiplying, HBM traffic, or latency (starting, "
        "and walking along rows)."
    )
    made = table(f"Kernels{of}, one micro-batch, longest first", ["", "calls", "time", "share", "bound", "reaches"], rows)
    return "\n".join([wrapped(_ascii(step.why_slowest)), "", made, wrapped(said, "  ", hanging=2)])


def _stage_times(step: Step) -> str:
    names = {
        "forward": "forward",
        "input_gradients": "input grads",
        "weight_gradients": "weight grads",
        "recompute": "recompute",
        "tail": "after, a step",
    }
    found = stage_seconds(step)
    shown = [n for n in names if any(f[n] for f in found.values())]
    rows = _alike({stages: [seconds(f[n]) if f[n] else "-" for n in shown] for stages, f in found.items()})
    return "\n".join(
        [
            table("Seconds of each stage, one micro-batch (messages that nothing hides included)", ["stage", *(names[n] for n in shown)], rows),
            wrapped("After: gradients and parameters over data ranks, and the optimizer, once a step.", "  ", hanging=2),
        ]
    )


def _alike(rows: Mapping[tuple[int, ...], list[str]]) -> list[list[str]]:
    """Rows with the numbers of their stages in front, equal ones together."""
    classes: dict[tuple[str, ...], list[int]] = {}
    for stages, row in rows.items():
        classes.setdefault(tuple(row), []).extend(stages)
    return [[_ascii(ranges(sorted(members))), *row] for row, members in classes.items()]


def _bytes(step: Step) -> str:
    parts, peak = step.memory(step.fullest), step.peak(step.fullest)
    most = max(parts.values())
    rows = [[MEMORY_PARTS[p], human(n, BYTE), _percent(n / peak), stroke(n / most, _BAR).ljust(_BAR)] for p, n in parts.items() if n]
    rows.append(["peak", human(peak, BYTE), "100.0 %", " " * _BAR])
    of = f" of stage {step.fullest}, the fullest," if step.depth > 1 else ""
    alive = plain(step.stage(step.fullest)["alive_i"])
    held = f"Activations: of {alive} micro-batch{'es' if alive != '1' else ''} at once."
    return "\n".join(
        [
            table(f"Where the memory of one rank{of} goes", ["", "bytes", "share", ""], rows),
            wrapped(f"The peak is reached in: {step.moment(step.fullest)}. {held}", "  ", hanging=2),
        ]
    )


def _stage_memory(step: Step) -> str:
    if step.depth == 1:
        return ""
    every = step.alike_in_memory
    found = {stages: step.memory(stages[0]) for stages in thinned(every)}
    shown = [p for p in MEMORY_PARTS if any(f[p] for f in found.values())]
    cells = {stages: [*(human(f[p], BYTE) for p in shown), human(step.peak(stages[0]), BYTE)] for stages, f in found.items()}
    made = table("Memory of one rank of each stage", ["stage", *shown, "peak"], _alike(cells))
    return f"{made}\n {left_out(every)}".rstrip()


def _tags(step: Step) -> str:
    known = tags(step.system)
    said = ", ".join(f"{n} {tag}" for tag, n in known.items())
    return wrapped(f"Numbers of {step.system.name}: {said}. 'symsim derive' lists each with its source.", hanging=2)
