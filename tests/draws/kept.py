"""Bytes that one layer of a small config keeps for backward: transformers' module on the CPU beside the eager profile.

    python tests/draws/kept.py '{"model_type": "llama", "hidden_size": 64, ...}' --layer 0 -b 2 -s 48

Counted are the storages that forward made and that are alive after it, and the layer's input and output where autograd packed them; tables that
come from outside the layer (rotary embeddings, masks) are counted apart. Attention is written out (attention_kernel=eager). A LayerNorm's
statistics of bf16 count as fp32, which they are on an accelerator (aten native/cuda/layer_norm_kernel.cu: acc_type; the processor's are in bf16).
Needs transformers and torch.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from typing import Any

from symsim.algebra.kinds import spelt
from symsim.api.result import derive
from symsim.inputs.hf import read_config
from symsim.inputs.strategy import Strategy


def own(config: dict[str, Any], layer: int, b: int, s: int) -> tuple[int, int]:
    """Bytes kept by the layer, and tables of it, as symsim derives them."""
    architecture = read_config(config, "small", "config.json")[0]
    architecture = architecture.model_copy(update={"hidden_dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": None})
    result = derive(architecture, Strategy(fusion="eager", micro_batch_size=b, seq_length=s), {"attention_kernel": "eager"})
    kinds = [kind for segment in architecture.layers for _ in range(segment.repeat) for kind in segment.kinds]
    block = result.lowered.blocks[spelt(kinds[layer])]
    saved, shared = (sum(int(item.bytes.evaluate(result.numbers)) for item in items) for items in (block.saved, block.shared))
    return saved, shared


def theirs(config: dict[str, Any], layer: int, b: int, s: int) -> tuple[int, int]:
    """The same of transformers' module."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    wanted = {"experts_implementation": "grouped_mm"} if any("experts" in key for key in config) else {}
    for more in (wanted, {}):
        values = dict(config)
        made = AutoConfig.for_model(values.pop("model_type"), **values)
        auto = next((auto for auto in (AutoModelForCausalLM, AutoModel) if type(made) in auto._model_mapping), None)
        build = auto.from_config if auto else tower(made)._from_config
        try:
            model = build(made, attn_implementation="eager", dtype=torch.bfloat16, **more).train()
        except ValueError as error:
            if not more or "experts" not in str(error):
                raise
            continue  # experts of a module code of its own
        break
    module_code = sys.modules[type(model).__module__]
    if hasattr(module_code, "chunk_kimi_delta_attention"):
        module_code.chunk_kimi_delta_attention = kernel  # type: ignore[attr-defined]
    for name, module in model.named_modules():
        if name.endswith(("attn_hc", "ffn_hc")):  # kept in fp32 by their class (_keep_in_fp32_modules_strict)
            module.float()
    ids = torch.randint(0, made.vocab_size, (b, s))
    return alive(layers_of(model)[layer], *captured(model, layer, ids))


def tower(made: Any) -> Any:
    """The module of a text tower that is no model of its own: the one of its module code that is called so and has its config."""
    import importlib

    code = importlib.import_module(type(made).__module__.replace("configuration_", "modeling_"))
    return next(one for name, one in vars(code).items() if name.endswith("TextModel") and one.config_class is type(made))


def kernel(q: Any, k: Any, v: Any, g: Any, beta: Any, **_: Any) -> tuple[Any, None]:
    """In place of torch's own code of a delta rule with a decay of every channel: a kernel that keeps what it reads."""
    import torch

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *read: Any) -> Any:
            ctx.save_for_backward(*read)
            return torch.zeros_like(read[2])

        @staticmethod
        def backward(ctx: Any, made: Any) -> Any:
            return tuple(torch.zeros_like(t) for t in ctx.saved_tensors)

    return Kernel.apply(q, k, v, g, beta), None


def layers_of(model: Any) -> Any:
    """The layers of a model, whatever its family calls them: the first list of modules as long as there are any."""
    import torch

    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == model.config.num_hidden_layers)


