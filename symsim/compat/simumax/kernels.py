"""SimuMax's seconds of a kernel, by its kind: which bytes it counts, and by which name it looks up a share of the peak.

Source: transformer/dense_module.py and moe_module.py, _comp_leaf_mem_accessed_info and _comp_cost_info of every leaf;
base_struct.py get_gemm_bmnk, get_input_shapes_desc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from symsim.algebra.expr import Expr, Number, expr, product
from symsim.compat.difference import Question
from symsim.compat.simumax.machine import Machine
from symsim.cost.hbm import product_shape
from symsim.frameworks.kernels import Profile, multiplied_in
from symsim.ir.operations import Attention, Norm, Projection
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import elements
from symsim.placement.mesh import local_size
from symsim.placement.sizes import capacity, values

_LAYOUTS = {"forward": ("TN", False), "dgrad": ("NN", False), "wgrad": ("NT", True)}
_GROUPED = {
    "forward": "stage=fwd, grad=False, accumulate=False, use_split_accumulator=False, single_output=True",
    "dgrad": "stage=bwd_grad_act, grad=True, accumulate=False, use_split_accumulator=True, single_output=False",
    "wgrad": "stage=bwd_grad_w, grad=True, accumulate=True, use_split_accumulator=True, single_output=False",
}
_ROWS = frozenset({"down_proj"})
LEFT_OUT = tuple("add rope copy top_k multiply sigmoid clip dropout exchange exchange_back exchange_gather exchange_scatter".split())


@dataclass(frozen=True)
class Kernels:
    """The rules on one machine for one job. e: bytes of an activation's element."""

    machine: Machine
    question: Question
    e: int = 2

    @property
    def given(self) -> Mapping[str, Any]:
        return self.question.given.get("strategy", {})

    @cached_property
    def _sizes(self) -> dict[str, Number]:
        found = dict(values(self.question.model, self.question.strategy))
        for kind in self.question.model.kind_names():
            spec = self.question.model.layer_kinds[kind]
            if spec.ffn_hidden_size:
                found[f"f_{kind}"] = spec.ffn_hidden_size
        return found

    def number(self, placed: Placed, value: Expr) -> float:
        known = dict(self._sizes)
        if "C" in value.symbols():
            known["C"] = capacity(self.question.strategy, placed.mesh).evaluate(known)
        return float(value.evaluate(known))

    def held(self, placed: Placed, tensor: str) -> float:
        """Elements of a tensor on one rank."""
        return self.number(placed, elements(placed, tensor))

    @property
    def _gathers(self) -> int:
        strategy = self.question.strategy
        return strategy.tp if strategy.sp and strategy.tp > 1 else 1

    def product(self, placed: Placed, index: int, phase: str, profile: Profile) -> Expr:
        """A product of one weight. A router's shape is that of all tokens of its tensor-parallel group."""
        op, strategy = placed.block.ops[index], self.question.strategy
        shape = product_shape(placed, index, phase, strategy)
        m, n, k = (self.number(placed, side) for side in (shape.m, shape.n, shape.k))
        labels = op.of(Projection).labels
        router = "router" in labels
        rows, wide, deep = {"forward": (m, n, k), "dgrad": (m, k, n), "wgrad": (k, m, n)}[phase]
        width = 1 if multiplied_in(op, strategy) == "fp8" else self.e
        moved = rows * deep * width + rows * wide * self.e + deep * wide * width
        if phase == "wgrad" and not router:
            moved += 4 * deep * wide if self.given.get("use_fused_grad_accumulation", True) else 0
            latent = self.question.model.attention.kind == "mla"
            moved -= deep * wide * width if _ROWS & set(labels) or ("o_proj" in labels and not latent) else 0
        if router:
            moved += {"forward": 2, "dgrad": 3, "wgrad": 0}[phase] * rows * wide * self.e * self._gathers
        op_name = "fp8_matmul" if strategy.fp8 != "none" and not router else "matmul"
        seconds = self.machine.kernel(op_name, 2 * rows * wide * deep, moved, self._key(phase, rows, wide, deep, router))
        return expr(seconds)

    def _key(self, phase: str, rows: float, wide: float, deep: float, router: bool) -> str:
        batch, seen = self.question.strategy.micro_batch_size, rows * (self._gathers if router else 1)
        m, n, k = {"forward": (seen / batch, wide, deep), "dgrad": (seen / batch, deep, wide), "wgrad": (wide, deep, seen)}[phase]
        layout, accumulate = _LAYOUTS[phase]
        out = "bf16" if phase != "wgrad" or self.given.get("grad_reduce_in_bf16") else "fp32"
        b = 1 if phase == "wgrad" else batch
        return f"b={b}, m={int(m)}, k={int(k)}, n={int(n)}, layout={layout}, accumulate={accumulate}, out_dtype={out}"

    def grouped(self, placed: Placed, index: int, phase: str, profile: Profile) -> Expr:
        """The experts' products together."""
        op, strategy = placed.block.ops[index], self.question.strategy
        shape = product_shape(placed, index, "forward", strategy)
        each, wide, deep = (self.number(placed, side) for side in (shape.m, shape.n, shape.k))
        experts = self.number(placed, local_size(placed.mesh, placed.block, "E", ("ep",) if placed.mesh.active("ep") else ()))
        width = 1 if multiplied_in(op, strategy) == "fp8" else self.e
        rows = each * experts
        added = 4 * deep * wide if phase == "wgrad" and self.given.get("use_fused_grad_accumulation", True) else 0
        moved = rows * deep * width + rows * wide * self.e + experts * deep * wide * width
        if profile.assumptions["moe_grouped_gemm"] == "false":
            key, op_name = self._key(phase, each * strategy.micro_batch_size, wide, deep, False), "matmul"
            one = (moved / experts + (added and 4 * deep * wide)) if experts else 0.0
            return expr(experts * self.machine.kernel(op_name, 2 * each * wide * deep, one, key))
        main = "bf16" if self.given.get("grad_reduce_in_bf16") else "fp32"
        fast = strategy.fp8 != "none"
        key = f"ng={int(experts)}, M={int(each)}, N={int(wide)}, K={int(deep)}, dtype={'fp8' if fast else 'bf16'}, out_dtype=bf16, "
        key += f"main_grad_dtype={main}, {_GROUPED[phase]}"
        return expr(self.machine.kernel("fp8_group_matmul" if fast else "group_matmul", 2 * rows * wide * deep, moved + added, key))

    def attention(self, placed: Placed, index: int, phase: str, profile: Profile) -> Expr:
        """Attention over the whole square of scores; keys and values counted as wide as queries."""
        block, op, strategy = placed.block, placed.block.ops[index], self.question.strategy
        at, model = op.of(Attention), self.question.model.attention
        heads, groups = model.num_attention_heads // (strategy.tp * strategy.cp), self.question.model.query_groups // (strategy.tp * strategy.cp)
        d_qk, d_v = (self.number(placed, block.dims[d].size) for d in (at.key_dim, at.value_dim))
        latent = model.kind == "mla"
        s, b = strategy.seq_length, strategy.micro_batch_size
        flops = 2 * b * heads * s * s * (d_qk + d_v) * (1 - self._sparse)
        # rows and columns of scores are counted of a rank's own share of the sequence, for all heads
        q, v, lse, scores = b * heads * s * d_qk, b * heads * s * d_v, b * heads * s, b * heads * s * s / strategy.cp
        backward = phase != "forward"
        flash = profile.assumptions["attention_kernel"] == "flash"
        if flash:
            moved = (4 * q + 2 * v + v + lse) if backward else (2 * q + 2 * v + lse)
        else:
            moved = (2 * (scores + 2 * v) + 2 * scores + 2 * (2 * q + scores)) if backward else (2 * q + scores + 2 * scores + scores + 2 * v)
        flops *= (2.5 if flash else 2) if backward else 1
        groups = heads if latent else groups
        apart = "s5000" not in str(self.machine.data.get("sys_name", ""))
        key = f"batch={b}, seq_len={s}, head_num={heads}, kv_head_num={groups}, qk_head_dim={int(d_qk)}, v_head_dim={int(d_v)}, "
        key += f"qkv_contiguous={apart}"
        return expr(self.machine.kernel("sdp_bwd" if backward else "sdp_fwd", flops, moved * self.e, key))

    @property
    def _sparse(self) -> float:
        return float(self.given.get("attention_sparse_ratio") or 0)

    def moves(self, placed: Placed, index: int, phase: str, profile: Profile) -> Expr:
        """A kernel bound by memory: its class of bandwidth and the bytes of each pass over it."""
        kind, passes = _MOVES[placed.block.ops[index].kind](self, placed, index, phase != "forward")
        return expr(sum(self.machine.moving(kind, moved) for moved in passes))

    def nothing(self, placed: Placed, index: int, phase: str, profile: Profile) -> Expr:
        """What is left out."""
        return expr(0)

    def norm(self, placed: Placed, index: int, backward: bool) -> tuple[str, list[float]]:
        op = placed.block.ops[index]
        x, h = self.held(placed, op.inputs[0]), self.number(placed, product(placed.block.dims[d].size for d in op.of(Norm).over))
        rows, e = x / h, self.e
        if self.given.get("use_fused_norm", True):
            return "default", [e * (2 * x + h + rows), e * (x + 2 * h)] if backward else [e * (2 * x + h)]
        wide = 4 * x
        if backward:
            return "default", [2 * (e * x + wide) + 11 * wide + 5 * e * rows + e * x + e * h, 2 * e * x + e * h]
        return "default", [2 * (e * x + wide) + 4 * wide + 4 * e * rows + e * x + e * h]

    def activation(self, placed: Placed, index: int, backward: bool) -> tuple[str, list[float]]:
        op = placed.block.ops[index]
        y = self.held(placed, op.outputs[0])
        network = self.question.model.moe if op.module in ("experts", "shared_experts") else self.question.model.mlp
        if network is None or not network.gated:
            return "default", [2 * y * self.e]
        fused = self.given.get("use_fused_swiglu", True)
        moved = (3 if fused else 8 if backward else 5) * y * self.e
        if op.module == "experts" and self.question.assumptions.get("moe_probabilities") != "combine":
            moved += self.e * self._routed(placed)
        return "default", [moved]

    def _routed(self, placed: Placed) -> float:
        """A token's experts, over the tokens of a rank."""
        return self.held(placed, next(o.outputs[0] for o in placed.block.ops if "router" in getattr(o.attrs, "labels", ())))

    def permute(self, placed: Placed, index: int, backward: bool) -> tuple[str, list[float]]:
        op = placed.block.ops[index]
        x, sent = self.held(placed, op.inputs[0]), self.held(placed, op.outputs[0])
        return f"permute_{'bwd' if backward else 'fwd'}", [self.e * (x + sent), self.e * 2 * sent]

    def unpermute(self, placed: Placed, index: int, backward: bool) -> tuple[str, list[float]]:
        op, strategy = placed.block.ops[index], self.question.strategy
        sent = self.held(placed, op.inputs[0]) * (strategy.expert_tp if strategy.sp else 1)
        x = self.held(placed, op.outputs[0])
        return f"permute_{'bwd' if backward else 'fwd'}", [self.e * 2 * sent, self.e * (x + sent)]

    def loss(self, placed: Placed, index: int, backward: bool) -> tuple[str, list[float]]:
        op = placed.block.ops[index]
        z, b = self.held(placed, op.inputs[0]), self.question.strategy.micro_batch_size
        rows = self.question.strategy.seq_length * b / self.question.strategy.cp
        if self.question.strategy.cross_entropy_fusion == "te":
            return "ce_fusion", [2 * self.e * z + 4 * rows]
        return "ce", [14 * z + 4 * b] if backward else [38 * z + 8 * rows + 8 * b]

    def lookup(self, placed: Placed, index: int, backward: bool) -> tuple[str, list[float]]:
        op, strategy = placed.block.ops[index], self.question.strategy
        table = self.held(placed, op.inputs[1])
        tokens = strategy.seq_length * strategy.micro_batch_size / strategy.cp
        return "default", [8 * table] if backward else [4 * tokens + self.e * (table + tokens * self.question.model.hidden_size)]

    def quantise(self, placed: Placed, index: int, backward: bool) -> tuple[str, list[float]]:
        return "default", [] if backward else [self.held(placed, placed.block.ops[index].inputs[0]) * (self.e + 1)]


_MOVES: dict[str, Callable[[Kernels, Placed, int, bool], tuple[str, list[float]]]] = {
    "norm": Kernels.norm,
    "activation": Kernels.activation,
    "permute": Kernels.permute,
    "unpermute": Kernels.unpermute,
    "cross_entropy": Kernels.loss,
    "embed": Kernels.lookup,
    "quantise": Kernels.quantise,
}
MOVED = tuple(_MOVES)
