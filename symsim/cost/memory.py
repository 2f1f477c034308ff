"""Peak memory of one rank of stage i: the bytes that stay, and the moments of a step at which more is held.

    M_stage_peak = max over moments of (weights + gradients + optimizer states + what the moment holds)

The moments are the forward of the last micro-batch in flight and its backward in each kind of layer (with what the
worst kernel holds, `cost/workspace.py`), the loss, the embedding's gradient, and the optimizer. Within a run of equal
layers memory grows or shrinks by the same amount a layer, so its ends are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, Number, expr, maximum, minimum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import BYTE, ELEMENT, NONE, Quantity
from symsim.algebra.reductions import stages_max
from symsim.cost.count import MODULES, counted_parameters, held_output_layer, label
from symsim.cost.reduce import expert_groups, shards
from symsim.cost.workspace import Moment, backward_moments, forward_moments
from symsim.frameworks.kernels import multiplied_in
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS
from symsim.ir.operations import PRODUCTS
from symsim.lowering.differentiate import elements
from symsim.lowering.lowered import Lowered
from symsim.pipeline.schedules import schedule_of
from symsim.pipeline.stages import holds, layers_before

MIB = 2**20

# Bytes of libraries' workspaces that PyTorch's allocator hands out, by generation of the accelerator
WORKSPACES = {"none": 0, "ampere": 8 * MIB + 128 * 1024 + 4 * MIB, "hopper": 64 * MIB}
# CUDA context and NCCL channels, outside PyTorch's allocator
CONTEXT = {"none": 0, "cuda": 500 * MIB}

LIVENESS = "tensors alive between the kernel that makes them and the last that reads them (docs/rules.md)"
STAGE_PARTS = ("weights", "gradients", "optimizer", "activations", "transient", "peak")
HOST_PARTS = {"host": "H_stage_host", "host_link_per_step": "H_stage_link_step"}


def in_flight(strategy: Strategy) -> Expr:
    """Micro-batches whose activations stage i holds at once; a chunk of a virtual stage counts for its share."""
    return schedule_of(strategy).in_flight / (symbol("vpp") if strategy.vpp > 1 else 1)


def peak_memory(book: Derivation, lowered: Lowered) -> None:
    """Definitions of memory, all in bytes of one rank of stage i: M_stage_weights, _gradients, _optimizer, _activations,
    M_at_* for each moment, M_stage_peak and M_stage_transient; H_stage_host and H_stage_link_step where states or
    activations live on the host."""
    _Memory(book, lowered).define()


def moments(book: Derivation) -> dict[str, str]:
    """What each moment is, by the name of its definition."""
    return {name: d.meaning for name, d in book.definitions.items() if name.startswith("M_at_")}


def binding_moment(numbers: Mapping[str, Number]) -> str:
    """The moment at which a stage holds the most, by the name of its definition without `M_at_`."""
    return max((name for name in numbers if name.startswith("M_at_")), key=lambda name: numbers[name]).removeprefix("M_at_")


class _Memory:
    """The parts of a rank's memory, defined one after the other."""

    def __init__(self, book: Derivation, lowered: Lowered):
        self.book, self.lowered = book, lowered
        self.model, self.strategy = lowered.profile.model, lowered.profile.strategy
        self.assume = lowered.profile.assumptions
        self.framework = lowered.profile.framework
        self.schedule = schedule_of(self.strategy)
        self.fresh = 1 - minimum(symbol("m") - 1, 1)  # 1 while the step has one micro-batch, whose gradients are the first
        self.has = {n: self._present(n) for n in lowered.blocks}

    def define(self) -> None:
        self._static()
        self._workspaces()
        self._activations()
        self._moments()

    def stage(self, name: str, value: Expr, meaning: str, latex: str, *, source: str = LIVENESS, assumptions: tuple[str, ...] = ()) -> Expr:
        return self.book.define(
            name, Quantity(value, BYTE), meaning, unit=BYTE, group="stages", latex=latex, source=source, assumptions=assumptions
        ).expr

    def _present(self, block: str) -> Expr:
        """1 where a rank of the stage runs the block, else 0."""
        if block in self.model.layer_kinds:
            return minimum(1, symbol(f"L_{block}_i"))
        return symbol("first_i") if block == "embedding" else symbol("loss_i") if block == "head" else minimum(1, symbol("mtp_i"))

    # what stays for the whole step -------------------------------------------------------------------------------------

    def _shares(self) -> list[tuple[Expr, Expr]]:
        """(parameters of a rank, ranks over which one copy is sharded) of the dense part and of the experts."""
        apart = expert_groups(self.lowered)
        return [(symbol("P_stage_dense"), shards(self.lowered, False).shard), (symbol("P_stage_expert"), shards(self.lowered, apart).shard)]

    def _of_each(self, width: int, store: str) -> Expr:
        """Bytes of `width` a parameter, split over the ranks that share it where the placement has this store so."""
        split = self.lowered.mesh.placement.stores[store]
        return sum((n * width / (shard if split else ONE) for n, shard in self._shares()), ZERO)

    def _static(self) -> None:
        strategy = self.strategy
        precision = WIDTHS[strategy.precision]
        main = main_type(strategy)
        only_main = strategy.zero == 3 and self.assume["fsdp_parameters"] == "main"
        weights = self._of_each(WIDTHS[main] if only_main else precision, "parameters")
        if strategy.fp8 != "none":
            weights = weights + self._quantised()
        self.weights = self.stage(
            "M_stage_weights",
            weights * self.schedule.weights,
            "parameters (and their FP8 copies for rows and columns)" if strategy.fp8 != "none" else "parameters",
            r"M^{(i)}_{\mathrm{weights}}",
            source="Megatron-Core docs/user-guide/features/dist_optimizer.md; FP8: TransformerEngine module/linear.py (cached for all micro-batches)",
            assumptions=("fsdp_parameters",) if strategy.zero == 3 else (),
        )
        self.gradients = self.stage(
            "M_stage_gradients",
            self._of_each(self._gradient_width(), "gradients") * self.schedule.weights,
            "gradients accumulated over the step",
            r"M^{(i)}_{\mathrm{gradients}}",
            source="Megatron-Core distributed/param_and_grad_buffer.py; ZeRO, arXiv:1910.02054, sec. 3 and 5",
        )
        per_parameter = state_bytes(strategy, updates_parameters=only_main)
        states = self._of_each(per_parameter, "optimizer states")
        away = expr(0)
        if strategy.optimizer_cpu_offload:
            away = _rational(strategy.optimizer_offload_fraction)
            host = self._of_each(4 + per_parameter, "optimizer states") * away
            self._host = [host]
            self._link = {"optimizer": self._of_each(4 + 4, "optimizer states") * away}
        else:
            self._host, self._link = [], {}
        dummies = self._dummies()
        self.optimizer = self.stage(
            "M_stage_optimizer",
            states * (1 - away),
            "optimizer states: the copy that is updated, and its moments",
            r"M^{(i)}_{\mathrm{optimizer}}",
            source="Adam: Mixed Precision Training, arXiv:1710.03740; types: Megatron-Core optimizer/optimizer_config.py",
        )
        self.constant = self.stage(
            "M_stage_constant",
            dummies + WORKSPACES[self.assume["library_workspace"]],
            "placeholder weight gradients and library workspaces",
            r"M^{(i)}_{\mathrm{constant}}",
            source="TransformerEngine module/base.py get_dummy_wgrad, get_cublas_workspace_size_bytes; PyTorch CublasHandlePool.cpp",
            assumptions=("te_dummy_wgrad", "library_workspace"),
        )

    def _quantised(self) -> Expr:
        """FP8 copies of the weights of one rank that are multiplied so: of layers, and of the depths of multi-token prediction."""
        found = ZERO
        for name, remembered in self.lowered.blocks.items():
            placed = remembered.placed
            weights = [
                elements(placed, t.name)
                for op in placed.block.ops
                if op.kind in PRODUCTS and multiplied_in(op, self.strategy) == "fp8"
                for t in (placed.block.tensors[i] for i in op.inputs)
                if t.kind == "parameter" and set(op.einsums[0].contracted) & set(t.dims)
            ]
            if not weights:
                continue
            quantised = self.book.define(
                f"M_fp8_{name}",
                Quantity(2 * _sum(weights), BYTE),
                f"{name}: FP8 copies of weights, for rows and columns",
                unit=BYTE,
                group="stages",
                latex=rf"M^{{\mathrm{{fp8}}}}_{{{label(name)}}}",
            )
            found = found + quantised.expr * symbol(holds(name))
        return found

    def _te_weights(self, kind: str) -> list[Expr]:
        """Elements of each weight of a layer's linear maps, an expert's for experts."""
        placed = self.lowered.blocks[kind].placed
        found = []
        for op in placed.block.ops:
            weights = [
                placed.block.tensors[t] for t in op.inputs if placed.block.tensors[t].kind == "parameter" and len(placed.block.tensors[t].dims) > 1
            ]
            if op.kind in PRODUCTS and op.module in self.framework.placeholders:
                for w in weights[:1]:
                    found.append(elements(placed, w.name) / (self._local_experts() if "E" in w.dims else 1))
        return found

    def _local_experts(self) -> Expr:
        return symbol("E") / self.lowered.mesh.degree("ep")

    def _dummies(self) -> Expr:
        """One unused gradient for every shape of weight: autograd wants one where the real one went to the main gradient."""
        if not self.framework.placeholders:
            return ZERO
        holders: dict[Expr, dict[str, None]] = {}
        for kind in self.model.kind_names():
            for n in self._te_weights(kind):
                holders.setdefault(n, {})[kind] = None
        width = WIDTHS[self.strategy.precision]
        return sum((n * width * minimum(1, _sum(symbol(f"L_{k}_i") for k in kinds)) for n, kinds in holders.items()), ZERO)

    # what a micro-batch holds ------------------------------------------------------------------------------------------

    def _workspaces(self) -> None:
        """W_fwd_* and W_bwd_*: what each block holds at its worst kernel, its own saved tensors included."""
        variants = [(n, n, b) for n, b in self.lowered.blocks.items()] + [(n, f"{n}_ckpt", b) for n, b in self.lowered.checkpointed.items()]
        for plain, name, remembered in variants:
            forward = forward_moments(remembered, returns_logits=self.framework.returns_logits)
            delayed = self.framework.delayed if self.strategy.delay_wgrad_compute else ()
            backward = backward_moments(
                remembered,
                keep_gathered=self.framework.keeps_gathered,
                whole=name != plain,
                into_main_gradient=self.framework.placeholders,
                delayed=delayed,
            )
            words = in_words(plain) + ("" if name == plain else ", recomputed in full")
            for direction, found in (("fwd", forward), ("bwd", backward)):
                self.book.define(
                    f"W_{direction}_{name}",
                    Quantity(maximum(*(self._held(m) for m in found)), BYTE),
                    f"{words}: bytes at the worst kernel of {'forward' if direction == 'fwd' else 'backward'} ({_kernels(found)})",
                    unit=BYTE,
                    group=plain,
                    latex=rf"W^{{\mathrm{{{direction}}}}}_{{{label(name)}}}",
                    source=LIVENESS,
                )

    def _held(self, moment: Moment) -> Expr:
        """Parameter gradients stay where they are the first of a step and no buffer waits for them; else they are added at once."""
        if self.framework.main_gradients:
            return moment.activations + moment.latest
        if self.strategy.zero == 3:
            return moment.activations + moment.gradients
        return moment.activations + moment.latest + self.fresh * (moment.gradients - moment.latest)

    def _activations(self) -> None:
        self.alive = self.book.define(
            "alive_i",
            Quantity(in_flight(self.strategy), NONE),
            "micro-batches whose activations stage i holds at once",
            unit=NONE,
            group="stages",
            latex=r"n^{(i)}",
            source=self.schedule.source,
        ).expr
        # the head's backward follows its forward at once, unless all forwards come first
        of_head = ZERO if self.schedule.name in ("gpipe", "looped_bfs") else symbol("A_head") * symbol("loss_i")
        saved = symbol("A_stage") + self._sent()
        offloaded = self._offloaded()
        self.earlier = self.stage(
            "M_stage_earlier",
            (self.alive - 1) * (saved - of_head) + self.schedule.whole * self._recomputed_layers(),
            "activations of the micro-batches whose backward is still to come",
            r"M^{(i)}_{\mathrm{earlier}}",
        )
        self.own = saved - offloaded
        self.activations = self.stage(
            "M_stage_activations",
            symbol("M_stage_earlier") + self.own,
            "saved activations of all micro-batches in flight",
            r"M^{(i)}_{\mathrm{activations}}",
        )

    def _recomputed_layers(self) -> Expr:
        """What a micro-batch holds more where the schedule keeps it whole in spite of recomputation."""
        kinds = self.lowered.checkpointed
        return _sum(symbol(f"A_{k}") * symbol(f"L_{k}_i") - self._saved_layers(k) for k in kinds)

    def _sent(self) -> Expr:
        """What the stage's chunks have sent on, where it is not freed then (the head sends nothing)."""
        if self.strategy.pp == 1 or self.strategy.deallocate_pipeline_outputs:
            return ZERO
        return self._stream() * (symbol("vpp") - symbol("loss_i"))

    def _stream(self) -> Expr:
        """Bytes of the residual stream between layers."""
        placed = self.lowered.blocks["head"].placed
        return elements(placed, "x") * WIDTHS[placed.block.tensors["x"].dtype]

    def _offloaded(self) -> Expr:
        """Saved bytes of the leading layers that go to the host between forward and backward."""
        count = self.strategy.cpu_offloading_num_layers
        if not count:
            return ZERO
        layers = layers_before(self.model, count)
        moved = sum((symbol(f"A_{k}") * n for k, n in layers.items()), ZERO)
        self._host.append(moved)
        self._link["activations"] = 2 * moved * symbol("m")
        return moved

    # the moments -------------------------------------------------------------------------------------------------------

    def _moments(self) -> None:
        base = self.weights + self.optimizer + self.constant
        # PyTorch's gradients come into being in backward; Megatron-Core's buffers are always there
        held = self.gradients if self.framework.main_gradients else self.gradients * (1 - self.fresh)
        found: list[Expr] = []

        def at(name: str, value: Expr, meaning: str, *, present: Expr = ONE, source: str = LIVENESS, assumptions: tuple[str, ...] = ()) -> None:
            found.append(
                self.stage(
                    f"M_at_{name}", (base + value) * present, meaning, rf"\hat{{M}}^{{(i)}}_{{{label(name)}}}", source=source, assumptions=assumptions
                )
            )

        others = self.earlier + self.own
        for plain, name in self._running():
            rest = held + others - self._after(plain, name) - symbol(f"A_{name}")
            present, last = self._runs(plain, name), _the_last(plain, name)
            at(f"forward_{name}", rest + symbol(f"W_fwd_{name}") + self._gathered(plain), f"forward of {last}", present=present)
            worst = rest + self._rebuilt(plain, name) + symbol(f"W_bwd_{name}") + self._gradients_after(plain) + self._gathered(plain, backward=True)
            worst = worst + self._beside(plain)
            at(f"backward_{name}", worst, f"backward of {last}", present=present)
            if self.strategy.zero == 3 and plain in self.model.layer_kinds:
                behind = self._reduction(plain) + self._shard_gradients(self._parameters(plain)) - symbol(f"A_{name}")
                at(
                    f"second_{name}",
                    worst + behind,
                    f"backward of the layer before {last}, whose gradients are reduced",
                    present=minimum(1, maximum(0, symbol(f"L_{plain}_i") - 1)) * present,
                    source="torch distributed/fsdp/_fully_shard",
                )
        at(
            "first_layers",
            self.gradients + self.earlier + self._first_layers() + self._paired() * self._forwarded(),
            "backward of the first layer and of the embedding, with all other gradients made",
        )
        if self.strategy.zero == 3:
            at(
                "first_gather",
                held + self.earlier + self._first_gather(),
                "parameters of the root and of the first layer as they are gathered",
                source="torch distributed/fsdp/_fully_shard",
            )
        at(
            "optimizer",
            self.gradients + self._optimizer_temporaries(),
            "the optimizer's update",
            source="torch.optim.adamw; Megatron-Core optimizer/distrib_optimizer.py (fp32 copies of gradients reduced in less)",
            assumptions=("optimizer_implementation",),
        )
        share = _rational("0.94") if self.assume["memory"] == "reserved" else ONE
        peak = self.stage(
            "M_stage_peak",
            maximum(*found) / share + CONTEXT[self.assume["device_context"]],
            "peak memory of one rank of stage i",
            r"M^{(i)}",
            source="the largest of the moments; reserved: SimuMax v1.2 (mem_factor 0.94)",
            assumptions=("memory", "device_context"),
        )
        self.book.define(
            "M_peak",
            Quantity(stages_max(peak), BYTE),
            "peak memory of the rank that needs most",
            unit=BYTE,
            group="step",
            latex=r"M",
            source="the largest over stages",
        )
        steady = self.weights + self.gradients + self.optimizer + self.activations
        self.stage(
            "M_stage_transient",
            maximum(0, peak - steady),
            "of the peak, what is neither kept for the step nor saved",
            r"M^{(i)}_{\mathrm{transient}}",
        )
        if self._host:
            self.stage(
                "H_stage_host",
                sum(self._host, ZERO),
                "bytes kept in host memory",
                r"H^{(i)}",
                source="Megatron-Core optimizer/cpu_offloading; TransformerEngine cpu_offload.py",
            )
            for what, moved in self._link.items():
                self.stage(
                    f"H_stage_link_{what}",
                    moved,
                    f"bytes of {what} over the host link a step, both ways",
                    rf"H^{{(i)}}_{{\mathrm{{{what}}}}}",
                    source="Megatron-Core optimizer/cpu_offloading; TransformerEngine cpu_offload.py",
                )
            self.stage(
                "H_stage_link_step",
                sum((symbol(f"H_stage_link_{what}") for what in self._link), ZERO),
                "bytes over the host link a step, both ways",
                r"H^{(i)}_{\mathrm{link}}",
                source="Megatron-Core optimizer/cpu_offloading; TransformerEngine cpu_offload.py",
            )

    def _running(self) -> list[tuple[str, str]]:
        """Blocks and the names of the forms in which they run: as they are, and recomputed in full."""
        found = []
        for name in self.lowered.blocks:
            found.append((name, name))
            if name in self.lowered.checkpointed:
                found.append((name, f"{name}_ckpt"))
        return [(plain, name) for plain, name in found if plain != "embedding"]

    def _runs(self, plain: str, name: str) -> Expr:
        """1 where the stage runs the block in this form."""
        if plain not in self.lowered.checkpointed:
            return self.has[plain]
        again = symbol(f"L_{plain}_ckpt_i")
        return minimum(1, again if name != plain else symbol(f"L_{plain}_i") - again)

    def _after(self, plain: str, name: str) -> Expr:
        """Saved bytes of what comes after the block's last layer on the stage: freed by its backward, not there in its forward."""
        if plain == "head":
            return ZERO
        later = symbol("A_head") * symbol("loss_i")
        if plain == "mtp":
            return later
        if "mtp" in self.lowered.blocks:
            later = later + symbol("A_mtp") * symbol("mtp_i")
        for kind in self._kinds_after(plain):
            later = later + self._saved_layers(kind)
        if name != plain and self.strategy.recompute == "full" and self.strategy.recompute_method == "block":
            later = later + symbol(f"A_{plain}") * (symbol(f"L_{plain}_i") - symbol(f"L_{plain}_ckpt_i"))
        return later

    def _saved_layers(self, kind: str) -> Expr:
        layers = symbol(f"L_{kind}_i")
        if kind not in self.lowered.checkpointed:
            return symbol(f"A_{kind}") * layers
        again = symbol(f"L_{kind}_ckpt_i")
        kept = again / self.strategy.recompute_num_layers if self.strategy.recompute_method == "uniform" else again
        return symbol(f"A_{kind}") * (layers - again) + symbol(f"A_{kind}_ckpt") * kept

    def _paired(self) -> Expr:
        """1 where a forward runs beside a backward: with overlap_moe_expert_parallel_comm, while forwards are left after the
        warm-up, which has one more then, so that as many micro-batches are whole when a pair begins as without it
        (Megatron-Core schedules.py get_pp_rank_microbatches, combined_1f1b.py)."""
        if not self.strategy.overlap_moe_expert_parallel_comm:
            return ZERO
        return minimum(1, maximum(0, (symbol("m") - self.alive) * symbol("vpp")))

    def _forwarded(self) -> Expr:
        """A chunk that its forward has left while the backward beside it is at its first layer; counted already by
        schedules whose in-flight chunks begin with their forward."""
        return ZERO if self.schedule.pairs else self._layers_saved(None) / symbol("vpp")

    def _layers_saved(self, count: Expr | None) -> Expr:
        """Saved bytes of the stage's first `count` layers, or of all."""
        found, before = ZERO, ZERO
        for kind in self.model.kind_names():
            layers = symbol(f"L_{kind}_i")
            taken = layers if count is None else minimum(layers, maximum(0, count - before))
            found, before = found + symbol(f"A_{kind}") * taken, before + layers
        return found

    def _beside(self, kind: str) -> Expr:
        """What the forward of another micro-batch holds beside the backward of the last layer of this kind: the layers that it
        has passed, as many as the backward has, and the layer it is in, at its worst kernel."""
        paired = self._paired()
        if not paired or kind not in self.model.layer_kinds:
            return ZERO
        passed = self._layers_saved(_sum(symbol(f"L_{k}_i") for k in self._kinds_after(kind))) / symbol("vpp")
        running = [(k, n) for k, n in self._running() if k in self.model.layer_kinds]
        if self.schedule.pairs:
            return paired * maximum(*((symbol(f"W_fwd_{n}") - symbol(f"A_{n}")) * self._runs(k, n) for k, n in running))
        return paired * (passed + maximum(*(symbol(f"W_fwd_{n}") * self._runs(k, n) for k, n in running)))

    def _kinds_after(self, kind: str) -> list[str]:
        """Kinds of layers that all come after the last of this kind."""
        last = max(i for i, s in enumerate(self.model.layers) if kind in s.kinds)
        return [k for k in self.model.kind_names() if min(i for i, s in enumerate(self.model.layers) if k in s.kinds) > last]

    def _rebuilt(self, plain: str, name: str) -> Expr:
        """Layers of a recomputed group whose saved tensors are rebuilt together, besides the one at work."""
        if name == plain or self.strategy.recompute != "full" or self.strategy.recompute_method != "uniform":
            return ZERO
        return symbol(f"A_{plain}") * (self.strategy.recompute_num_layers - 1)

    def _gradients_after(self, name: str) -> Expr:
        """PyTorch's gradients of the head that exist before this block's backward: its own where the step has one micro-batch
        (under FSDP they wait, whole, for the root's reduction), and always that of a table it shares with the embedding."""
        if self.framework.main_gradients or name == "head":
            return ZERO
        of_head = held_output_layer(self.book) * WIDTHS[self.strategy.precision]
        return (of_head if self.strategy.zero == 3 else self.fresh * of_head) + self._tied()

    def _tied(self) -> Expr:
        """The gradient that the head makes of a table it shares with the stage's embedding: it waits for the lookup's, and
        both are there as they are added (torch autograd input_buffer.cpp)."""
        if self.framework.main_gradients or not self.model.tie_word_embeddings:
            return ZERO
        return symbol("P_output") * (symbol("loss_i") - symbol("output_i")) * WIDTHS[self.strategy.precision]

    def _first_layers(self) -> Expr:
        """What the backward of the stage's first layer, or of the embedding, holds besides the gradients of all."""
        kind = self.model.layers[0].kinds[0]
        variant = f"{kind}_ckpt" if kind in self.lowered.checkpointed else kind
        layer = (symbol(f"W_bwd_{variant}") + symbol("A_embedding")) * self.has[kind] * symbol("first_i")
        table = symbol("W_bwd_embedding") * symbol("first_i")
        if self.framework.main_gradients:
            return table
        if self.strategy.zero == 3:
            waiting = self._gradients_after(kind)
            # the shards of this layer's gradients and of the root's are still to come
            to_come = self._shard_gradients(self._parameters(kind) + self._root())
            units = self._gathered(kind, backward=True) + self._reduction(kind) + waiting - to_come
            last = self._gathered("embedding", backward=True) + waiting - self._shard_gradients(self._root())
            return maximum(layer + units * symbol("first_i"), table + last, *self._sums(2 * self._tied() + last))
        width = WIDTHS[self.strategy.precision]
        tables = symbol("P_embedding_embedding") * width * symbol("first_i")
        head, sums = self._tied(), self._sums((3 - self.fresh) * self._tied())
        return maximum(layer - self.fresh * (self._unit(kind) * symbol("first_i") + tables) + head, table - self.fresh * tables + head, *sums)

    def _sums(self, held: Expr) -> list[Expr]:
        """What is held as the two gradients of a shared table are added."""
        return [held] if self._tied() else []

    # parameters gathered for use ---------------------------------------------------------------------------------------

    def _parameters(self, kind: str) -> Expr:
        return _sum(symbol(f"P_{kind}_{m}") for m in _modules(self.book, kind))

    def _unit(self, kind: str) -> Expr:
        """Bytes of a layer's parameters, gathered."""
        return WIDTHS[self.strategy.precision] * self._parameters(kind)

    def _reduction(self, kind: str) -> Expr:
        """The buffer from which a layer's gradients are reduced."""
        return self._parameters(kind) * self._gradient_width()

    def _shard_gradients(self, parameters: Expr) -> Expr:
        """Reduced gradients of so many parameters, where no buffer holds them from the start."""
        return ZERO if self.framework.main_gradients else parameters * self._gradient_width() / shards(self.lowered, False).shard

    def _gradient_width(self) -> int:
        return 4 if self.strategy.grad_reduce_in_fp32 else WIDTHS[self.strategy.precision]

    def _gathered(self, name: str, *, backward: bool = False) -> Expr:
        """Whole parameters, and buffers of their gathers, while a block runs under FSDP (torch distributed/fsdp/_fully_shard):
        the root's stay gathered, forward keeps the last gather's buffer until the next, backward gathers one unit ahead."""
        if self.strategy.zero != 3:
            return ZERO
        root = WIDTHS[self.strategy.precision] * self._root()
        kinds = self.model.kind_names()
        largest = maximum(*(self._unit(k) * self.has[k] for k in kinds))
        everything = _sum(self._unit(k) * symbol(f"L_{k}_i") for k in kinds)
        after_forward = self.strategy.reshard_after_forward
        resharded = after_forward is not False and self.strategy.reshard_after_backward
        part = ZERO if isinstance(after_forward, bool) or not resharded else everything / after_forward
        if name == "embedding":
            return root + part if backward else root * 2
        if name in ("head", "mtp"):
            return root + part + (ZERO if resharded else everything) + (largest if resharded or not backward else ZERO)
        ahead = self._unit(name) if resharded or not backward else ZERO
        return root + part + (self._unit(name) if resharded else everything) + ahead

    def _first_gather(self) -> Expr:
        """The root's gathered parameters and its gather's buffer, the first layer's two, and what the embedding made."""
        kind = self.model.layers[0].kinds[0]
        root = WIDTHS[self.strategy.precision] * self._root()
        return (2 * root + 2 * self._unit(kind) + self._stream() + symbol("A_embedding")) * symbol("first_i")

    def _root(self) -> Expr:
        found = symbol("P_embedding_embedding") * symbol("embedding_i") + held_output_layer(self.book)
        if "P_head_norm" in self.book.definitions:
            found = found + symbol("P_head_norm") * symbol("last_layer_i")
        return found

    # the optimizer -----------------------------------------------------------------------------------------------------

    def _optimizer_temporaries(self) -> Expr:
        strategy = self.strategy
        away = _rational(strategy.optimizer_offload_fraction) if strategy.optimizer_cpu_offload else expr(0)
        width = WIDTHS[main_type(strategy)]
        found = ZERO
        converted = not strategy.grad_reduce_in_fp32 and strategy.precision != "fp32" and strategy.main_grads_dtype == "fp32"
        if converted and self.framework.main_gradients:
            found = self._of_each(4, "optimizer states")
        if strategy.optimizer == "adam":
            how = self.assume["optimizer_implementation"]
            if how == "foreach":
                found = found + self._of_each(width, "optimizer states")
            elif how == "for_loop":
                largest = self.book.define(
                    "P_stage_largest",
                    Quantity(self._largest_parameter(), ELEMENT),
                    "the largest parameter that one rank updates",
                    unit=ELEMENT,
                    group="stages",
                    latex=r"P^{(i)}_{\mathrm{largest}}",
                )
                found = found + 2 * width * largest.expr
        return found * (1 - away)

    def _largest_parameter(self) -> Expr:
        """Elements of the largest parameter that one rank updates."""
        candidates: list[Expr] = []
        for name, remembered in self.lowered.blocks.items():
            for tensor in counted_parameters(remembered.placed, name):
                expert = "E" in tensor.dims and expert_groups(self.lowered)
                split = self.lowered.mesh.placement.stores["optimizer states"]
                shard = shards(self.lowered, expert).shard if split else ONE
                present = {"embedding": symbol("embedding_i"), "head": symbol("loss_i")}.get(name, self.has[name])
                candidates.append(elements(remembered.placed, tensor.name) / shard * present)
        return maximum(*candidates)


