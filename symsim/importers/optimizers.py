"""Names of optimizers that trainers take (Hugging Face, DeepSpeed, PyTorch), and what symsim has for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symsim.importers.keys import Fate, Keys

_OTHER = "its own passes are not counted: those of Adam are, whose states it has"
_PAGED = "pages of states that may move to the host when memory is short; all are counted on the accelerator"
_LAYERWISE = "updated a layer at a time inside backward: less by the gradients of all other layers, which are counted"
_COMPRESSED = "as after its warm-up, whose steps send whole gradients: momenta in one bit a number"
_COMPILED = "torchao compiles its update, which is tuned in the first step"
_LOCAL = "as in the long run, where one step in local_step_clipper sends, in one bit a number, and the others nothing"


@dataclass(frozen=True)
class Update:
    """strategy: options of symsim. implementation: of assume.optimizer_implementation."""

    optimizer: str = "adam"
    implementation: str = "fused"
    bits: int = 32
    fate: Fate = "mapped"
    why: str = ""

    @property
    def in_blocks(self) -> bool:
        """Whether it is one of bitsandbytes with 8 bits, which may be told otherwise of single parameters."""
        return self.bits == 8 and self.implementation == "fused" and self.optimizer != "galore"

    def apply(self, keys: Keys, key: str, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
        """Set what follows in place of another optimizer's, and say so in the key's row."""
        for states in ("optimizer_bits", "fp32_embedding_moments"):
            strategy.pop(states, None)
        strategy["optimizer"] = self.optimizer
        if self.bits != 32:
            strategy["optimizer_bits"] = self.bits
        if self.implementation != "fused":
            assumptions["optimizer_implementation"] = self.implementation
        keys.note(key, self.fate, "optimizer", self.why)


_TABLE: dict[str, Update] = {
    "adamw adam fused_adam fusedadam adamw_torch_fused adamw_apex_fused adamw_torch_xla adamw_torch_npu_fused cpuadam deepspeedcpuadam": Update(),
    "adamw_torch": Update(implementation="foreach", why="PyTorch's default on accelerators goes through all tensors at once"),
    "adamw_hf adam_for_loop": Update(implementation="for_loop", why="a tensor after the other"),
    "adamw_anyprecision stable_adamw grokadamw optimi_adamw": Update(fate="not_modelled", why=_OTHER),
    "schedule_free_adamw schedule_free_radam": Update(why="two states, as Adam's"),
    "onebitadam": Update("onebit_adam", "for_loop", why=_COMPRESSED),
    "onebitlamb": Update("onebit_lamb", "for_loop", why=_COMPRESSED),
    "zerooneadam": Update("zero_one_adam", "for_loop", why=_LOCAL),
    "lamb fusedlamb": Update("lamb"),
    "came_pytorch": Update("came"),
    "ademamix": Update("ademamix"),
    "ademamix_8bit": Update("ademamix", bits=8),
    "paged_ademamix_32bit": Update("ademamix", why=_PAGED),
    "paged_ademamix_8bit": Update("ademamix", bits=8, why=_PAGED),
    "adamw_8bit adamw_bnb_8bit adamw8bit adam8bit": Update(bits=8),
    "adamw_torch_8bit ao_adamw_8bit ao_adamw_fp8 torchao.adamw8bit torchao.adam8bit torchao.adamwfp8 torchao.adamfp8": Update(
        implementation="compiled", bits=8, why=_COMPILED
    ),
    "paged_adamw_8bit": Update(bits=8, why=_PAGED),
    "adamw_torch_4bit ao_adamw_4bit torchao.adamw4bit torchao.adam4bit": Update(implementation="compiled", bits=4, why=_COMPILED),
    "paged_adamw_32bit paged_adamw": Update(why=_PAGED),
    "sgd": Update("sgd"),
    "schedule_free_sgd": Update("sgd_momentum", why="one state, as a moment"),
    "adagrad rmsprop rmsprop_bnb rmsprop_bnb_32bit": Update("rmsprop"),
    "rmsprop_bnb_8bit": Update("rmsprop", bits=8),
    "lion lion_32bit lion_pytorch fusedlion": Update("lion"),
    "paged_lion_32bit": Update("lion", why=_PAGED),
    "lion_8bit": Update("lion", bits=8),
    "paged_lion_8bit": Update("lion", bits=8, why=_PAGED),
    "muon muonreference": Update("muon"),
    "dion": Update("muon", fate="not_modelled", why="products of few rows in place of Muon's rounds, which are counted"),
    "adafactor": Update("adafactor"),
    "galore_adafactor galore_adafactor_layerwise": Update("adafactor", fate="not_modelled", why="means of projected gradients: less than 0.1 %"),
    "galore_adamw": Update("galore"),
    "galore_adamw_8bit q_galore_adamw8bit": Update("galore", bits=8),
    "galore_adamw_layerwise": Update("galore", fate="not_modelled", why=_LAYERWISE),
    "galore_adamw_8bit_layerwise": Update("galore", bits=8, fate="not_modelled", why=_LAYERWISE),
    "apollo_adamw": Update("apollo"),
    "apollo_adamw_layerwise": Update("apollo", fate="not_modelled", why=_LAYERWISE),
    "adam_mini": Update("adam_mini"),
    "flash_adamw": Update(fate="not_modelled", why=_OTHER),
    "lomo adalomo": Update("sgd", fate="not_modelled", why="updates inside backward, so that gradients never live whole"),
}
OPTIMIZERS: dict[str, Update] = {name: update for names, update in _TABLE.items() for name in names.split()}


def of_class(path: str) -> str:
    """The name in this table of a class by its import path (torchao.optim.AdamW8bit), where its library matters to it, else of the class alone."""
    library, name = path.casefold().split(".")[0], path.casefold().rpartition(".")[2]
    return f"{library}.{name}" if f"{library}.{name}" in OPTIMIZERS else name
