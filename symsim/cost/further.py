"""Definitions that no output asks for unless by name: made on demand, from those of the derivation and from what it is made of.

G_BLOCK_OPERATION_KERNEL               backward FLOPs of an operation: of dgrad, of wgrad
N_BLOCK_TENSOR, P_BLOCK_TENSOR         parameters of a weight: of the model, and held by one rank
F_of_MODULE and G_, R_, A_stage_of_... totals by module, and of each block
tf_stage_of_MODULE and ti_, tw_, tr_   seconds of a stage's kernels by module, one micro-batch
A_BLOCK_between                        bytes kept from a block's input gradients to its weight gradients, where these wait
alive_dgrad_i                          micro-batches in flight on stage i until their input gradients, where a schedule splits them off
kv_cache_BLOCK, kv_cache               what a token adds to a cache of keys and values, or of the latents that they are made of
gpu_hours_per_trillion_tokens          hours of all ranks together
calls_..., handed_in_..., got_back_..., on_wire_...    of every message of stage i, and of those of one collective over one axis
call_seconds_..., ring_seconds_..., tree_seconds_...   seconds of one call of a message; of an all-reduce as either algorithm too
bubble_ratio, bubble_share             the pipeline's bubble over its ideal time, and over its time
bytes_TYPE, gemm_tile, bucket_size_...  numbers that formulas have as numbers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, expr, floor, of_largest, product, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, of_block, of_stage, of_step
from symsim.algebra.kinds import DEPTH, in_words
from symsim.algebra.quantity import BYTE, ELEMENT, FLOP, NONE, SECOND, Quantity, Unit, total
from symsim.cost.collectives import Network
from symsim.cost.count import counted_parameters, flops, label, multiplicity, parameter_elements
from symsim.cost.messages import of_blocks, of_the_rest
from symsim.cost.reduce import BUCKET_SIZE, BUCKET_SIZE_PER_RANK
from symsim.inputs import curves
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS, Block
from symsim.ir.messages import Message, merge
from symsim.ir.operations import OPERATIONS, PRODUCTS
from symsim.lowering.differentiate import elements
from symsim.lowering.lowered import Lowered
from symsim.lowering.remember import Remembered, kept_as
from symsim.pipeline.schedules import schedule_of
from symsim.pipeline.stages import runs

STREAM = "residual_stream"  # what no module has made

MESSAGES = {
    "calls": (NONE, "calls"),
    "handed_in": (BYTE, "bytes a rank hands in"),
    "got_back": (BYTE, "bytes a rank gets back"),
    "on_wire": (BYTE, "bytes a rank puts on the wire"),
}


def further(lowered: Lowered, book: Derivation, network: Network | None) -> Derivation:
    """The book with all others. network: what a message's seconds are made of, on a system."""
    _numbers(book, lowered)
    for name, remembered in lowered.blocks.items():
        _backward_flops(book, name, remembered)
        _weights(book, name, remembered)
        _between(book, lowered, name, remembered)
    _until_input_gradients(book, lowered.profile.strategy)
    _cache(book, lowered)
    _by_module(book, lowered)
    if network is not None:
        _seconds_by_module(book, lowered)
        _bubble(book)
        _hours(book)
    _messages(book, lowered, network)
    return book


def _numbers(book: Derivation, lowered: Lowered) -> None:
    """Numbers with a meaning of their own."""

    def define(name: str, value: int | Fraction, unit: Unit, meaning: str, source: str = "") -> None:
        book.define(Key(name, "sizes"), Quantity(expr(value), unit), meaning, unit=unit, latex=label(name), source=source)

    strategy = lowered.profile.strategy
    types = {t.dtype for block in lowered.blocks.values() for t in block.placed.block.tensors.values()}
    for kind in (k for k in WIDTHS if k in types | {strategy.precision, "fp32"}):
        define(f"bytes_{kind}", WIDTHS[kind], BYTE / ELEMENT, f"bytes of an element in {kind}")
    define("gemm_tile", curves.TILE, NONE, "rows and columns of the tiles that a matrix product is cut into", "symsim/inputs/curves.py")
    for name, size, what in (("bucket_size", BUCKET_SIZE, "in"), ("bucket_size_per_rank", BUCKET_SIZE_PER_RANK, "for each data rank, at least, in")):
        define(name, size, ELEMENT, f"gradients {what} a bucket", "Megatron-Core distributed/distributed_data_parallel.py")
    if strategy.recompute == "full":
        define("recompute_num_layers", strategy.recompute_num_layers, NONE, "layers that are recomputed together, or on each stage")


