"""What is common to both of ms-swift's programs: the arguments as they are read, the rows of a micro-batch, and types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from symsim.importers.keys import Entry, Keys
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.strategy import Strategy


@dataclass
class Reading:
    """What follows from the arguments read so far. whole_experts: no tensor parallelism inside experts by default, whatever the version.
    passed: arguments of Megatron-LM inside others (megatron_extra_kwargs). further: rows of a file that an argument names. answered: rows are
    prompts with what the model answered (GRPO, PPO)."""

    keys: Keys
    version: str
    architecture: Architecture | None
    whole_experts: bool = False
    strategy: dict[str, Any] = field(default_factory=dict)
    assumptions: dict[str, str] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    further: list[Entry] = field(default_factory=list)
    answered: bool = False

    @property
    def experts(self) -> bool:
        """Whether the model has experts, or may have."""
        return self.architecture is None or self.architecture.moe is not None

    def default(self, seed: Any, head: Any) -> Any:
        """The default of the version."""
        return seed if self.version == "seed" else head

    def put(self, key: str, to: str, value: Any, given: bool, why: str = "") -> None:
        """Set an option or an assumption. What follows from a default is written out where symsim's own is another."""
        if value is None:
            return
        place, name = (self.assumptions, to.removeprefix("assume.")) if to.startswith("assume.") else (self.strategy, to)
        text = str(value).lower() if place is self.assumptions else value
        if given:
            place[name] = text
            self.keys.note(key, to=to, why=why)
        elif text != own(to):
            place[name] = text
            self.keys.note(key, "derived", to, why or f"default of ms-swift ({self.version})")


def own(to: str) -> Any:
    """Symsim's default of an option or an assumption."""
    name = to.removeprefix("assume.")
    return ASSUMPTIONS[name].default if name != to else Strategy.model_fields[to].default


def rows(r: Reading) -> None:
    """Tokens of a row: a bin of packed samples, or the longest sample."""
    keys = r.keys
    lengths = {key: keys.integer(key, to="seq_length", least=1) for key in ("packing_length", "max_length", "seq_length")}
    packed = bool(keys.flag("packing"))
    order = ("packing_length", "max_length", "seq_length") if packed else ("max_length", "seq_length", "packing_length")
    used = next((key for key in order if lengths[key] is not None), None)
    if used is None:
        keys.note("max_length", "derived", "seq_length", "the model's longest there; symsim's own seq_length until one is set")
    else:
        longest = "" if packed else "samples are at most so long, and every row is timed at this length"
        r.put(used, "seq_length", lengths[used] + _answer(r), True, _PROMPTS if r.answered else longest)
        for key in order:
            if key != used and lengths[key] is not None:
                keys.note(key, "no_cost_effect", why=f"{used} decides")
    if not packed and keys.has("packing"):
        keys.note("packing", "no_cost_effect", why="off at this value")
    free = keys.flag("padding_free")
    if free is not None:
        said = "rows of their own lengths, without padding" if free or packed else "rows padded to the longest of a micro-batch"
        keys.note("padding_free", "no_cost_effect" if packed else "not_modelled", why=f"{said}; every row is timed at seq_length")


_PROMPTS = "prompts are at most so long, and every row is timed at this length and max_completion_length"


def _answer(r: Reading) -> int:
    """Tokens that the model may have answered in a row, which max_length does not count (ms-swift's GRPO trainers, _template_context)."""
    if not r.answered:
        return 0
    length = r.keys.integer("max_completion_length", 512, to="seq_length", least=1)
    if "max_completion_length" not in r.keys.given:
        r.keys.note("max_completion_length", "derived", "seq_length", f"{length} by default")
    return int(length)


def precision(r: Reading) -> str:
    """The type that products run in: bf16 or fp16, as an argument says or config.json's, which is taken to be bf16."""
    keys = r.keys
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    stored = keys.choice("torch_dtype", {**names, **{f"torch.{name}": short for name, short in names.items()}})
    half, brain = keys.flag("fp16"), keys.flag("bf16")
    chosen = "fp16" if half else "bf16" if brain or stored in (None, "bf16") else "fp16"
    told = next((key for key, value in (("fp16", half), ("bf16", brain), ("torch_dtype", stored)) if value), None)
    if told is not None:
        why = "weights in fp32 train in fp16 there" if told == "torch_dtype" and stored == "fp32" else ""
        r.put(told, "precision", chosen, True, why)
    for key, value in (("torch_dtype", stored), ("fp16", half), ("bf16", brain)):
        if value is not None and key != told:
            keys.note(key, "no_cost_effect", why=f"{told} decides" if told is not None else "off at this value")
    return chosen


def own_type(r: Reading) -> bool:
    """Whether adapters are told to be of the type that products run in, so that nothing is cast for them."""
    key, names = "lora_dtype", {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
    if not r.keys.has(key) or names.get(str(r.keys.given[key].value).removeprefix("torch.")) != r.strategy.get("precision", "bf16"):
        return False
    r.keys.note(key, "no_cost_effect", why="the type that products run in: nothing is cast for adapters")
    return True
