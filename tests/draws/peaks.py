"""Peaks of training steps of random small models on the processor, by method: PyTorch's live storages beside the moments of the eager profile.

    python tests/draws/peaks.py --count 40 --seed 1

Two steps of transformers' module run (with peft's adapters where the method has them), with all optimizer states after the first; counted are the
bytes of storages that are alive as each operation ends, in the second. Attention is the processor's flash kernel, heads have keys of their own, and
what a step reads (ids, labels) is not counted. A draw is equal within a share of 1 %. Exit code 1 when one differs. Needs transformers, torch
and peft.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import random
import sys
import weakref
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import peak_cases  # noqa: E402

import symsim  # noqa: E402

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch.utils.checkpoint import create_selective_checkpoint_contexts  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402
from transformers.optimization import Adafactor  # noqa: E402

DENSE = ("llama", "mistral", "qwen2", "qwen3", "olmo2", "gemma", "phi3", "glm4", "starcoder2", "granite")
KINDS = (*DENSE, "qwen2_moe", "olmoe")
METHODS = ("full", "lora", "dora", "frozen")
OPTIMIZERS = {
    "adam for_loop": lambda p: torch.optim.AdamW(p, foreach=False),
    "adam foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "adam fused": lambda p: torch.optim.AdamW(p, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, 0.1, foreach=False),
    "sgd_momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=False),
}
FURTHER_OPTIMIZERS = {
    "adafactor": lambda p: Adafactor(p),
    "muon": lambda p: torch.optim.Muon(p),
    "adam 8 bit": lambda p: bitsandbytes_adam(p),
}
LOSSES = ("output_chunks", "chunked")
FURTHER = ("sac_mm", "sac_attn", "sac_mm_attn", "micro-batches", "nf4", *FURTHER_OPTIMIZERS, "nf4_double", *LOSSES)
# what torch.utils.checkpoint keeps the results of, by the recomputation that says so
STORED = {
    "sac_mm": (torch.ops.aten.mm.default, torch.ops.aten.addmm.default),
    "sac_attn": (torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,),
}
STORED["sac_mm_attn"] = (*STORED["sac_mm"], *STORED["sac_attn"], torch.ops.aten._grouped_mm.default)
_RESIZE = torch.UntypedStorage.resize_
_LAYER_NORM = torch.nn.functional.layer_norm


def wide_layer_norm(x: torch.Tensor, shape: Any, *parameters: Any) -> torch.Tensor:
    """A layer norm under an accelerator's autocast, which takes it in fp32; the processor's leaves it alone (aten autocast_mode.h)."""
    given = [x, *parameters]
    if torch.is_autocast_enabled("cpu"):
        given = [t.float() if isinstance(t, torch.Tensor) else t for t in given]
    return _LAYER_NORM(given[0], shape, *given[1:])


torch.nn.functional.layer_norm = wide_layer_norm  # type: ignore[assignment]


class Live(TorchDispatchMode):
    """Bytes of storages alive, and the most there were since `most` was set."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: dict[int, int] = {}
        self.at = ""

    def add(self, t: torch.Tensor) -> None:
        storage = (t._local_tensor if isinstance(t, DTensor) else t).untyped_storage()
        if storage._cdata not in self.known and t.device.type == "cpu":
            self.known[storage._cdata] = storage.nbytes()
            self.now += storage.nbytes()
            weakref.finalize(storage, self.forget, storage._cdata)

    def resized(self, storage: torch.UntypedStorage, size: int) -> None:
        """Storages of gathered parameters are emptied and filled again (torch distributed/fsdp/_fully_shard/_fsdp_common.py)."""
        if storage._cdata in self.known:
            self.now += size - self.known[storage._cdata]
            self.known[storage._cdata] = size
            self.most = max(self.most, self.now)

    def forget(self, which: int) -> None:
        self.now -= self.known.pop(which, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for t in tree_leaves(result):
            if isinstance(t, torch.Tensor):
                self.add(t)
        if self.now > self.most:
            self.most, self.at = self.now, str(func)
        return result


def shared_out(model: Any, ranks: int, live: Live) -> None:
    """The model as torch's fully_shard has it, its layers each a unit, on one of so many ranks, of which the others are made up."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    for unit in (*model.base_model.layers, model):
        fully_shard(unit, mesh=mesh)

    def resize(storage: torch.UntypedStorage, size: int) -> None:
        live.resized(storage, size)
        _RESIZE(storage, size)

    torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]


def draw(rng: random.Random, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A config, and options: sizes at which layers, the output layer and states are of one order."""
    heads, d, wide = rng.choice((2, 4)), rng.choice((8, 16, 32)), rng.choice((5, 7, 8))
    config = {
        **{"model_type": kind, "hidden_size": heads * d, "intermediate_size": heads * d * wide // 2, "pad_token_id": 0, "head_dim": d},
        **{"num_hidden_layers": rng.randint(4, 8), "num_attention_heads": heads, "num_key_value_heads": heads},
        **{"vocab_size": rng.choice((128, 512, 2048)), "tie_word_embeddings": rng.random() < 0.4},
    }
    if kind not in ("llama", "mistral", "qwen3", "gemma", "glm4", "granite"):
        del config["head_dim"]
    if kind in ("qwen2_moe", "olmoe"):
        config |= {"num_experts": 4, "num_experts_per_tok": 2}
    if kind == "qwen2_moe":
        config |= {"moe_intermediate_size": 48, "shared_expert_intermediate_size": 80}
    if kind == "starcoder2":
        config |= {"residual_dropout": 0.0, "embedding_dropout": 0.0}
    method = rng.choice(METHODS)
    options = {
        **{"method": method, "b": rng.randint(1, 3), "s": rng.choice((32, 64, 128)), "m": rng.randint(1, 2), "checkpoints": rng.random() < 0.5},
        **{"optimizer": rng.choice(tuple(OPTIMIZERS)), "rank": rng.choice((2, 4, 8))},
        "autocast": method != "dora" and "num_experts" not in config and rng.random() < 0.4,
    }
    return config, options


def draw_further(rng: random.Random, config: dict[str, Any], options: dict[str, Any], kind: str) -> None:
    """The options with one kind of method more."""
    if kind in STORED:
        options |= {"recompute": kind, "checkpoints": True, "autocast": False}
    elif kind == "micro-batches":
        options["m"] = rng.randint(3, 5)
    elif kind in ("nf4", "nf4_double"):
        options |= {"method": "lora", "quantize": kind, "autocast": False}
    elif kind in LOSSES:
        options |= {"loss": kind, "autocast": False, "s": rng.choice((64, 128))}
        config["vocab_size"] = rng.choice((512, 2048, 4096))
        if config["model_type"] == "granite":  # its logits are scaled outside of the output layer
            config["model_type"] = "llama"
    else:
        options |= {"optimizer": kind, "method": "full", "autocast": kind == "adam 8 bit" or rng.random() < 0.5}
        config["tie_word_embeddings"] = False


def bitsandbytes_adam(parameters: Any) -> Any:
    import bitsandbytes

    return bitsandbytes.optim.AdamW8bit(parameters, min_8bit_size=0)


def in_four_bits(model: Any, double: bool) -> None:
    """Linear maps of the layers as bitsandbytes has them on the processor."""
    import bitsandbytes

    for parent in [m for layer in model.base_model.layers for m in layer.modules()]:
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear:
                made = bitsandbytes.nn.Linear4bit(
                    child.in_features, child.out_features, child.bias is not None, torch.bfloat16, compress_statistics=double, quant_type="nf4"
                )
                made.to(torch.bfloat16).load_state_dict(child.state_dict())  # the type that its weights are made again in
                setattr(parent, name, made.to("cpu"))


def loss_of(model: Any, ids: torch.Tensor, how: str) -> torch.Tensor:
    """The model's own loss, or one in chunks of the tokens."""
    if not how:
        found: torch.Tensor = model(input_ids=ids, labels=ids, use_cache=False).loss
        return found
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = model.get_output_embeddings()
    if how == "chunked":
        return chunked(model.base_model(input_ids=ids, use_cache=False)[0], head, ids)
    return output_chunks([head(chunk) for chunk in model.base_model(input_ids=ids, use_cache=False)[0].chunk(8, dim=1)], ids)


def output_chunks(logits: list[torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """All logits, of which a chunk at a time is in fp32 (torchtune modules/transformer.py chunked_output, loss/ce_chunked_output_loss.py)."""
    pieces = zip([t.reshape(-1, t.size(-1)) for t in logits], [t.reshape(-1) for t in ids.chunk(8, dim=1)])
    total = sum(torch.nn.functional.cross_entropy(t.float(), labels, reduction="sum") for t, labels in pieces)
    return total / (ids != -100).sum()


class HandedOn(torch.autograd.Function):
    """A loss whose gradient is there already (torchtitan components/loss.py _DecoderOutputGradientBackProp)."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, gradient: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gradient)
        return loss.detach()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return ctx.saved_tensors[0], None, None


def chunked(hidden: torch.Tensor, head: Any, ids: torch.Tensor) -> torch.Tensor:
    """A chunk's logits at a time, forward and backward (torchtitan components/loss.py ChunkedLossWrapper)."""
    flat, count = hidden.flatten(0, 1), ids.numel() // 8
    chunks = [t.contiguous().detach().requires_grad_() for t in flat.split(count)]
    gradient, total = torch.zeros_like(flat, dtype=torch.float32), torch.zeros(())
    for i, (chunk, labels) in enumerate(zip(chunks, ids.flatten().split(count))):
        logits = head(chunk)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum") / ids.numel()
        total = total + loss.detach()
        loss.backward()
        gradient[i * count : (i + 1) * count] = chunk.grad.to(torch.float32)
        chunk.grad = None
    found: torch.Tensor = HandedOn.apply(flat, gradient.to(flat.dtype), total)
    return found


class Both:
    """An optimizer of matrices in layers, and Adam of all else, as one."""

    def __init__(self, model: Any, of_matrices: Any):
        inside = {id(p) for p in model.base_model.layers.parameters() if p.ndim == 2}
        trained = [p for p in model.parameters() if p.requires_grad]
        self.parts = [
            of_matrices([p for p in trained if id(p) in inside]),
            torch.optim.AdamW([p for p in trained if id(p) not in inside], fused=True),
        ]

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)


class InBackward:
    """An optimizer of each parameter, which updates it as its gradient is made (torchtune training/memory.py register_optim_in_bwd_hooks)."""

    def __init__(self, parameters: Any, made_by: Any):
        self.own = {p: made_by([p]) for p in parameters}
        for p in parameters:
            p.register_post_accumulate_grad_hook(self.update)

    def update(self, parameter: torch.Tensor) -> None:
        self.own[parameter].step()
        self.own[parameter].zero_grad()

    def step(self) -> None:
        pass

    def zero_grad(self, set_to_none: bool) -> None:
        pass


def theirs(config: dict[str, Any], o: dict[str, Any]) -> dict[str, int]:
    """Most bytes alive in forward, in backward and in the update of the second step."""
    values = dict(config)
    made = AutoConfig.for_model(values.pop("model_type"), **values)
    whole = o["autocast"] and o["method"] != "lora"
    more = {"experts_implementation": "grouped_mm"} if "num_experts" in config else {}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(made, attn_implementation="sdpa", dtype=torch.float32 if whole else torch.bfloat16, **more)
    if o["method"] == "frozen":
        model.get_input_embeddings().requires_grad_(False)
        model.base_model.layers[0].requires_grad_(False)
        for p in model.parameters():
            p.data = p.data if p.requires_grad else p.data.bfloat16()
    if o["checkpoints"]:
        how: dict[str, Any] = {"use_reentrant": False}
        if o.get("recompute") in STORED:
            how["context_fn"] = functools.partial(create_selective_checkpoint_contexts, list(STORED[o["recompute"]]))
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
    if o.get("quantize"):
        in_four_bits(model, o["quantize"] == "nf4_double")
    if o["method"] in ("lora", "dora"):
        import peft

        model.config.model_type = "drawn"  # for some types peft takes names of linear maps for those of experts' parameters

        if o["checkpoints"]:
            model.enable_input_require_grads()
        adapted = peft.LoraConfig(r=o["rank"], target_modules="all-linear", use_dora=o["method"] == "dora")
        model = peft.get_peft_model(model, adapted, autocast_adapter_dtype=o["autocast"])
    model.train()
    live = Live()
    if o.get("ranks"):
        shared_out(model, o["ranks"], live)
    made_by = (OPTIMIZERS | FURTHER_OPTIMIZERS)[o["optimizer"]]
    trained = [p for p in model.parameters() if p.requires_grad]
    update = Both(model, made_by) if o["optimizer"] == "muon" else InBackward(trained, made_by) if o.get("in_backward") else made_by(trained)
    ids = torch.randint(1, config["vocab_size"], (o["b"], o["s"]))
    quantised = [p.quant_state for p in model.parameters() if getattr(p, "quant_state", None) is not None]
    scales = [state.absmax for state in quantised] + [state.state2.absmax for state in quantised if state.nested]
    for t in (*model.parameters(), *model.buffers(), *scales):
        live.add(t)
    live.known[ids.untyped_storage()._cdata] = 0
    most = {}
    with live:
        for _step in range(2):
            most = {"forward": 0, "backward": 0}
            for _ in range(o["m"]):
                gc.collect()
                live.most = live.now
                with torch.autocast("cpu", torch.bfloat16, enabled=o["autocast"]):
                    loss = loss_of(model, ids, o.get("loss", ""))
                most["forward"] = max(most["forward"], live.most)
                live.most = live.now
                loss.backward()
                del loss
                most["backward"] = max(most["backward"], live.most)
            gc.collect()
            live.most = live.now
            update.step()
            most["update"] = live.most
            update.zero_grad(set_to_none=True)
    return most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--further", action="store_true", help=f"methods besides, one after the other: {', '.join(FURTHER)}")
    parser.add_argument("--sharded", type=int, default=0, metavar="RANKS", help="parameters over so many ranks by torch's fully_shard (zero=3)")
    parser.add_argument("--in-backward", action="store_true", help="each parameter is updated as its gradient is made (optimizer_in_bwd)")
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--json", action="store_true", help="print rows for tests/oracle/peaks.json too")
    given = parser.parse_args()
    wrong = 0
    for index in range(given.count) if given.only is None else [given.only]:
        rng = random.Random(f"{given.seed}/{index}")
        config, options = draw(rng, KINDS[index % (len(DENSE) if given.sharded else len(KINDS))])
        if given.sharded:
            config["tie_word_embeddings"] = False
            options |= {"method": "full", "autocast": False, "ranks": given.sharded}
        if given.in_backward:
            # whose updates make nothing beside what they change
            made = options["optimizer"] if "adam" not in options["optimizer"] else "adam fused"
            options |= {"in_backward": True, "method": "full", "m": 1, "optimizer": made}
        if given.further:
            draw_further(rng, config, options, FURTHER[index % len(FURTHER)])
        try:
            expected, found = theirs(config, options), peak_cases.ours(config, options)
        except symsim.errors.InputError as refused:
            print(f"{index}: refused: {refused}: {options}")
            continue
        off = peak_cases.apart(found, expected)
        wrong += bool(off)
        if given.json:
            print(json.dumps({"draw": f"{given.seed}/{index}", "config": config, "options": options, "peaks": expected}))
        print(f"{index} {config['model_type']}: {f'{off} {json.dumps(options)} {json.dumps(config)}' if off else 'equal'}")
    print(f"{wrong} of {given.count} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