def _backward_flops(book: Derivation, name: str, remembered: Remembered) -> None:
    """G and Y of each backward kernel that multiplies; those of a product's two transposes are those of its forward."""
    placed = remembered.placed
    for kernel in (k for k in remembered.differentiated.backward if k.products):
        op = placed.block.ops[kernel.forward]
        for letter, forward, local in (("G", "F", False), ("Y", "X", True)):
            if op.kind in PRODUCTS:
                work = Quantity(of_block(forward, name, operation=op.name).expr, FLOP)
            else:
                work = flops(placed, kernel.forward, kernel.products, local=local)
            key = of_block(letter, name, operation=op.name, phase=kernel.label)
            latex = rf"{letter}^{{\mathrm{{{kernel.label}}}}}_{{{label(op.name)}}}"
            book.define(key, work, f"{op.name}, {kernel.label}{', on one rank' if local else ''}", unit=FLOP, latex=latex)


def _weights(book: Derivation, name: str, remembered: Remembered) -> None:
    placed = remembered.placed
    for tensor in counted_parameters(placed):
        for letter, local in (("N", False), ("P", True)):
            key = of_block(letter, name, tensor=tensor.name)
            size = Quantity(parameter_elements(placed, tensor, local=local), ELEMENT)
            meaning = f"parameters of {tensor.name}{', held by one rank' if local else ''}"
            book.define(key, size, meaning, unit=ELEMENT, latex=f"{letter}_{{{label(tensor.name)}}}")


def _between(book: Derivation, lowered: Lowered, name: str, remembered: Remembered) -> None:
    """What waits where a schedule splits backward: of every weight gradient the input that was saved and the result's gradient."""
    placed, gathered = remembered.placed, lowered.profile.framework.keeps_gathered
    kept: dict[tuple[bool, str], Quantity] = {}
    for kernel in (k for k in remembered.differentiated.backward if k.label == "wgrad"):
        op = placed.block.ops[kernel.forward]
        inputs = [t for t in op.saves if placed.block.tensors[t].kind != "parameter"]
        found = [(False, kept_as(placed, t, gathered)) for t in inputs] + [(True, t) for t in op.outputs]
        for gradient, tensor in found:
            own = placed.block.storage(tensor) if not gradient else placed.block.tensors[tensor]
            width = Quantity(expr(WIDTHS[own.dtype]), BYTE / ELEMENT)
            kept[gradient, own.name] = Quantity(elements(placed, own.name), ELEMENT) * width
    key = of_block("A", name, part="between")
    meaning = f"{in_words(name)}: bytes kept from the input gradients to the weight gradients, inputs and gradients of results"
    source = "Zero Bubble Pipeline Parallelism, arXiv:2401.10241, sec. 2 (M_W)"
    book.define(key, total(kept.values(), BYTE), meaning, unit=BYTE, latex=rf"A^{{\mathrm{{W}}}}_{{{label(name)}}}", source=source)


def _until_input_gradients(book: Derivation, strategy: Strategy) -> None:
    schedule = schedule_of(strategy)
    if schedule.splits_backward:
        held = schedule.before_input_gradients / (symbol("vpp") if strategy.vpp > 1 else 1)
        meaning = "micro-batches that stage i holds at once until their input gradients are made; of the others it needs less"
        latex = r"n^{(i)}_{\mathrm{dgrad}}"
        book.define(of_stage("alive_dgrad_i"), Quantity(held), meaning, unit=NONE, latex=latex, source=schedule.source)


