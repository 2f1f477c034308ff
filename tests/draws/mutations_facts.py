"""The facts that tests/draws/mutations.py breaks: of operations, placement, lowering and frameworks (mutations_costs.py has the others)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """`says`, in words; in `file`, under symsim/, it stands as `text`; `changed` takes its place. tests: files of tests/, or tests in them."""

    file: str
    says: str
    text: str
    changed: str
    tests: tuple[str, ...]


def of(file: str, *facts: tuple[str, str, str, str]) -> tuple[Fact, ...]:
    """Facts of one file: what each says, its text, what takes its place, and its tests, parted by spaces."""
    return tuple(Fact(file, says, text, changed, tuple(f"test_{t}" for t in tests.split())) for says, text, changed, tests in facts)


OPERATIONS = of(
    "ir/operations.py",
    (
        "a sum over a split dimension is partial",
        '"einsum": Operation("product", Projection, "contracted", "einsum"',
        '"einsum": Operation("product", Projection, "", "einsum"',
        "operations.py",
    ),
    (
        "the experts' products are partial sums too",
        '"grouped": Operation("product", Projection, "contracted"',
        '"grouped": Operation("product", Projection, ""',
        "sent.py",
    ),
    ("a lookup in a split table is partial", '"lookup", partial="V")', '"lookup")', "operations.py"),
    ("attention has a ring inside", 'inner="ring"', 'inner=""', "operations.py context_parallel.py"),
    (
        "a softmax over a split vocabulary is reduced",
        '("loss", CrossEntropy, inner="softmax"',
        '("loss", CrossEntropy, inner=""',
        "operations.py comm.py",
    ),
    ("so are statistics over split channels", 'Norm, inner="statistics"', 'Norm, inner=""', "operations.py"),
    ("loads of experts are summed", 'TopK, inner="balance"', 'TopK, inner=""', "operations.py"),
    (
        "a slice is gathered in backward",
        'transpose=between("shard", "whole")',
        'transpose="none"',
        "operations.py comm.py",
    ),
    (
        "a gather is scattered only where its gradient is partial",
        "where_partial=True",
        "where_partial=False",
        "operations.py",
    ),
    (
        "gathered heads of few groups are scattered in backward",
        '_sends(_REDISTRIBUTION, "all_gather")',
        'replace(_REDISTRIBUTION, sends="all_gather", transpose="none")',
        "operations.py",
    ),
    ("a collective that sums completes what is partial", "return bool(self.sends) and COLLECTIVES[self.sends].sums", "return False", "sent.py"),
    ("a choice of experts moves rows", 'TopK, inner="balance", bound="permute"', 'TopK, inner="balance"', "operations.py"),
    ("checkpointing of products keeps einsums", 'stored_by=("sac_mm", "sac_mm_attn")', 'stored_by=("sac_mm_attn",)', "operations.py activations.py"),
    ("and not what experts make", 'bound="gemm", stored_by=("sac_mm_attn",)', 'bound="gemm", stored_by=("sac_mm", "sac_mm_attn")', "operations.py"),
    ("a root keeps its result", '"rsqrt": Operation("primitive", keeps="result"', '"rsqrt": Operation("primitive"', "activations.py"),
    ("a power's derivative is three kernels", "between=2, derivative=(2, 2, 3)", "between=2", "autograd.py"),
    (
        "a product keeps the partner of what needs a gradient",
        '"mul": Operation("primitive", keeps="partners")',
        '"mul": Operation("primitive", keeps="inputs")',
        "eager_bytes.py",
    ),
    (
        "a chosen row keeps its index",
        '"index": Operation("primitive", bound="permute", keeps="integers", scatters=True)',
        '"index": Operation("primitive", bound="permute", scatters=True)',
        "eager_bytes.py",
    ),
    ("dropout keeps its mask", '("topk", "masked_fill", "dropout")', '("topk", "masked_fill")', "korthikanti.py eager_bytes.py"),
)

EXCEPTIONS = of(
    "ir/exceptions.py",
    (
        "the router multiplies above FP8",
        'frozenset({"router", "shared_expert_gate", "lm_head",',
        'frozenset({"shared_expert_gate", "lm_head",',
        "operations.py",
    ),
    ("the output projection keeps its input as it is", 'frozenset({"o_proj"})', "frozenset()", "operations.py"),
)

AUTOGRAD = of(
    "cost/autograd.py",
    (
        "gradients of what several operations read are added up",
        "return [3 * _bytes(placed, t) for t in own",
        "return [0 * _bytes(placed, t) for t in own",
        "autograd.py",
    ),
    (
        "the gradient of a factor that was repeated is summed",
        "        made.append(whole + _bytes(placed, operand))\n",
        "        pass\n",
        "autograd.py",
    ),
)

TRANSPOSITION = of(
    "ir/einsum.py",
    ("an operand's gradient is of the result and the others", "if i != operand)", "if i == operand)", "flops.py einsum.py"),
    (
        "a chosen dimension is not multiplied out",
        "if d not in dict(self.chosen)), *self.contracted)",
        "), *self.contracted, *dict(self.chosen))",
        "flops.py",
    ),
)

PLACEMENT = (
    of(
        "placement/names.py",
        ("key/value heads lie on tp", '("a", "g", "f", "f_s"', '("a", "f", "f_s"', "placement.py"),
        ("pairs of heads lie on tp", '"a_2", "g_2")', '"g_2")', "differential_attention.py"),
        ("the vocabulary lies on tp", '"f_s", "V", "h_o"', '"f_s", "h_o"', "placement.py"),
        ("experts' widths lie on etp", '"f_e": Axes(("etp",))', '"f_e": Axes(("tp",))', "placement.py"),
        (
            "the sequence lies on tp where nothing else does",
            'Axes(context, left=sequence),\n        "R"',
            'Axes(context),\n        "R"',
            "placement.py",
        ),
        ("rows of experts lie on etp where nothing else does", '"R": Axes(left=("etp",))', '"R": Axes()', "sent.py"),
        ("Ulysses moves the sequence to the heads", '{"a2a": ("cp",), "a2a+p2p"', '{"a2a": (), "a2a+p2p"', "context_parallel.py placement.py"),
        ("gradients are split from ZeRO 2 on", "replicas if strategy.zero >= 2", "replicas if strategy.zero >= 1", "memory.py"),
        ("optimizer states are split from ZeRO 1 on", "replicas if strategy.zero >= 1", "replicas if strategy.zero >= 2", "memory.py"),
        ("parameters are split under ZeRO 3", '"parameters": replicas if strategy.zero == 3 else ()', '"parameters": ()', "memory.py"),
    )
    + of(
        "placement/mesh.py",
        ("dp does not divide a rank's own micro-batch", 'for a in axes if a != "dp"', "for a in axes", "megatron.py"),
    )
    + of(
        "placement/sizes.py",
        (
            "a causal query sees half of the keys and its own",
            "most - most * (most - 1) / (2 * s)",
            "most - most * most / (2 * s)",
            "utilisation.py count.py",
        ),
        ("tokens are split over tp under sequence parallelism", 'mesh.degree("tp") if mesh.sequence_parallel else 1', "1", "megatron.py"),
    )
)

COLLECTIVES = of(
    "ir/collectives.py",
    ("a scatter is gathered in backward", '"partial", "shard", "all_gather"', '"partial", "shard", ""', "operations.py"),
    ("a gather is scattered in backward", '"shard", "whole", "reduce_scatter"', '"shard", "whole", "all_reduce"', "operations.py"),
    ("a sum is whole in backward already", '"whole",\n        "",', '"whole",\n        "all_reduce",', "operations.py"),
    ("an exchange of dimensions is exchanged back", '"shard", "shard", "all_to_all"', '"shard", "shard", "all_gather"', "operations.py"),
    ("what is gathered comes from every rank", "handed_in * group if", "handed_in if", "megatron.py"),
    ("an all-reduce goes there and back", "passes=2", "passes=1", "collectives.py"),
) + of(
    "ir/messages.py",
    ("a gathered buffer is what is received", "self.receive_elements if", "self.send_elements if", "collectives.py"),
)

COMMUNICATE = of(
    "lowering/communicate.py",
    ("a partial sum that is wanted split is scattered", '"whole" if target is None', '"whole" if target is None or source == PARTIAL', "comm.py"),
    ("attention reads keys and values whole beside a ring", "and position in (1, 2)", "and position in (1,)", "context_parallel.py"),
    ("the dimensions of a view that gathered stay whole in memory", "view_of=name if gathered else None", "view_of=None", "megatron_rules.py"),
) + of(
    "lowering/exchange.py",
    ("counts of tokens are int64", 'group), "int64"', 'group), "int32"', "megatron.py comm.py"),
    ("and are gathered over etp and ep", '("etp", "ep") if row.gathers', '("ep",) if row.gathers', "megatron.py"),
    ("an exchange sends in backward what it got", "(what, other, own, dtype))", "(what, own, other, dtype))", "megatron.py operations.py"),
)

DIFFERENTIATE = of(
    "lowering/differentiate.py",
    (
        "a partial gradient is summed over the axes that the input lacks",
        'if a not in ("dp", "ep"))',
        'if a not in ("dp", "ep", "tp"))',
        "comm.py megatron.py",
    ),
    ("experts' gradients are summed over their own ranks", '({"edp"} if placed.mesh.active("edp") else set())', "set()", "sent.py"),
    (
        "a bias sees the tokens of its rank",
        "if d not in bias.dims for a in layout[d]}",
        "if d in bias.dims for a in layout[d]}",
        "sent.py",
    ),
    ("a quantised tensor's gradient is not quantised", "placed.mesh.precision if dtype in NARROW else dtype", "dtype", "sent.py"),
    (
        "keys and values go round in c - 1 steps",
        '"p2p", axis, degree, n, n, dtype, what, degree - 1)',
        '"p2p", axis, degree, n, n, dtype, what, degree)',
        "context_parallel.py",
    ),
    (
        "a norm's statistics are fp32",
        '"all_reduce", a, mesh.degree(a), n, n, "fp32"',
        '"all_reduce", a, mesh.degree(a), n, n, "bf16"',
        "operations.py",
    ),
    (
        "sequences of a batch are balanced apart",
        'placed.block.dims["b"].size if balancing == "seq_aux_loss" else 1',
        "1",
        "sent.py",
    ),
    ("loads are summed over dp for the global loss", '("dp",) if balancing == "global_aux_loss" else ()', "()", "sent.py"),
)

REMEMBER = of(
    "lowering/remember.py",
    (
        "a gathered input is kept as its shard",
        "name = op.inputs[0]\n        op = placed.block.producer(name)\n    back",
        "break\n    back",
        "megatron.py",
    ),
    ("an output that comes back is kept where it went", "return name if back is None else back.outputs[0]", "return name", "context_parallel.py"),
    ("what runs again from narrow copies casts nothing", "and not _narrows(block, op, narrow)}", "}", "recompute_operations.py"),
    ("a storage is kept once", "roots.setdefault(root.name, {})", "roots.setdefault(name, {})", "activations.py"),
    ("what discards its results keeps none", "if discarding:", "if False:", "kept.py"),
    ("an early stop runs nothing after the last kept tensor", "if i < last or (i == last and runs_last)", "if i <= last", "activations.py flops.py"),
    ("an auxiliary loss is not taken in the pass that runs again", '.inner != "balance")', '.inner != "tokens")', "megatron_rules.py"),
    ("a split checkpoint holds a share", "replace(s, elements=s.elements / degree)", "s", "kept.py"),
)

KERNELS = (
    of(
        "frameworks/fuse_te.py",
        ("LayerNorm keeps its means", 'statistics.append(k.make("mu", rows, "fp32", "index"))', "pass", "korthikanti.py megatron.py"),
        ("statistics are fp32", 'k.make("rsigma", rows, "fp32"', 'k.make("rsigma", rows, "bf16"', "megatron.py"),
        (
            "the log-sum-exp is fp32",
            'op.of(Attention).heads, "s"], "fp32", "index")',
            'op.of(Attention).heads, "s"], "bf16", "index")',
            "megatron.py",
        ),
        (
            "cosine and sine are both kept",
            'k.tensors[op.outputs[0]].dtype, "index") for n in ("cos", "sin")]\n    inputs',
            'k.tensors[op.outputs[0]].dtype, "index") for n in ("cos",)]\n    inputs',
            "megatron.py",
        ),
        (
            "residual dropout keeps a byte",
            'k.make("mask", k.dims_of(op.outputs[0]), "bool", "index")]\n    if k.profile.strategy.fp32',
            'k.make("mask", k.dims_of(op.outputs[0]), "int64", "index")]\n    if k.profile.strategy.fp32',
            "korthikanti.py",
        ),
        ("ids of a split table are masked", 'k.make("ids_masked", k.dims_of(ids), "int64", "index"), ', "", "megatron.py"),
        (
            "the unfused loss keeps an fp32 softmax",
            'k.make("softmax", k.dims_of(logits), "fp32"',
            'k.make("softmax", k.dims_of(logits), "bf16"',
            "megatron.py",
        ),
        (
            "the native loss sends its two sums together",
            '("all_reduce", 2, "fp32", "predicted logit',
            '("all_reduce", 1, "fp32", "predicted logit',
            "sent.py",
        ),
        (
            "a depth's split loss gathers each rank's best token",
            '("all_gather", 1, "int64", "best token")',
            '("all_gather", 1, "int32", "best token")',
            "sent.py",
        ),
        ("a sigmoid router keeps the sum it divides by", 'extra.append(k.make("sum", dims[:-1], "fp32", "index"))', "pass", "megatron_rules.py"),
        (
            "attention's output gate is a sigmoid in fp32",
            'SIGMOID_IN_FP32 = ("attention",)',
            "SIGMOID_IN_FP32: tuple[str, ...] = ()",
            "kept.py",
        ),
    )
    + of(
        "frameworks/fuse_te_experts.py",
        ("the routing map is of bytes", 'Sent("routing map", of_experts, "bool"', 'Sent("routing map", of_experts, "int64"', "megatron.py"),
        ("gathered probabilities have a gradient", '_weight_dtype(k), "gradient of probabilities")', '_weight_dtype(k), "")', "megatron.py"),
        ("a fused permutation keeps a map of 2 E + 1", 'Dim(2 * k.dims["E_r"].size + 1)', 'Dim(2 * k.dims["E_r"].size)', "kept.py"),
        ("routing weights in fp32 make the sum over etp fp32", "reduce_dtype=_weight_dtype(k), ", "reduce_dtype=None, ", "sent.py"),
        ("the second fused product's input is cast by the first", "        cast = cast.inside\n", "        cast = cast\n", "hbm_bytes.py"),
        ("pages hold matrices of rows alone", "in k.dims_of(t)[:-1] and", "in k.dims_of(t) and", "flex_dispatcher.py"),
    )
    + of(
        "frameworks/recipes.py",
        (
            "MXFP8 has a scale for 32 elements",
            '"fp8",\n        32,\n        "fp8",\n',
            '"fp8",\n        128,\n        "fp8",\n',
            "kept.py",
        ),
    )
    + of(
        "frameworks/choices.py",
        ("TransformerEngine's counts are gathered", 'counts="all_gather",', 'counts="all_to_all",', "megatron.py"),
        ("the rotary key's gradient is not reduced", 'unreduced=frozenset({"rotary_key"})', "unreduced=frozenset()", "megatron.py"),
        (
            "PyTorch's ring returns gradients home",
            'Ring(gathers=True, returns=True, gradient_dtype="fp32")',
            'Ring(gathers=True, gradient_dtype="fp32")',
            "comm.py",
        ),
        ("and passes them in fp32", 'Ring(gathers=True, returns=True, gradient_dtype="fp32")', "Ring(gathers=True, returns=True)", "comm.py"),
        ("DTensor keeps what it gathered", "keeps_gathered=True,  # DTensor", "keeps_gathered=False,  # DTensor", "comm.py frameworks.py"),
        ("PyTorch's gradients come into being in backward", "main_gradients=False,", "main_gradients=True,", "memory.py"),
        ("unfused rotary embedding is six kernels each way", '"rope": (6, 6)', '"rope": (1, 6)', "kept.py"),
        ("attention's backward is three", '"attention": (1, 3)', '"attention": (1, 1)', "kept.py"),
    )
    + of(
        "frameworks/fuse_eager.py",
        (
            "log_softmax is kept in the type of the logits",
            'k.make("log_softmax", whole, k.tensors[logits].dtype',
            'k.make("log_softmax", whole, "bf16"',
            "activations.py memory.py",
        ),
        (
            "three reductions of a loss over a split vocabulary",
            '("maximum", "sum of exponentials", "loss")',
            '("maximum", "sum of exponentials")',
            "comm.py",
        ),
        ("grouped products keep the offsets of the experts", "[op.inputs[0], offsets, *", "[op.inputs[0], *", "activations.py eager_bytes.py"),
        ("expert weights index rows anew on the way back", '[run(k, "index", [weighted, inverse])]', "[weighted]", "activations.py eager_bytes.py"),
    )
)

FACTS = (*OPERATIONS, *EXCEPTIONS, *AUTOGRAD, *TRANSPOSITION, *PLACEMENT, *COLLECTIVES, *COMMUNICATE, *DIFFERENTIATE, *REMEMBER, *KERNELS)