def main_type(strategy: Strategy) -> str:
    """The type of the copy that the optimizer updates: fp32 unless told."""
    return strategy.main_params_dtype or "fp32"


def state_bytes(strategy: Strategy, *, updates_parameters: bool = False) -> int:
    """Bytes a parameter of what the optimizer keeps: a copy of it in its own type (none where it updates the parameters
    themselves), and the moments. A bf16 parameter's fp32 copy needs only the other 16 bits (store_param_remainders)."""
    main = main_type(strategy)
    copy = 0 if main == strategy.precision or updates_parameters else WIDTHS[main]
    if strategy.use_precision_aware_optimizer and strategy.store_param_remainders and copy == 4 and strategy.precision == "bf16":
        copy = 2
    first = WIDTHS[strategy.exp_avg_dtype or main]
    second = WIDTHS[strategy.exp_avg_sq_dtype or main]
    return copy + {"adam": first + second, "sgd_momentum": first, "sgd": 0}[strategy.optimizer]


def _modules(book: Derivation, block: str) -> list[str]:
    return [m for m in MODULES if f"P_{block}_{m}" in book.definitions]


def _kernels(found: Iterable[Moment]) -> str:
    return " or ".join(dict.fromkeys(m.kernel for m in found))


def _the_last(plain: str, name: str) -> str:
    if plain == "head":
        return "the final norm, the logits and the loss"
    if plain == "mtp":
        return "the last multi-token prediction depth"
    return f"the last {in_words(plain)} layer" + (" that is recomputed" if name != plain else "")


def _rational(value: "float | str") -> Expr:
    return expr(Fraction(str(value)))


def _sum(values: Iterable[Expr]) -> Expr:
    return sum(values, ZERO)
