"""adapt: what becomes of a block's kernels where not all parameters are trained.

A linear map y = x W that is a target of adapters becomes y = x W + scale (x A) B: two products over a rank r, whose placements,
messages, transposes and saved tensors follow like any other's. Then what no gradient needs is dropped: of a frozen
weight its gradient, and the input that only that would read; before the lowest trained parameter all of backward.

Sources: LoRA, arXiv:2106.09685; peft tuners/lora/layer.py; what PyTorch keeps: tools/autograd/derivatives.yaml (mm keeps an operand for the
gradient of the other alone); TransformerEngine module/linear.py (the input is kept where the weight needs a gradient).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from symsim.algebra.expr import expr, symbol
from symsim.frameworks.eager_modules import module_code, of_its_own
from symsim.frameworks.framework import Framework
from symsim.frameworks.kernels import Profile
from symsim.frameworks.recompute import KERNEL
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.tuning import Ranked, TunedKind, named, ranked
from symsim.ir.block import Block, Dim, Op, Tensor, TensorRole, rebuild
from symsim.ir.einsum import Einsum
from symsim.ir.operations import OPERATIONS, PRODUCTS, Attention, Attributes, Cast, LinearCrossEntropy, Plain, Projection, Rotation
from symsim.lowering.marked import gradient_enters

ALL_LINEAR = "all_linear"
RANK, EXPERT_RANK = "r", "r_e"
TURNED, BELOW = "o", "o_below"
AGAIN = "dora_again"
STACKED = frozenset({"n_e"})
"""Dimensions that count linear modules of one shape, each with an adapter of its own."""

# What Megatron-Core calls the linear maps, by the modelling code's names of their weights
MEGATRON_NAMES = {
    "v_proj": "linear_qkv",
    "o_proj": "linear_proj",
    "up_proj": "linear_fc1",
    "down_proj": "linear_fc2",
    "q_a_proj": "linear_q_down_proj",
    "q_b_proj": "linear_q_up_proj",
    "kv_a_proj_with_mqa": "linear_kv_down_proj",
    "kv_b_proj": "linear_kv_up_proj",
    "in_proj": "in_proj",
    "out_proj": "out_proj",
}


def module_names(op: Op) -> frozenset[str]:
    """The names under which a linear map is a target: its own with those of its scopes, Megatron-Core's, and, where it is a product of one
    weight, that weight's, alone and with those of its scopes (`q_proj`, `attention.q_proj`)."""
    labels = op.of(Projection).labels
    own = (op.name.rsplit(".", 1)[-1],) if op.name.rsplit(".", 1)[-1] in labels else labels
    parts = op.name.split(".")
    scopes = {".".join(parts[:n]) for n in range(1, len(parts) + 1)} | {parts[-1], op.module}
    weights = [{label, name} for label, name in map_names(op).items() if label in own]
    return frozenset(scopes | {MEGATRON_NAMES[label] for label in labels if label in MEGATRON_NAMES} | (weights[0] if len(weights) == 1 else set()))


def map_names(op: Op) -> dict[str, str]:
    """The linear maps of an operation, and what their weights are called with their scopes."""
    named = (t.removesuffix(".weight") for t in op.inputs if t.endswith(".weight"))
    found = {name.rsplit(".", 1)[-1]: name for name in named}
    return {label: found.get(label, label) for label in op.of(Projection).labels}


def is_joint(op: Op, framework: str, model: Architecture) -> bool:
    """Whether the weights of a linear map are one product: always under te, else where the modelling code has one weight."""
    shared = module_code(model).shared_gate_up_joined and op.module == "shared_experts"
    return len(op.einsums) > 1 and (framework == "te" or op.of(Projection).fused or shared) or bool(op.einsums[0].chosen)


def target_names(entries: Iterable[str] | None, at: int | None, anywhere: bool = False) -> frozenset[str]:
    """What entries of target_modules name in layer `at` (None: in no layer), `layers` being all_linear. anywhere: in any layer."""
    meant = (entry for entry in map(named, entries or ()) if anywhere or entry.holds({entry.name}, at))
    return frozenset(ALL_LINEAR if entry.name == "layers" else entry.name for entry in meant)