def captured(model: Any, layer: int, ids: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model hands to one of its layers."""
    found: list[Any] = []
    hook = layers_of(model)[layer].register_forward_pre_hook(lambda _, args, kwargs: found.append((args, kwargs)), with_kwargs=True)
    model(input_ids=ids, use_cache=False)
    hook.remove()
    (found,) = found
    args, kwargs = found  # a store of keys and values, which some models make whatever they are asked, would be added to again
    return tuple(map(_not_stored, args)), {name: _not_stored(value) for name, value in kwargs.items()}


def _not_stored(value: Any) -> Any:
    from transformers import Cache, EncoderDecoderCache

    return None if isinstance(value, Cache | EncoderDecoderCache) else value


def alive(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int]:
    """Bytes of the storages that a module's forward leaves alive, and of tables from outside that it packed."""
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watch(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.made: dict[int, tuple[StorageWeakRef, int]] = {}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            statistics = result[1:] if func is torch.ops.aten.native_layer_norm.default else ()
            for t in tree_leaves(result):
                if isinstance(t, torch.Tensor):
                    storage = t.untyped_storage()
                    size = 4 * t.numel() if any(t is s for s in statistics) else storage.nbytes()
                    self.made.setdefault(storage._cdata, (StorageWeakRef(storage), size))
            return result

    args, kwargs = tuple(map(_trained, args)), dict(kwargs)
    x = args[0]
    if kwargs.get("shared_kv_states") is not None:  # keys and values that earlier layers made
        kwargs["shared_kv_states"] = {kind: tuple(map(_trained, pair)) for kind, pair in kwargs["shared_kv_states"].items()}
    outside = {t.untyped_storage()._cdata: t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
    weights = _stores(module)
    packed: dict[int, int] = {}
    slices = {  # a layer's own part of what was made for all layers
        c: size
        for c, t in outside.items()
        if t is not x and t.requires_grad and (size := t.numel() * t.element_size()) < t.untyped_storage().nbytes()
    }
    hold = []

    def pack(t: Any) -> Any:
        hold.append(t)
        packed[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = module(*args, **kwargs)
    y = y[0] if isinstance(y, tuple | list) else y
    ends = {c: packed[c] for c in (x.untyped_storage()._cdata, y.untyped_storage()._cdata) if c in packed}
    tables = sum(size for c, size in packed.items() if c in outside and c not in ends and c not in weights and c not in slices)
    hold.clear()
    del y
    gc.collect()
    with Watch() as watch:
        y = module(*args, **kwargs)
    y = y[0] if isinstance(y, tuple | list) else y
    if kwargs.get("shared_kv_states") is not None:  # a table of the model's forward, which ends with it
        kwargs["shared_kv_states"].clear()
    gc.collect()
    not_own = {*_stores(module), *outside, y.untyped_storage()._cdata}
    own = sum(size for c, (storage, size) in watch.made.items() if c not in not_own and not storage.expired())
    return own + sum(ends.values()) + sum(size for c, size in slices.items() if c in packed), tables


def _stores(module: Any) -> set[int]:
    """Of parameters and buffers: some modules replace theirs in a forward."""
    return {p.untyped_storage()._cdata for p in (*module.parameters(), *module.buffers())}


def _trained(t: Any) -> Any:
    """An activation, with a gradient of its own; tables and masks as they are."""
    import torch

    return t.detach().requires_grad_() if isinstance(t, torch.Tensor) and t.requires_grad else t


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("-b", type=int, default=2)
    parser.add_argument("-s", type=int, default=48)
    given = parser.parse_args()
    config = json.loads(given.config)
    asked = (config, given.layer, given.b, given.s)
    ours, measured = own(*asked), theirs(*asked)
    print(f"kept and tables: ours {ours}, transformers {measured}")
    return int(ours != measured)


if __name__ == "__main__":
    raise SystemExit(main())
