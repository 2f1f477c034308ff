"""A utilisation above 100 %: no accelerator does that, so a convention counts more than is computed. Which one, in a sentence."""

from __future__ import annotations

from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.frameworks.narrow import recipe_of

# assumption, the choice that counts what is computed, and what another choice counts beside it
CONVENTIONS = (
    ("mfu_windows", "computed", "keys outside of windows and chunks too, which no kernel computes"),
    ("causal", "exact", "keys too that the causal mask hides, most of which no kernel computes"),
)


def above_peak(result: Evaluation) -> str:
    """Which convention makes MFU or HFU exceed 1, and what to set; empty where neither does."""
    if result.system is None or max(_both(result)) <= 1:
        return ""
    over = " and ".join(f"{name} {share:.1%}" for name, share in zip(("MFU", "HFU"), _both(result)) if share > 1)
    said = f"{over.replace('%', ' %')} {'are' if ' and ' in over else 'is'} above 100 %: "
    changed, why = dict(result.assumptions), []
    for name, choice, beyond in CONVENTIONS:
        if changed[name] == choice:
            continue
        tried = {**changed, name: choice}
        if _both(_again(result, tried)) == _both(_again(result, changed)):
            continue
        why.append(f"assume.{name}={changed[name]} counts {beyond}")
        changed = tried
        if max(_both(_again(result, changed))) <= 1:
            break
    if why:
        mfu, hfu = _both(_again(result, changed))
        sets = " ".join(f"--set assume.{n}={v}" for n, v in changed.items() if v != result.assumptions[n])
        said += f"{'; '.join(why)}. {sets} gives {100 * mfu:.1f} % and {100 * hfu:.1f} %"
        if max(mfu, hfu) <= 1:
            return said + "."
        said += "; besides, "
    numbers = result.values
    precision = result.strategy.precision
    recipe = recipe_of(result.strategy)
    if recipe is not None:
        ratio = float(numbers[f"Phi_{recipe.operand}"] / numbers["Phi"])
        return said + f"they are of the {precision} peak, and fp8={result.strategy.fp8} multiplies at {ratio:.2f} times that."
    return said + f"the system's kernels run above its {precision} peak; check its efficiencies and peaks."


def _both(result: Evaluation) -> tuple[float, float]:
    return float(result.step_numbers["mfu"]), float(result.step_numbers["hfu"])


def _again(result: Evaluation, assumptions: dict[str, str]) -> Evaluation:
    """The same configuration under other conventions, which change no second of it."""
    if assumptions == result.assumptions:
        return result
    return evaluated(result.architecture, result.strategy, assumptions, result.overrides, result.system)