def own_rank(names: Collection[str], strategy: Strategy, at: int | None) -> Ranked | None:
    """The entry of rank_pattern that says the rank of an adapter beside a linear map of these names in layer `at`: the first that means it (peft
    tuners/lora/model.py)."""
    return next((one for one in map(ranked, strategy.rank_pattern or ()) if one.entry.holds({"layers", *names}, at)), None)


def layer_of(block: Block, model: Architecture) -> int | None:
    """A layer of a block's kind, where a strategy tells some apart."""
    kind = model.layer_kinds.get(block.name)
    return kind.at if isinstance(kind, TunedKind) else None


def is_target(op: Op, strategy: Strategy, framework: Framework, model: Architecture, at: int | None, anywhere: bool = False) -> bool:
    """Whether a linear map of layer `at` (anywhere: of any) has an adapter. Of a router that is a linear module all_linear means that too."""
    labels, targets = set(op.of(Projection).labels), target_names(strategy.target_modules, at, anywhere)
    excluded = target_names(strategy.exclude_modules, at)
    if ALL_LINEAR in excluded or not module_names(op).isdisjoint(excluded) or (not framework.adapts_experts and of_its_own(op, model)):
        return False
    router = not framework.adapts_experts and module_code(model).router_is_linear
    linear = not labels & (framework.unadapted - {"router" if router else ""}) and (framework.adapts_experts or not op.einsums[0].chosen)
    return (ALL_LINEAR in targets and linear) or not module_names(op).isdisjoint(targets)


def adapt(block: Block, profile: Profile) -> Block:
    """A block of kernels with its adapters, and without what no gradient needs."""
    if profile.strategy.tuner_type != "full":
        block = _with_adapters(block, profile)
    enters = gradient_enters(block, profile.model, profile.strategy)
    if enters and all(t.gradient for t in block.parameters()):
        return block
    return _without_needless(block, enters)


def _with_adapters(block: Block, profile: Profile) -> Block:
    made, at = _Adapters(block, profile), layer_of(block, profile.model)
    for op in block.ops:
        if "mlp" in profile.strategy.fused_adapters and op.name.startswith("mlp.act"):
            op = replace(op, regions=op.regions | {KERNEL})  # made again from gate and up as their gradients are
        if op.kind in PRODUCTS and is_target(op, profile.strategy, profile.framework, profile.model, at):
            (made.beside if profile.strategy.tuner_type == "lora" else made.before)(op)
        else:
            made.ops.append(op)
    o = symbol(TURNED)
    own = dict(sorted(made.ranks.items())) if profile.strategy.tuner_type == "lora" else {TURNED: Dim(o), BELOW: Dim((o - 1) / 2)}
    return rebuild(block, made.ops, made.tensors, dims={**block.dims, **own} if len(made.ops) > len(block.ops) else block.dims)


def _function(op: Op) -> str:
    """Which function of adapters a linear map is in (axolotl kernels/lora.py LoRA_QKV, LoRA_O, LoRA_MLP)."""
    labels = op.of(Projection).labels
    if op.name.startswith("mlp."):
        return "mlp"
    return "o" if "o_proj" in labels else "qkv" if {"q_proj", "k_proj", "v_proj"} & set(labels) else ""


