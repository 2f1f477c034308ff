"""Writes tuning.json beside this file: what transformers' modules under PyTorch count where not all parameters are trained.

    python tests/oracle/tuning.py

Adapters are modules of two linear maps (y = x W + scale (x A) B, dropout on their input as it runs on an accelerator: a mask of bytes),
put in place of linear layers by name, as peft does; of magnitudes (DoRA) and of weights in 4 bits they are peft's and bitsandbytes' own, which
have to be there. Of every case: parameters, those that are trained, elements of gradients, bytes of Adam's
states, FLOPs of forward and backward (torch.utils.flop_counter), and bytes of what autograd keeps alive between them, parameters aside; of
weights in 4 bits those of all weights with their scales in place of FLOPs, which are inside kernels of their own there.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bitsandbytes
import peft
import torch
import transformers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

HERE = Path(__file__).parent
COMMON = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "tie_word_embeddings": False, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
CONFIGS = {
    "llama": COMMON,
    "mixtral": {**COMMON, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None, "router_aux_loss_coef": 0.0},
    "llama seq_cls": {**COMMON, "pad_token_id": 0, "num_labels": 3},
    "llama token_cls": {**COMMON, "num_labels": 5},
    "llama wide": {**COMMON, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2},
    "gpt2": {
        "vocab_size": 256,
        "n_embd": 64,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 128,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
}
# of other heads than the vocabulary's, and the shape of their labels
HEADS = {
    "llama seq_cls": (transformers.AutoModelForSequenceClassification, lambda rows, columns: (rows,)),
    "llama token_cls": (transformers.AutoModelForTokenClassification, lambda rows, columns: (rows, columns)),
}
DTYPES = {"gpt2": torch.float32}  # in which a norm's statistics are fp32 on a processor too
EXPERTS = {"mixtral": {"experts_implementation": "grouped_mm"}}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LINEAR = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
# by patterns of names, of which the first counts, and as symsim has them
RANKS = {"model.layers.3.self_attn.q_proj": 24, "q_proj": 16, r"layers\.[01]\..*_proj": 2, "down_proj": 1, "k_proj": 4}
RANKS_HERE = ["layers.3.q_proj=24", "q_proj=16", "layers.0-1=2", "down_proj=1", "k_proj=4"]
BATCH, LENGTH = 2, 32


class Adapted(nn.Module):
    """A linear layer with an adapter of rank r; dropout above 0 keeps a mask of bytes."""

    def __init__(self, base: nn.Linear, r: int, dropout: float):
        super().__init__()
        self.base_layer, self.dropout = base, dropout
        kind = {"bias": False, "dtype": base.weight.dtype}
        self.lora_A, self.lora_B = nn.Linear(base.in_features, r, **kind), nn.Linear(r, base.out_features, **kind)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.base_layer(x)
        if self.dropout:
            x = torch.native_dropout(x, self.dropout, True)[0]
        return result + self.lora_B(self.lora_A(x)) * 2.0


def adapted(model: nn.Module, names: list[str], r: int, dropout: float, saved: list[str]) -> None:
    for p in model.parameters():
        p.requires_grad = False
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in names and isinstance(child, nn.Linear):
                setattr(parent, name, Adapted(child, r, dropout))
    for name, p in model.named_parameters():
        if any(s in name for s in saved):
            p.requires_grad = True


class Dropout(nn.Module):
    """Dropout as it runs on an accelerator: a mask of bytes."""

    def __init__(self, share: float):
        super().__init__()
        self.share = share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(x, self.share, True)[0]


def with_peft(dropout: float, dora: bool, bits: str = "", ranks: dict[str, int] | None = None) -> Callable[[nn.Module], None]:
    """Adapters of rank 4, or of other ranks by names, beside all linear layers, as peft has them; of weights in 4 bits, as bitsandbytes has them
    (nf4, nf4_double)."""

    def tune(model: nn.Module) -> None:
        for parent in [m for m in model.modules() if bits]:
            for name, child in list(parent.named_children()):
                if name in LINEAR:
                    double = bits.endswith("_double")
                    kind = {"quant_type": bits.removesuffix("_double"), "compress_statistics": double, "compute_dtype": torch.bfloat16}
                    made = bitsandbytes.nn.Linear4bit(child.in_features, child.out_features, bias=False, **kind)
                    made.weight = bitsandbytes.nn.Params4bit(child.weight.data, False, quant_type=kind["quant_type"], compress_statistics=double)
                    setattr(parent, name, made.to("cpu"))
        config = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=dropout, target_modules=LINEAR, use_dora=dora, rank_pattern=ranks or {})
        peft.inject_adapter_in_model(config, model)
        for module in model.modules():
            if isinstance(module, peft.tuners.lora.Linear | peft.tuners.lora.Linear4bit) and dropout:
                module.lora_dropout["default"] = Dropout(dropout)
            if isinstance(module, peft.tuners.lora.layer.LoraLayer):
                for part in (module.lora_A, module.lora_B, module.lora_magnitude_vector):
                    part.to(torch.bfloat16)

    return tune


def bytes_of_weights(model: nn.Module) -> int:
    """Of all parameters, with the scales of those in 4 bits; their look-up tables and one mean each aside."""
    found = 0
    for p in model.parameters():
        found += p.numel() * p.element_size()
        state = getattr(p, "quant_state", None)
        if state is not None:
            found += state.absmax.numel() * state.absmax.element_size()
            found += state.state2.absmax.numel() * state.state2.absmax.element_size() if state.nested else 0
    return found


def frozen(model: nn.Module, freeze: list[str]) -> None:
    for name, p in model.named_parameters():
        if any(f in name for f in freeze):
            p.requires_grad = False


def layers(first: int, last: int) -> list[str]:
    return [f".layers.{i}." for i in range(first, last + 1)]


def lora(names: list[str], dropout: float = 0.0, saved: list[str] | None = None) -> Callable[[nn.Module], None]:
    return lambda model: adapted(model, names, 4, dropout, saved or [])


def freezing(*names: str) -> Callable[[nn.Module], None]:
    return lambda model: frozen(model, list(names))


CASES: dict[str, tuple[str, Callable[[nn.Module], None], dict[str, Any]]] = {
    "llama full": ("llama", lambda _: None, {}),
    "llama lora all linear": ("llama", lora(LINEAR), {"tuner_type": "lora", "lora_rank": 4}),
    "llama lora attention": ("llama", lora(ATTENTION), {"tuner_type": "lora", "lora_rank": 4, "target_modules": ATTENTION}),
    "llama lora q and v, dropout": (
        "llama", lora(["q_proj", "v_proj"], 0.1),
        {"tuner_type": "lora", "lora_rank": 4, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.1}),
    "llama lora mlp": ("llama", lora(LINEAR[4:]), {"tuner_type": "lora", "lora_rank": 4, "target_modules": ["mlp"]}),
    "llama lora all linear, dropout, saved": (
        "llama", lora(LINEAR, 0.1, ["lm_head", "norm"]),
        {"tuner_type": "lora", "lora_rank": 4, "lora_dropout": 0.1, "modules_to_save": ["lm_head", "norm"]}),
    "llama lora and embedding": (
        "llama", lora(LINEAR, 0.0, ["embed_tokens"]), {"tuner_type": "lora", "lora_rank": 4, "modules_to_save": ["embedding"]}),
    "llama dora": ("llama", with_peft(0.0, True), {"tuner_type": "lora", "lora_rank": 4, "use_dora": True}),
    "llama dora, dropout": ("llama", with_peft(0.1, True), {"tuner_type": "lora", "lora_rank": 4, "use_dora": True, "lora_dropout": 0.1}),
    "llama lora of several ranks": (
        "llama", with_peft(0.0, False, ranks=RANKS), {"tuner_type": "lora", "lora_rank": 4, "rank_pattern": RANKS_HERE}),
    "llama dora of several ranks, dropout": (
        "llama", with_peft(0.1, True, ranks=RANKS),
        {"tuner_type": "lora", "lora_rank": 4, "rank_pattern": RANKS_HERE, "use_dora": True, "lora_dropout": 0.1}),
    "llama qlora nf4": ("llama wide", with_peft(0.0, False, "nf4"), {"tuner_type": "lora", "lora_rank": 4, "quantize_base": "nf4"}),
    "llama qlora fp4": ("llama wide", with_peft(0.0, False, "fp4"), {"tuner_type": "lora", "lora_rank": 4, "quantize_base": "fp4"}),
    "llama qlora nf4 double, dropout": (
        "llama wide", with_peft(0.1, False, "nf4_double"),
        {"tuner_type": "lora", "lora_rank": 4, "quantize_base": "nf4_double", "lora_dropout": 0.1}),
    "llama qdora, dropout": (
        "llama wide", with_peft(0.1, True, "nf4"),
        {"tuner_type": "lora", "lora_rank": 4, "quantize_base": "nf4", "lora_dropout": 0.1, "use_dora": True}),
    "llama sequence classification": ("llama seq_cls", lambda _: None, {"task_type": "seq_cls", "num_labels": 3}),
    "llama token classification": ("llama token_cls", lambda _: None, {"task_type": "token_cls", "num_labels": 5}),
    "llama sequence classification, lora": (
        "llama seq_cls", lora(ATTENTION, 0.0, ["score"]),
        {"task_type": "seq_cls", "num_labels": 3, "tuner_type": "lora", "lora_rank": 4, "target_modules": ATTENTION}),
    "mixtral full": ("mixtral", lambda _: None, {}),
    "mixtral lora all linear": ("mixtral", lora(LINEAR), {"tuner_type": "lora", "lora_rank": 4}),
    "mixtral lora q, dropout": (
        "mixtral", lora(["q_proj"], 0.1), {"tuner_type": "lora", "lora_rank": 4, "target_modules": ["q_proj"], "lora_dropout": 0.1}),
    "mixtral experts frozen": ("mixtral", freezing(".experts."), {"freeze_parameters": ["experts"]}),
    "mixtral routers frozen": ("mixtral", freezing(".mlp.gate."), {"freeze_parameters": ["router"]}),
    "llama embedding frozen": ("llama", freezing("embed_tokens"), {"freeze_parameters": ["embedding"]}),
    "llama norms frozen": ("llama", freezing("norm"), {"freeze_parameters": ["norm"]}),
    "llama embedding and three layers frozen": (
        "llama", freezing("embed_tokens", *layers(0, 2)), {"freeze_parameters": ["embedding", "layers.0-2"]}),
    "llama middle layers frozen": ("llama", freezing(*layers(1, 2)), {"freeze_parameters": ["layers.1-2"]}),
    "llama only attention of two layers": (
        "llama", freezing("embed_tokens", "mlp", "norm", "lm_head", *layers(0, 1)),
        {"freeze_parameters": ["embedding", "mlp", "norm", "lm_head", "layers.0-1"]}),
    "llama head alone": ("llama", freezing("embed_tokens", ".layers.", "norm"), {"freeze_parameters": ["embedding", "layers", "norm"]}),
    "gpt2 full": ("gpt2", lambda _: None, {"precision": "fp32"}),
    "gpt2 half frozen": ("gpt2", freezing("wpe", "wte", ".h.0.", ".h.1."), {"freeze_parameters": ["embedding", "layers.0-1"], "precision": "fp32"}),
    "gpt2 biases frozen": ("gpt2", freezing("bias"), {"freeze_parameters": ["bias"], "precision": "fp32"}),
}  # fmt: skip


def of_groups(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """FLOPs of torch._grouped_mm: every row with the matrix of its group, whatever the groups are."""
    return 2 * a[0] * a[1] * b[-1]


class Box:
    """A tensor that autograd keeps, as long as autograd keeps this."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor


