"""torch.compile, as trainers ask for it: what lies between two products is one kernel (fusion=compile)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symsim.importers.keys import Keys

# backends of torch.compile that fuse nothing
_TRACING = ("eager", "aot_eager", "aot_eager_decomp_partition", "no")
_LAYERS = "one kernel for what lies between two products"
_AS_IT_IS = "te: kernels fused already"


def compiled(keys: "Keys", strategy: dict[str, Any], switch: str, *named: str) -> None:
    """fusion=compile where the switch is on, or one of the keys that turn it on by naming a backend or a mode (TrainingArguments).

    The switch may be `auto`, which asks for it where PyTorch can. Of TransformerEngine's kernels nothing is left to fuse.
    """
    asked = []
    if keys.has(switch) and str(keys.given[switch].value).casefold() == "auto":
        asked.append(switch)
    elif keys.flag(switch, False, to="fusion"):
        asked.append(switch)
    given = [key for key in named if keys.has(key) and keys.text(key)]
    tracing = [key for key in given if str(keys.given[key].value) in _TRACING]
    asked = [] if tracing else asked + given
    for key in tracing:
        keys.note(key, "no_cost_effect", why="a backend that fuses nothing")
    for key in asked:
        of_compiler(keys, strategy, key)


def of_compiler(keys: "Keys", strategy: dict[str, Any], key: str) -> None:
    """The row of a key that compiles the layers."""
    if strategy["fusion"] == "te":
        keys.note(key, "derived", "fusion", _AS_IT_IS)
    else:
        strategy["fusion"] = "compile"
        keys.note(key, to="fusion", why=_LAYERS)