class _Adapters:
    """A block's operations with adapters beside some of them."""

    def __init__(self, block: Block, profile: Profile):
        self.block, self.profile = block, profile
        self.tensors = dict(block.tensors)
        self.ops: list[Op] = []
        self.again = ""
        self.ranks: dict[str, Dim] = {}
        # a layer without a weight of its own is an earlier one that runs again, with its adapters
        self.borrows = all(t.borrowed for t in block.parameters())

    def _rank(self, op: Op) -> str:
        """The dimension over which an adapter's products go, which the block has from here on."""
        own = own_rank(module_names(op), self.profile.strategy, layer_of(self.block, self.profile.model))
        of_experts = op.einsums[0].chosen and self.profile.strategy.lora_expert_rank is not None
        rank = f"{RANK}_{own.rank}" if own is not None else EXPERT_RANK if of_experts else RANK
        self.ranks[rank] = Dim(expr(own.rank) if own is not None else symbol(rank))
        return rank

    def beside(self, op: Op) -> None:
        """x W of `op`, and the kernels of (x A) B; their sum has the name that the result had."""
        (y,), (says,) = op.outputs, op.einsums
        self.again = "_again" if any(o.name == op.name for o in self.ops) else ""  # a module that is called twice
        base = f"{y}.base"
        self.tensors[base] = replace(self.tensors[y], name=base)
        self.tensors[y] = replace(self.tensors[y], view_of=None)
        self.ops.append(replace(op, outputs=(base,)))
        chosen = tuple(d for d, _ in says.chosen)
        batch = tuple(d for d in says.result if d in says.operands[0])
        new = tuple(d for d in says.result if d not in says.operands[0])
        functions = self.profile.strategy.fused_adapters
        x, fused = self._unquantised(op.inputs[0]), _function(op) in functions
        # a function of its own keeps its input, and makes again what the first product made
        again = frozenset({KERNEL}) if fused or ("each" in functions and not op.einsums[0].chosen) else frozenset()
        if self.profile.strategy.autocast and not fused:  # peft tuners/tuners_utils.py _cast_input_dtype: the adapter's type
            x = self._cast(op, "lora_input", x, "fp32", frame=op.name)
        after = self.profile.strategy.lora_dropout_position == "post"
        if self.profile.strategy.lora_dropout and not after:
            x = self._dropped(op, x)
        apart = tuple(d for d in says.operands[1] if d in STACKED)
        rank = self._rank(op)
        within = (*batch, *(d for d in apart if d not in batch), rank)
        down = Einsum((says.operands[0], (*chosen, *apart, rank, *says.contracted)), within, says.chosen)
        up = Einsum((within, (*chosen, *apart, *(d for d in new if d not in apart), rank)), says.result, says.chosen)
        norm = self._norm_of_columns(op) if self.profile.strategy.use_dora else ""
        low = self._product(op, "lora_A", x, down, regions=op.regions | again)
        copy = f"{op.name}.lora_A.copy.out{self.again}"
        stays = (copy,) if again and copy in self.tensors else ()
        # experts and magnitudes are scaled with what is added in any case
        early = self.profile.assumptions["lora_scaling"] == "rank" and not norm and not chosen
        if early:
            low = self._made(op, "scale", "lora_scale", [low], within, regions=op.regions | again)
        high = self._product(op, "lora_B", low, up, stays, frame=f"{op.name}.dora_" if norm else "")
        if self.profile.strategy.lora_dropout and after:
            high = self._dropped(op, high)
        if norm:
            self._with_magnitude(op, x, base, high, norm, y)
            return
        if fused:
            self._emit(op, "added_in", "lora_add", [base, high], [y])
            return
        if early or self.profile.framework.scales_as_it_adds:
            self._emit(op, "plus" if early else "plus_scaled", "lora_add", [base, high], [y])
            return
        scaled = self._tensor(op, "lora_scale.out", self.tensors[y].dims, self.tensors[y].dtype)
        self._emit(op, "scale", "lora_scale", [high], [scaled])
        self._emit(op, "plus", "lora_add", [base, scaled], [y])

    def _dropped(self, op: Op, x: str) -> str:
        dropped = self._tensor(op, "lora_dropout.out", self.tensors[x].dims, self.tensors[x].dtype)
        mask = self._tensor(op, "lora_dropout.mask", self.tensors[x].dims, "bool", "index")
        self._emit(op, "dropout", "lora_dropout", [x], [dropped, mask], saves=(mask,))
        return dropped

    def before(self, op: Op) -> None:
        """(x R) W: R turns every o inputs by an orthogonal matrix, which four powers of a skew one make (Cayley's transform as a Neumann series;
        peft tuners/oft/layer.py OFTRotationModule). What is skew has (o - 1)/2 numbers an input."""
        self.again = "_again" if any(o.name == op.name for o in self.ops) else ""
        (says,), x, dtype = op.einsums, op.inputs[0], self.profile.strategy.precision
        inputs = says.contracted
        skew = self._tensor(op, "oft_R.weight", (*inputs, BELOW), dtype, "parameter", role="weight", owner=f"{op.name}.oft_R")
        powers = [self._tensor(op, f"oft_{name}", (*inputs, TURNED), dtype) for name in ("turn", "skew", "squared", "cubed")]
        each = (*inputs, TURNED, TURNED)
        both = tuple((label, each) for label in ("left", "right"))
        self._emit(op, "orthogonal", "oft_R", [skew], powers, saves=tuple(powers[1:]), products=(each,) * 3, backward_products=both * 3)
        turned = self._tensor(op, "oft_rotated", self.tensors[x].dims, self.tensors[x].dtype)
        of_rows = (*self.tensors[x].dims, TURNED)
        at, gradients = Rotation("dX"), (("dX", of_rows), ("dR", of_rows))
        self._emit(op, "rotate", "oft_rotate", [x, powers[0]], [turned], (x, powers[0]), at, products=(of_rows,), backward_products=gradients)
        laid = self._tensor(op, "oft_laid", self.tensors[x].dims, self.tensors[x].dtype)
        self._emit(op, "copy", "oft_lay", [turned], [laid])
        self.ops.append(replace(op, inputs=(laid, *op.inputs[1:]), saves=tuple(laid if t == x else t for t in op.saves)))

    def _with_magnitude(self, op: Op, x: str, base: str, high: str, norm: str, y: str) -> None:
        """y = base + (m/n - 1) base + m/n scale (x A) B: m is trained, n the norms of the columns of W + scale A B, which has no gradient.
        Under dropout of x, x W is computed again of what is left of it (peft tuners/lora/dora.py)."""
        kind, columns, wide = self.tensors[y].dtype, self.tensors[norm].dims, self.tensors[y].dims
        magnitude = self._tensor(op, "magnitude", columns, kind, "parameter", role="weight", owner=f"{op.name}.magnitude")
        if op.of(Projection).bias:
            base = self._made(op, "sub", "dora_bias", [base], wide)
        if self.profile.strategy.lora_dropout and self.profile.strategy.lora_dropout_position == "pre":
            base = self._again(op, x)
        factor = self._made(op, "div", "dora_factor", [magnitude, norm], columns, saves=(norm,), frame=f"{op.name}.dora_")
        less = self._made(op, "sub", "dora_less", [factor], columns)
        own = self._made(op, "mul", "dora_base", [less, base], wide, saves=(less, base))
        of_adapter = self._made(op, "mul", "dora_adapter", [factor, high], wide, saves=(factor, high))
        scaled = self._made(op, "scale", "lora_scale", [of_adapter], wide)
        added = self._made(op, "plus", "dora_add", [own, scaled], wide)
        self._emit(op, "plus", "lora_add", [f"{y}.base", added], [y])

    def _norm_of_columns(self, op: Op) -> str:
        """The norms of the columns of W + scale A B, with no gradient. A B is what an identity becomes, and stays until the call returns."""
        (says,), weight = op.einsums, self.tensors[op.inputs[1]]
        chosen, new = tuple(d for d, _ in says.chosen), tuple(d for d in says.result if d not in says.operands[0])
        apart = tuple(d for d in says.operands[1] if d in STACKED and d not in new)
        columns = (*chosen, *apart, *new)
        a, b = f"{op.name}.lora_A.weight", f"{op.name}.lora_B.weight"
        delta, scaled, summed, norm = (
            self._tensor(op, f"dora_{name}", dims, self.tensors[op.outputs[0]].dtype)
            for name, dims in (("delta", weight.dims), ("scaled", weight.dims), ("summed", weight.dims), ("norm", columns))
        )
        eye = self._tensor(op, "dora_eye", (*says.contracted, *says.contracted), weight.dtype)
        rank = self._rank(op)
        low = self._tensor(op, "dora_low", (*says.contracted, rank), weight.dtype)
        frame = f"{op.name}.dora_"
        self._emit(op, "constant", "dora_eye", [], [eye], frame=frame, recorded=True)
        down, up = (*says.contracted, *says.contracted, rank), (*says.contracted, rank, *columns)
        self._emit(op, "column_product", "dora_low", [a, eye], [low], products=(down,), frame=frame, recorded=True)
        self._emit(op, "column_product", "dora_delta", [b, low], [delta], products=(up,), frame=frame)
        self._emit(op, "column_norm", "dora_scaled", [delta], [scaled])
        self._emit(op, "column_norm", "dora_summed", [weight.name, scaled], [summed])
        self._emit(op, "column_norm", "dora_norm", [summed], [norm], frame=frame)
        return norm

    def _again(self, op: Op, x: str) -> str:
        """The weight's product with what dropout has left of its input."""
        y = self._tensor(op, "dora_again.out", self.tensors[op.outputs[0]].dims, self.tensors[op.outputs[0]].dtype)
        attrs = Projection((AGAIN,))
        self._emit(op, op.kind, AGAIN, [x, op.inputs[1]], [y], saves=(x,), einsums=op.einsums, products=op.products, attrs=attrs)
        return y

    def _made(self, op: Op, kind: str, name: str, inputs: list[str], dims: tuple[str, ...], saves: tuple[str, ...] = (), **of: Any) -> str:
        made = self._tensor(op, f"{name}.out", dims, self.tensors[op.outputs[0]].dtype)
        self._emit(op, kind, name, inputs, [made], saves=saves, **of)
        return made

    def _unquantised(self, x: str) -> str:
        """What an FP8 copy is a copy of: adapters multiply in the type of the computation."""
        return next((o.inputs[0] for o in self.ops if x in o.outputs and isinstance(o.attrs, Cast)), x)

    def _product(self, op: Op, which: str, x: str, says: Einsum, stays: tuple[str, ...] = (), **of: Any) -> str:
        """stays: what is kept besides its own operands."""
        precision = self.profile.strategy.precision
        wide = self.profile.strategy.autocast
        dtype = "fp32" if wide else precision
        weight = self._tensor(op, f"{which}.weight", says.operands[1], dtype, "parameter", role="weight", owner=f"{op.name}.{which}")
        copies = (self._cast(op, f"{which}.copy", weight, precision, "index"),) if wide else ()
        x = self._cast(op, f"{which}.cast", x, precision) if wide else x
        y = self._tensor(op, f"{which}.out", says.result, self.tensors[op.outputs[0]].dtype)
        extra = tuple(t for t in op.saves if says.chosen and self.tensors[t].kind == "index" and self.tensors[t].dtype == "int32")
        attrs = Projection((which,))
        self._emit(op, op.kind, which, [x, weight], [y], (x, *extra, *copies, *stays), attrs, einsums=(says,), products=(says.product,), **of)
        return y

    def _cast(self, op: Op, name: str, x: str, dtype: str, kind: str = "activation", frame: str = "") -> str:
        if self.tensors[x].dtype == dtype:
            return x
        made = self._tensor(op, f"{name}.out", self.tensors[x].dims, dtype, kind)
        self._emit(op, "cast", name, [x], [made], frame=frame)
        return made

    def _tensor(self, op: Op, name: str, dims: tuple[str, ...], dtype: str, kind: str = "activation", role: TensorRole = "", owner: str = "") -> str:
        made = f"{op.name}.{name}" if kind == "parameter" else f"{op.name}.{name}{self.again}"
        self.tensors[made] = Tensor(made, dims, dtype, kind, None, op.module, role, owner, borrowed=self.borrows and kind == "parameter")
        return made

    def _emit(
        self,
        op: Op,
        kind: str,
        name: str,
        inputs: list[str],
        outputs: list[str],
        saves: tuple[str, ...] = (),
        attrs: Attributes | None = None,
        **of: Any,
    ) -> None:
        called = f"{op.name}.{name}{self.again}"
        made = replace(op, kind=kind, name=called, inputs=tuple(inputs), outputs=tuple(outputs), attrs=attrs or Plain(), saves=saves)
        self.ops.append(replace(made, **{"einsums": (), "products": (), "backward_products": (), **of}))


