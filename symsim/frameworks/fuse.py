"""fuse: declared operations -> the kernels that run, with the tensors each keeps for backward.

Two profiles: `te` (fuse_te.py) follows Megatron-Core with TransformerEngine kernels, `eager` (fuse_eager.py) the
Hugging Face modules run op by op.
"""

from __future__ import annotations

from dataclasses import replace

from symsim.frameworks.autocast import autocast_types
from symsim.frameworks.eager_modules import in_order
from symsim.frameworks.kernels import Kernels, Profile, keep
from symsim.frameworks.linear_loss import LINEAR_LOSSES, linear_cross_entropy
from symsim.frameworks.recompute import modules_of, runs_of
from symsim.ir.block import Block, Op, rebuild


def fuse(block: Block, profile: Profile) -> Block:
    """Replace every declared operation by its kernels under the strategy's framework."""
    lowerings = profile.framework.lowerings
    kernels = Kernels(block, profile, autocast_types(profile))
    runs = runs_of([op.name for op in block.ops], profile.strategy.recompute_operations or ())
    for op in in_order(block.ops, profile.model) if profile.framework.op_by_op else block.ops:
        op = replace(op, regions=modules_of(op.parts) | ({runs[op.name]} if op.name in runs else set()))
        kernels.source = op
        # only what has the loss in it asks which
        with_loss = op.kind == "cross_entropy" and profile.strategy.cross_entropy_fusion in LINEAR_LOSSES
        (linear_cross_entropy if with_loss else lowerings.get(op.kind, keep))(kernels, op)
    if profile.assumptions["layernorm_linear_fusion"] == "fused":
        kernels.ops = [_with_its_gemm(kernels.ops, op) for op in kernels.ops]
    used = {t for op in kernels.ops for t in (*op.inputs, *op.outputs)}
    views = {kernels.tensors[t].view_of for t in used}
    standing = {
        n: t
        for n, t in kernels.tensors.items()
        if n in used or n in views or n in block.inputs or (t.kind == "parameter" and not any(n in op.inputs for op in block.ops))
    }
    return rebuild(block, kernels.ops, standing, dims=kernels.dims)


def _with_its_gemm(ops: list[Op], op: Op) -> Op:
    """LayerNormLinear: a norm that one GEMM alone reads is part of it, and no recompute module of its own."""
    readers = [o for o in ops if op.outputs and op.outputs[0] in o.inputs]
    if op.kind == "norm" and len(readers) == 1 and readers[0].kind == "einsum":
        return replace(op, regions=op.regions - {"layernorm"})
    return op
