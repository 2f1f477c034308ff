"""Bytes that the operations of transformers' modules read and write under PyTorch, beside those of symsim's eager profile.

    python tests/draws/moved_bytes.py [MODEL_TYPE ...]

Products, attention, lookups and masks are left out on both sides; views move nothing, and what is repeated counts once. Operations that are
otherwise on CUDA count as there (`_ON_CUDA`). Needs torch and transformers, runs on the CPU; prints a line a model and phase.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import symsim
from symsim.cost.hbm import beside_gradient
from symsim.ir.block import WIDTHS
from symsim.ir.operations import PRODUCTS
from symsim.lowering.differentiate import elements
from symsim.report.kernels import block_kernels

ROWS, LENGTH, LAYERS = 2, 128, 2
_SIZES = {"hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 8, "num_hidden_layers": LAYERS, "vocab_size": 211}
_GROUPS = {**_SIZES, "num_key_value_heads": 4}
MODELS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("llama", "qwen2", "olmo2", "granite", "stablelm", "starcoder2", "nemotron"), _GROUPS),
    **dict.fromkeys(("qwen3", "gemma", "helium"), {**_GROUPS, "head_dim": 16}),
    **dict.fromkeys(("phi3", "cohere", "olmo", "apertus"), {**_GROUPS, "pad_token_id": 0}),
    "glm": {**_GROUPS, "head_dim": 16, "pad_token_id": 0},
    "gptj": {"n_embd": 128, "n_inner": 512, "n_head": 8, "n_layer": LAYERS, "vocab_size": 211, "rotary_dim": 8},
    **dict.fromkeys(
        ("mixtral", "qwen3_moe", "olmoe"),
        {
            **_GROUPS,
            "head_dim": 16,
            "num_experts": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "pad_token_id": 0,
        },
    ),
    "deepseek_v3": {
        **_SIZES,
        "num_key_value_heads": 8,
        "moe_intermediate_size": 48,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 0,
        "q_lora_rank": 32,
        "kv_lora_rank": 24,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 24,
        "pad_token_id": 0,
    },
    "gpt_neox": {**_SIZES, "intermediate_size": 512},
}
_VIEWS = frozenset(
    "view _unsafe_view expand t transpose permute slice unsqueeze squeeze detach select as_strided alias split split_with_sizes chunk unbind "
    "reshape lift_fresh unfold diagonal empty empty_like new_empty empty_strided new_empty_strided is_same_size scalar_tensor".split()
)
# of an operation's tensors the first so often more, and the second, than once each: slice_backward fills a whole and copies the slice there
# (aten/native/TensorShape.cpp); what makes the gradients of a norm's weights is a kernel of its own, which reads the gradient and the input again
# (aten/native/cuda/layer_norm_kernel.cu); the loss of a row takes one number of it, and its gradient their shape alone (aten/native/cuda/Loss.cu)
_ON_CUDA = {"slice_backward": (1, 0), "native_layer_norm_backward": (1, 1), "nll_loss_forward": (-1, 0), "nll_loss_backward": (0, -1)}
# a tensor whose shape alone is read, and one that is written
_ON_CUDA |= dict.fromkeys(("new_zeros", "zeros_like", "copy_", "scatter_", "div_", "index_put_"), (-1,))
_APART = frozenset("mm bmm addmm _grouped_mm baddbmm arange ones_like full bitwise_and logical_and __and__ triu zeros ones new_ones".split())
_OF_MASKS = frozenset("lt le ge gt eq ne where".split())


def of_torch(model_type: str, directory: str) -> dict[str, int]:
    """Bytes of forward and backward; the configuration is written to the directory."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from transformers import AutoConfig, AutoModelForCausalLM

    moved = {"forward": 0, "backward": 0}

    def bytes_of(tensors: Any) -> int:
        found = 0
        for tensor in (t for t in tree_leaves(tensors) if isinstance(t, torch.Tensor)):
            elements = 1
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
                elements *= size if stride else 1
            found += elements * tensor.element_size()
        return found

    class Counted(TorchDispatchMode):
        phase = "forward"

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
            numbers = any(t.is_floating_point() and t.numel() > 1 for t in tree_leaves(args) if isinstance(t, torch.Tensor))
            apart = _VIEWS | _APART if numbers else _VIEWS | _APART | _OF_MASKS
            if name not in apart and "attention" not in name and "embedding" not in name:
                moved[self.phase] += bytes_of((args, kwargs or {})) + bytes_of(made)
                if name != "native_layer_norm_backward" or isinstance(made[1], torch.Tensor):
                    moved[self.phase] += sum(times * bytes_of(tensor) for times, tensor in zip(_ON_CUDA.get(name, ()), args))
            return made

    config = AutoConfig.for_model(model_type, **MODELS[model_type])
    config.save_pretrained(directory)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").bfloat16().train()
    ids = torch.randint(0, config.vocab_size, (ROWS, LENGTH))
    with Counted() as counted:
        loss = model(ids, labels=ids, use_cache=False).loss
        counted.phase = "backward"
        loss.backward()
    return moved


def of_symsim(config: Path) -> dict[str, float]:
    sizes = {"micro_batch_size": ROWS, "seq_length": LENGTH, "num_microbatches": 1}
    options = {"fusion": "eager", "grad_reduce_in_fp32": False, "main_params_dtype": "bf16", **sizes}
    made = symsim.derive(symsim.load_model(str(config)), options, {"attention_kernel": "flash"}, system=symsim.load_system("a100-sxm-80"))
    moved = {"forward": 0.0, "backward": 0.0}
    for name, remembered in made.lowered.blocks.items():
        times, placed = 1 if name in ("embedding", "head") else LAYERS, remembered.placed
        places = {op.name: i for i, op in enumerate(placed.block.ops)}
        for kernel in block_kernels(made, name):
            index = places[kernel.operation]
            kind, phase = placed.block.ops[index].kind, "forward" if kernel.phase == "forward" else "backward"
            if kind in PRODUCTS:
                beside = beside_gradient(placed, index, kernel.phase, made.lowered.profile)
                moved[phase] += times * sum(float(e.evaluate(made.values)) for e in beside)
            elif kind == "embed":  # but the lookup itself: what stands beside it
                known, op = placed.block.tensors, placed.block.ops[index]
                ids_and_table = [t for t in op.inputs if phase == "backward" or known[t].kind != "parameter"]
                own = [*ids_and_table, op.outputs[0], *([] if phase == "backward" else op.outputs[:1])]
                alone = sum(float(elements(placed, t).evaluate(made.values)) * WIDTHS[known[t].dtype] for t in own)
                moved[phase] += kernel.bytes - alone
            elif kind != "attention":
                moved[phase] += times * kernel.bytes
    return moved


if __name__ == "__main__":
    for model_type in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as directory:
            theirs, ours = of_torch(model_type, directory), of_symsim(Path(directory) / "config.json")
        print(json.dumps({"model": model_type, **{phase: [ours[phase], theirs[phase], round(ours[phase] / theirs[phase], 4)] for phase in ours}}))