def _cache(book: Derivation, lowered: Lowered) -> None:
    """Elements that a token adds to a cache, of a layer and of the model: attention's keys and values as they come, before they are
    repeated or laid out again; where they are projected up from a latent, what that reads."""
    source = "DeepSeek-V2, arXiv:2405.04434, Table 1"
    often, whole = multiplicity(lowered), ZERO
    for name, remembered in lowered.blocks.items():
        block = remembered.placed.block
        cores = [op for op in block.ops if OPERATIONS[op.kind].role == "attention"]
        if not cores or name == DEPTH:
            continue
        kept = dict.fromkeys(t for core in cores for read in core.inputs[1:3] for t in _made_of(block, read))
        elements_of = (product(block.dims[d].size for d in block.tensors[t].dims if d not in ("b", "s")) for t in kept)
        key = of_block("kv_cache", name)
        meaning = f"{in_words(name)}: keys and values of a token, or the latents that they are made of"
        made = book.define(key, Quantity(sum(elements_of, ZERO), ELEMENT), meaning, unit=ELEMENT, latex=label(key.text), source=source)
        whole = whole + made.expr * often[name]
    if whole:
        meaning = "keys and values of a token in all layers, or the latents that they are made of"
        book.define(Key("kv_cache"), Quantity(whole, ELEMENT), meaning, unit=ELEMENT, latex=label("kv_cache"), source=source)


def _made_of(block: Block, tensor: str) -> list[str]:
    """The tensors of every token from which attention and the projections up to its heads make this one."""
    op = block.producer(tensor)
    if op is None or not {"core_attention", "up_projection"} & set(op.parts):
        return [tensor]
    return [t for read in op.inputs if "b" in block.tensors[read].dims for t in _made_of(block, read)]


def _by_module(book: Derivation, lowered: Lowered) -> None:
    """Each block's forward, backward and repeated FLOPs and saved bytes by module; then the model's and stage i's, which have the
    block's share wherever the whole has the block."""
    shares: dict[str, dict[str, dict[str, Expr]]] = {letter: {} for letter in "FGRA"}

    def share(whole: Key, parts: Mapping[str, list[Expr]], unit: Unit) -> None:
        for module, found in parts.items():
            key = whole._replace(module=module)
            meaning = f"{book[whole].meaning}: {module.replace('_', ' ')}"
            made = book.define(key, Quantity(sum(found, ZERO), unit), meaning, unit=unit, latex=_of(book[whole].latex, module))
            shares[whole.quantity].setdefault(module, {})[whole.text] = made.expr

    for name, again, remembered in _forms(lowered):
        ops = remembered.placed.block.ops
        forward = {i: of_block("F", name, operation=op.name).expr for i, op in enumerate(ops) if of_block("F", name, operation=op.name) in book}
        if not again:
            share(of_block("F", name), _grouped((ops[i].module, f) for i, f in forward.items()), FLOP)
            kernels = [(ops[k.forward], k) for k in remembered.differentiated.backward if k.products]
            backward = ((op.module, of_block("G", name, operation=op.name, phase=k.label).expr) for op, k in kernels)
            share(of_block("G", name), _grouped(backward), FLOP)
        share(of_block("R", name, again), _grouped((ops[i].module, f) for i, f in forward.items() if i in remembered.recomputed), FLOP)
        saved = ((i.tensor.module or STREAM, of_block("A", name, again, tensor=i.name).expr) for i in remembered.saved)
        share(of_block("A", name, again), _grouped(saved), BYTE)
        if of_block("A", name, again, part="shared") in book:
            tables = ((i.tensor.module or STREAM, i.bytes) for i in remembered.shared)
            share(of_block("A", name, again, part="shared"), _grouped(tables), BYTE)
    for whole, unit in ((Key("F"), FLOP), (Key("G"), FLOP), (Key("R"), FLOP), (of_stage("A"), BYTE)):
        _shared_out(book, whole, unit, shares[whole.quantity])
    modules = dict.fromkeys(d.key.module for d in book.of("P", scope="block") if d.key.module)
    held = {module: {d.symbol: d.key.expr for d in book.of("P", scope="block", module=module)} for module in modules}
    held["lm_head"] = held.get("lm_head", {}) | {d.symbol: d.key.expr for d in book.of("P_output")}
    # the dense and the expert part together, of which the parameters of a stage are the sum, and those of the other stage that a rank holds
    parts = [of_stage("P", part + other) for other in ("", "_across") for part in ("dense", "expert")]
    _shared_out(book, of_stage("P"), ELEMENT, held, sum((book[part].expr for part in parts if part in book), ZERO))


