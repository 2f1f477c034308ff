"""Names of optimizers that trainers take (Hugging Face, DeepSpeed, PyTorch), and what symsim has for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symsim.importers.keys import Fate, Keys

_PROJECTED = "states in projected, grouped or few parameters: less than Adam's 8 bytes a parameter, which is counted"
_OTHER = "its own passes and states are not counted: those of Adam are"
_BLOCKS = "states of 1 byte; one fp32 scale for every 256 of them (1.6 %) is not counted"
_PAGED = "pages of states that may move to the host when memory is short; all are counted on the accelerator"
_MUON = (
    "one moment; five rounds of three products on every matrix (Newton-Schulz) are not counted: less than 1 % of a step from 10^5 tokens on; "
    "embeddings and vectors have Adam's two moments"
)


@dataclass(frozen=True)
class Update:
    """strategy: options of symsim. implementation: of assume.optimizer_implementation."""

    optimizer: str = "adam"
    implementation: str = "fused"
    states: str | None = None
    fate: Fate = "mapped"
    why: str = ""

    def apply(self, keys: Keys, key: str, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
        """Set what follows, and say so in the key's row."""
        strategy["optimizer"] = self.optimizer
        if self.states is not None:
            strategy["exp_avg_dtype"] = strategy["exp_avg_sq_dtype"] = self.states
        if self.implementation != "fused":
            assumptions["optimizer_implementation"] = self.implementation
        keys.note(key, self.fate, "optimizer", self.why)


_TABLE: dict[str, Update] = {
    "adamw adam fused_adam fusedadam adamw_torch_fused adamw_apex_fused adamw_torch_xla adamw_torch_npu_fused cpuadam deepspeedcpuadam": Update(),
    "adamw_torch": Update(implementation="foreach", why="PyTorch's default on accelerators goes through all tensors at once"),
    "adamw_hf adam_for_loop": Update(implementation="for_loop", why="a tensor after the other"),
    "adamw_anyprecision stable_adamw grokadamw came_pytorch optimi_adamw ademamix lamb onebitlamb onebitadam zerooneadam adagrad fusedlamb": Update(
        fate="not_modelled", why=_OTHER
    ),
    "schedule_free_adamw schedule_free_radam": Update(fate="not_modelled", why=_OTHER),
    "adamw_8bit adamw_bnb_8bit adamw_torch_8bit ao_adamw_8bit ademamix_8bit": Update(states="fp8", why=_BLOCKS),
    "paged_adamw_8bit paged_ademamix_8bit": Update(states="fp8", why=f"{_BLOCKS}; {_PAGED}"),
    "adamw_torch_4bit ao_adamw_4bit": Update(states="fp8", fate="not_modelled", why="states of 1/2 byte, of which symsim counts 1"),
    "ao_adamw_fp8": Update(states="fp8", why=_BLOCKS),
    "paged_adamw_32bit paged_adamw paged_ademamix_32bit": Update(why=_PAGED),
    "sgd schedule_free_sgd": Update(optimizer="sgd"),
    "rmsprop rmsprop_bnb rmsprop_bnb_32bit": Update(optimizer="sgd_momentum", why="one moment"),
    "rmsprop_bnb_8bit": Update(optimizer="sgd_momentum", fate="not_modelled", why="one moment of 1 byte; 4 are counted"),
    "lion lion_32bit lion_pytorch paged_lion_32bit fusedlion": Update(optimizer="sgd_momentum", why="one moment, as Lion keeps"),
    "lion_8bit paged_lion_8bit": Update(optimizer="sgd_momentum", fate="not_modelled", why="one moment of 1 byte; 4 are counted"),
    "muon dion": Update(optimizer="sgd_momentum", fate="not_modelled", why=_MUON),
    "adafactor galore_adafactor galore_adafactor_layerwise": Update(
        optimizer="sgd", why="means of rows and columns, below 0.1 % of the parameters, in place of moments; its passes for them are not counted"
    ),
    "galore_adamw galore_adamw_8bit galore_adamw_layerwise galore_adamw_8bit_layerwise q_galore_adamw8bit": Update(
        fate="not_modelled", why=_PROJECTED
    ),
    "apollo_adamw apollo_adamw_layerwise adam_mini flash_adamw": Update(fate="not_modelled", why=_PROJECTED),
    "lomo adalomo": Update(optimizer="sgd", fate="not_modelled", why="updates inside backward, so that gradients never live whole"),
}
OPTIMIZERS: dict[str, Update] = {name: update for names, update in _TABLE.items() for name in names.split()}