def _without_needless(block: Block, enters: bool) -> Block:
    """The block with gradients only where something trained needs them, and what its operations keep for them."""
    flowing = {t.name for t in block.parameters() if t.gradient}
    flowing |= {n for n in block.inputs if enters and block.tensors[n].kind == "activation"}
    for op in block.ops:
        if any(t in flowing for t in op.inputs) and OPERATIONS[op.kind].transpose != "none":
            flowing |= {t for t in op.outputs if block.tensors[t].kind in ("activation", "index")}
    tensors = {n: t if t.kind == "parameter" else replace(t, gradient=n in flowing) for n, t in block.tensors.items()}
    quantised = {t for op in block.ops if isinstance(op.attrs, Cast) for t in op.outputs}
    ops = (_of_attention(op, flowing) if isinstance(op.attrs, Attention) and op.attrs.passes else op for op in block.ops)
    ops = (_of_loss(op, tensors) if isinstance(op.attrs, LinearCrossEntropy) else op for op in ops)
    ops = (_of_rotation(op, flowing) if isinstance(op.attrs, Rotation) else op for op in ops)
    return rebuild(block, [replace(op, saves=_needed(op, flowing, quantised)) for op in ops], tensors)


def _of_attention(op: Op, flowing: set[str]) -> Op:
    """Written-out attention of whose operands not all need a gradient: each of its two products keeps an operand for the other's."""
    at, (query, key, value) = op.of(Attention), (t in flowing for t in op.inputs[:3])
    scores = query or key
    needed = {op.inputs[0]: key, op.inputs[1]: query, op.inputs[2]: scores}
    for _, mask, kept in at.passes:
        needed |= {mask: scores, kept: scores}
    last = at.passes[-1][0]
    needed[last] = value or needed.get(last, False)
    runs = {"dV": value, "dP": scores, "dQ": query, "dK": key}
    products = tuple((label, dims) for label, dims in op.backward_products if runs.get(label, True))
    return replace(op, saves=tuple(t for t in op.saves if needed.get(t, scores)), backward_products=products)