def _shared_out(book: Derivation, whole: Key, unit: Unit, shares: Mapping[str, Mapping[str, Expr]], body: Expr | None = None) -> None:
    """A total by module: its own expression with a module's share in the place of each part."""
    body = book[whole].expr if body is None else body
    parts = {name for share in shares.values() for name in share} | {d.symbol for d in book.of(whole.quantity, scope="block")}
    for module, share in shares.items():
        amount = body.substitute({name: share.get(name, ZERO) for name in body.symbols() & parts})
        if amount:
            meaning, latex = f"{book[whole].meaning}: {module.replace('_', ' ')}", _of(book[whole].latex, module)
            book.define(whole._replace(module=module), Quantity(amount, unit), meaning, unit=unit, latex=latex)


def _forms(lowered: Lowered) -> list[tuple[str, bool, Remembered]]:
    """Blocks as they run, and as they are recomputed in full."""
    return [(n, False, b) for n, b in lowered.blocks.items()] + [(n, True, b) for n, b in lowered.checkpointed.items()]


def _grouped(parts: Iterable[tuple[str, Expr]]) -> dict[str, list[Expr]]:
    found: dict[str, list[Expr]] = {}
    for module, part in parts:
        found.setdefault(module, []).append(part)
    return found


def _of(latex: str, module: str) -> str:
    return rf"{{{latex}}}\big|_{{{label(module)}}}"


def _seconds_by_module(book: Derivation, lowered: Lowered) -> None:
    """Seconds of a stage's kernels by module, one micro-batch: of its messages and of a slower host there are none."""
    found: dict[tuple[str, str], Expr] = {}

    def add(module: str, phase: str, seconds: Expr) -> None:
        found[module or STREAM, phase] = found.get((module or STREAM, phase), ZERO) + seconds

    for name, again, remembered in _forms(lowered):
        ops = remembered.placed.block.ops
        forward = {i: of_block("t", name, operation=op.name, phase="forward") for i, op in enumerate(ops)}
        whole = Key("L", "stage", name, True).expr if name in lowered.checkpointed else ZERO
        times = whole if again else symbol(runs(name)) - whole
        for i in (i for i in sorted(remembered.recomputed) if forward[i] in book):
            add(ops[i].module, "again", forward[i].expr * times)
        if again:
            continue
        for i in (i for i, key in forward.items() if key in book):
            add(ops[i].module, "forward", forward[i].expr * symbol(runs(name)))
        for kernel in remembered.differentiated.backward:
            op = ops[kernel.forward]
            phase = "weights" if kernel.label == "wgrad" else "inputs"
            add(op.module, phase, of_block("t", name, operation=op.name, phase=kernel.label).expr * symbol(runs(name)))
    words = {"forward": "forward", "inputs": "for input gradients", "weights": "for weight gradients", "again": "run again in backward"}
    for (module, phase), seconds in found.items():
        key = of_stage("t", phase=phase)._replace(module=module)
        meaning = f"stage i: kernels {words[phase]}, one micro-batch: {module.replace('_', ' ')}"
        book.define(key, Quantity(seconds, SECOND), meaning, unit=SECOND, latex=_of(book[of_stage("t", phase=phase)].latex, module))


def _bubble(book: Derivation) -> None:
    waits, whole = of_step("t", "bubble").expr, of_step("t", "pipeline").expr
    ideal = symbol("m") * of_step("t", "slow").expr
    source = "Efficient Large-Scale Language Model Training, arXiv:2104.04473, sec. 2.2"
    for name, over, words in (("bubble_ratio", ideal, "that all micro-batches take without it"), ("bubble_share", whole, "of the pipeline")):
        meaning = f"the pipeline's bubble, as a share of the time {words}"
        book.define(of_step(name), Quantity(waits / over), meaning, unit=NONE, latex=label(name), source=source)


def _hours(book: Derivation) -> None:
    seconds = 10**12 / symbol("tokens_per_second") * symbol("world")
    key, meaning = of_step("gpu_hours_per_trillion_tokens"), "hours of all ranks together for 10^12 tokens"
    book.define(key, Quantity(seconds / 3600), meaning, unit=NONE, latex=label(key.text))