def measured(kind: str, tune: Callable[[nn.Module], None]) -> dict[str, int]:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind.split()[0], **CONFIGS[kind])
    head, shape = HEADS.get(kind, (transformers.AutoModelForCausalLM, None))
    model = head.from_config(config, attn_implementation="eager", dtype=DTYPES.get(kind, torch.bfloat16), **EXPERTS.get(kind, {}))
    model.config.use_cache = False
    tune(model)
    model.train()
    if kind == "llama token_cls":
        model.dropout = Dropout(0.1)
    ids = torch.randint(1, 256, (BATCH, LENGTH))
    labels = ids if shape is None else torch.randint(0, 3, shape(BATCH, LENGTH))
    kept: list[weakref.ref[Box]] = []

    def pack(tensor: torch.Tensor) -> Box:
        box = Box(tensor)
        kept.append(weakref.ref(box))
        return box

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: box.tensor):
        with FlopCounterMode(display=False, custom_mapping={torch.ops.aten._grouped_mm: of_groups}) as forward:
            loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        weights = bytes_of_weights(model)
        own = {p.untyped_storage().data_ptr() for p in model.parameters()}
        storages = {b.tensor.untyped_storage().data_ptr(): b.tensor.untyped_storage().nbytes() for r in kept if (b := r()) is not None}
        alive = sum(n for at, n in storages.items() if at not in own)
        with FlopCounterMode(display=False, custom_mapping={torch.ops.aten._grouped_mm: of_groups}) as backward:
            loss.backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    optimizer.step()
    states = sum(t.numel() * t.element_size() for s in optimizer.state.values() for n, t in s.items() if n != "step")
    stored = any(hasattr(p, "quant_state") for p in model.parameters())
    elements = {p: p.quant_state.shape.numel() if hasattr(p, "quant_state") else p.numel() for p in model.parameters()}
    counted = {"weights": weights} if stored else {"forward": forward.get_total_flops(), "backward": backward.get_total_flops()}
    return {
        "parameters": sum(elements.values()),
        "trained": sum(p.numel() for p in trained),
        "gradients": sum(p.grad.numel() for p in model.parameters() if p.grad is not None),
        "states": states,
        "kept": alive,
        **counted,
    }


def main() -> None:
    source = {m.__name__: m.__version__ for m in (torch, transformers, peft, bitsandbytes)}
    cases = {name: {"model": kind, "strategy": strategy, **measured(kind, tune)} for name, (kind, tune, strategy) in CASES.items()}
    configs = {kind: {"model_type": kind.split()[0], **config} for kind, config in CONFIGS.items()}
    made = {"source": source, "batch": BATCH, "length": LENGTH, "configs": configs, "cases": cases}
    (HERE / "tuning.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