def _of_rotation(op: Op, flowing: set[str]) -> Op:
    """A rotation of what needs no gradient: the turn itself is not kept, nor is the product of the input's gradient made."""
    if op.inputs[0] in flowing:
        return op
    return replace(op, saves=op.inputs[:1], backward_products=tuple(p for p in op.backward_products if p[0] != op.of(Rotation).of_input))


def _of_loss(op: Op, tensors: Mapping[str, Tensor]) -> Op:
    """A loss with the output layer in it, whose weight may be frozen: its gradient is neither made nor kept."""
    if any(tensors[t].gradient for t in op.inputs if tensors[t].kind == "parameter"):
        return op
    saves = tuple(t for t in op.saves if not t.startswith(f"{op.name}.weight_gradient"))
    outputs = tuple(t for t in op.outputs if not t.startswith(f"{op.name}.weight_gradient"))
    return replace(op, saves=saves, outputs=outputs, backward_products=tuple(p for p in op.backward_products if p[0] != "wgrad"))


def _needed(op: Op, flowing: set[str], quantised: set[str]) -> tuple[str, ...]:
    """Of what an operation keeps, what is left: nothing where no gradient passes it; of a product the input where its weight is trained,
    and of an elementwise product each operand whose partner needs a gradient."""
    if not any(t in flowing for t in op.inputs) or OPERATIONS[op.kind].transpose == "none":
        return ()
    if op.kind in PRODUCTS and op.inputs[1] not in flowing:
        return tuple(t for t in op.saves if t != op.inputs[0] and t not in quantised)
    if OPERATIONS[op.kind].keeps == "partners":
        left, right = op.inputs[:2]
        partner = {left: right, right: left}
        return tuple(t for t in op.saves if partner.get(t, left) in flowing)
    return op.saves