def _messages(book: Derivation, lowered: Lowered, network: Network | None) -> None:
    """Every message of stage i, equal ones of a block counted together, and the sums over those of one collective, phase and axis."""
    totals: dict[Key, dict[str, Quantity]] = {}
    for block, again, message in _every(book, lowered):
        own = Key("", "stage", block, again, operation=message.op, tensor=message.what, phase=message.phase, axis=message.axis)
        tier = next(n for n in range(100) if own._replace(quantity="calls", tier=n) not in book)
        amounts = _amounts(message, network)
        often = "a micro-batch" if message.per == "microbatch" else "a step"
        of = f"stage i, {message.op} over {message.axis}, {message.phase}: "
        together = Key("", "stage", operation=message.op, phase=message.phase, axis=message.axis)
        if message.per == "step" != message.phase:
            together = together._replace(part="once")
        summed = totals.setdefault(together, {})
        calls: Expr | None = None
        for name, (unit, words) in MESSAGES.items():
            rests = f" ({message.row.wire})" if name == "on_wire" else ""
            meaning = f"{of}{words} {often if name == 'calls' else 'in a call'}{rests}, {message.what}"
            key = own._replace(quantity=name, tier=tier)
            made = book.define(key, amounts[name], meaning, unit=unit, latex=label(key.text))
            calls = made.expr if calls is None else calls
            summed[name] = summed.get(name, Quantity(ZERO, unit)) + (made if name == "calls" else made * calls)
        for name, amount in _durations(message, network).items():
            key = own._replace(quantity=name, tier=tier)
            words = {"ring_seconds": " as a ring", "tree_seconds": " as a tree"}.get(name, "")
            book.define(key, amount, f"{of}seconds of a call{words}, {message.what}", unit=SECOND, latex=label(key.text))
    for together, summed in totals.items():
        often = "a step" if together.phase == "step" or together.part == "once" else "a micro-batch"
        for name, amount in summed.items():
            key = together._replace(quantity=name)
            meaning = f"stage i: {MESSAGES[name][1]} {often}, all messages of {key.operation} over {key.axis}, {key.phase}"
            book.define(key, amount, meaning, unit=amount.unit, latex=label(key.text))


def _durations(message: Message, network: Network | None) -> dict[str, Quantity]:
    """Seconds of one call; of an all-reduce, of which the shorter counts, also as a ring and as a tree."""
    if network is None:
        return {}
    durations = {"call_seconds": network.seconds(message)}
    if message.row.tree:
        (ring, tree), passes = network.one_pass(message), message.row.passes
        durations |= {"ring_seconds": Quantity(passes * ring.expr, SECOND), "tree_seconds": Quantity(passes * tree.expr, SECOND)}
    return durations


def _every(book: Derivation, lowered: Lowered) -> list[tuple[str, bool, Message]]:
    """(block, as it is recomputed in full, message) of stage i, groups of one rank left out."""
    of_block: dict[tuple[str, bool], list[Message]] = {}
    for sent in of_blocks(lowered):
        of_block.setdefault((sent.block, sent.again), []).append(sent.message)
    made = [(block, again, m) for (block, again), messages in of_block.items() for m in merge(messages)]
    between, rest = of_the_rest(lowered, book, *_passed(lowered.profile.strategy))
    return [*made, *(("", False, m) for m in (*between, *rest) if m.group != ONE)]


def _passed(strategy: Strategy) -> tuple[Expr, Expr]:
    """Boundary tensors that stage i sends and receives forward: of each of its chunks, but where the last stage of a V turns, and
    with no chunk that is empty."""
    turns = floor((symbol("i") + 1) / symbol("pp")) if schedule_of(strategy).placement == "v" else ZERO
    chunks = symbol("vpp") - turns
    return chunks - symbol("loss_i"), chunks - symbol("first_i")


def _amounts(message: Message, network: Network | None) -> dict[str, Quantity]:
    """How often, and the bytes of one call."""
    n, row, payload = message.group, message.row, message.payload_bytes
    wire = payload if row.carried == "direct" else row.passes * (payload * (n - 1) / n)
    if row.tree and network is not None:
        ring, tree = network.one_pass(message)
        wire = of_largest(((wire, -ring.expr), (row.passes * payload, -tree.expr)))
    return {
        "calls": Quantity(message.count),
        "handed_in": Quantity(message.send_bytes, BYTE),
        "got_back": Quantity(message.receive_bytes, BYTE),
        "on_wire": Quantity(wire, BYTE),
    }
