"""The facts that tests/draws/mutations.py breaks: of messages, time, memory, pipelines and model families."""

from __future__ import annotations

from mutations_facts import of

MESSAGES = of(
    "cost/reduce.py",
    (
        "experts have their own group when etp is not tp",
        "strategy.ep > 1 or strategy.expert_tp != strategy.tp",
        "strategy.ep > 1",
        "traffic.py megatron.py",
    ),
    (
        "gradients go in fp32",
        'gradient = "fp32" if strategy.grad_reduce_in_fp32 else strategy.precision\n    made: list[Message] = []\n    if',
        "gradient = strategy.precision\n    made: list[Message] = []\n    if",
        "traffic.py",
    ),
    ("ZeRO 0 sums gradients whole", '"step", "all_reduce", group.whole', '"step", "reduce_scatter", group.whole', "sent.py"),
    ("instances sum their shards", 'group.instances, share, share, gradient, f"', 'group.instances, n, n, gradient, f"', "traffic.py megatron.py"),
    ("FSDP gathers again for backward", "if kept:\n", "if not kept:\n", "comm.py traffic.py"),
    (
        "FSDP scatters gradients of every unit",
        "group.shard, n, share, gradient, unit.what, unit.times",
        "group.shard, n, share, gradient, unit.what, ONE",
        "traffic.py",
    ),
    ("copies of a tied table are summed", "if copies < 2:", "if copies < 9:", "traffic.py"),
    ("a rank sends a gradient back where a tensor came", '("backward", receives, sends)', '("backward", sends, receives)', "traffic.py"),
    ("router biases are summed over context ranks too", 'axes = ("tp", "dp", *mesh.context_axes)', 'axes = ("tp", "dp")', "step_messages.py"),
    (
        "norms are summed over tensor ranks",
        "if axis in reduced.get(tensor.name, ()) or",
        "if",
        "megatron.py megatron_rules.py",
    ),
)

TIME = (
    of(
        "cost/repeated.py",
        ("a rank of several chunks keeps a chunk's share", 'symbol("whole_i") / symbol("vpp") if strategy.vpp > 1 else', "", "recompute_stages.py"),
        ("what keeps all does not run again", '1 - symbol("whole_i") / symbol("window_i")', "ONE", "recompute_stages.py"),
    )
    + of(
        "cost/memory_rank.py",
        (
            "gradients are freed by their own update",
            "ZERO if profile.strategy.optimizer_in_bwd else 1 - minimum",
            "1 - minimum",
            "torch_peaks.py",
        ),
    )
    + of(
        "frameworks/streams.py",
        ("streams are mixed by three kernels", "if not k.profile.strategy.use_fused_mhc:", "if False:", "hyper_connections.py"),
    )
    + of(
        "frameworks/recompute.py",
        (
            "what mixes the streams keeps no results",
            '{"attention_connection", "mlp_connection"}), discards=True)',
            '{"attention_connection", "mlp_connection"}))',
            "hyper_connections.py",
        ),
    )
    + of(
        "cost/collectives.py",
        ("a ring leaves a rank's share where it is", "* ((n - 1) / n) * self._ring", "* self._ring", "collectives.py"),
        ("or over a tree where that is less", "minimum(ring.expr, tree.expr)", "ring.expr", "collectives.py"),
        (
            "all members of a unit bring their links",
            "if alone else self._members(message.axis, j - 1) * bandwidth",
            "if alone else bandwidth",
            "collectives.py",
        ),
        (
            "an exchange crosses nodes once for all",
            "share = (self._members(message.axis, j) - self._members(message.axis, j - 1)) / n",
            "share = self._members(message.axis, j) / n",
            "collectives.py",
        ),
        (
            "a ring pays each hop",
            'self._members(axis, j - 1) - 1) * symbol(f"alpha_{j}")',
            'self._members(axis, j - 1)) * symbol(f"alpha_{j}")',
            "collectives.py",
        ),
        ("an axis strides over those inside it", "stride = stride * degree", "stride = degree", "collectives.py"),
        ("tokens are sent to a node once", 'minimum(1, most / symbol("K"))', "1", "collectives.py systems.py"),
    )
    + of(
        "cost/step_time.py",
        ("clipping reads and writes", "[owned * 2 * g] if strategy.clip_grad", "[owned * g] if strategy.clip_grad", "step_time.py"),
        ("the slowest stage keeps the pace", '"slow"), stages_max(slowest))', '"slow"), stages_at(slowest, last))', "step_time.py schedules.py"),
        (
            "interleaved stages wait for boundary tensors",
            'pipeline = pipeline + 2 * symbol("m")',
            'pipeline = pipeline + symbol("m")',
            "step_time.py report_step.py",
        ),
        (
            "a step ends with the longest tail",
            'symbol("t_pipeline") + slower + waiting + further_seconds(book, strategy) + symbol("t_tail")',
            'symbol("t_pipeline") + slower + waiting + further_seconds(book, strategy)',
            "step_time.py",
        ),
        ("gradients hide beside the whole backward", 'for p in PHASES[1:]), ZERO), "grad"', 'for p in PHASES[2:]), ZERO), "grad"', "step_time.py"),
        ("a bucket is left in the open", "c.expr / several.expr - hidden, *least", "*least", "step_time.py"),
        ("the first chunk's parameters travel beside an update", "hidden = _beside_update(lowered, c)", "hidden = ZERO", "step_time.py"),
        ("a host that waits shows a launch each time", 'symbol("t_launch") * strategy.host_waits', 'symbol("t_launch")', "step_time.py"),
        (
            "FSDP's first gather has nothing beside it",
            "maximum(whole.expr - after - compute, least)",
            "maximum(whole.expr - after - compute, 0)",
            "step_time.py",
        ),
    )
    + of(
        "cost/block_time.py",
        ("a ring hides beside c - 1 of c steps of attention", "total(own, SECOND) * ((degree - 1) / degree)", "total(own, SECOND)", "step_time.py"),
        ("nothing of a ring hides beside what merges its steps", "attention.expr - merging.expr", "attention.expr", "step_time.py"),
        ("experts wait for a host that has no launches ahead", "maximum(0, launching - meanwhile)", "maximum(0, ZERO)", "graphs.py"),
    )
    + of(
        "cost/kernel_time.py",
        ("a cast takes the host longer with every expert", "ONE + PLAIN * (_apart(placed, op, cast, profile) - 1)", "ONE", "narrow.py"),
    )
    + of(
        "frameworks/narrow.py",
        ("a dispatcher pads rows as it sorts them", "not (sorted_so or ", "not (", "narrow.py"),
    )
    + of(
        "cost/beside_product.py",
        (
            "a reduction hides beside the weight gradient",
            'product(readers or [index], "wgrad")',
            'product(readers or [index], "forward")',
            "tp_messages.py step_time.py",
        ),
        (
            "a gather of the saved input beside the input gradient",
            'product(readers, "dgrad")',
            'product(readers, "forward")',
            "tp_messages.py step_time.py",
        ),
    )
    + of(
        "cost/hbm.py",
        (
            "a weight gradient is accumulated in fp32",
            "out = 4 if strategy.grad_reduce_in_fp32",
            "out = 2 if strategy.grad_reduce_in_fp32",
            "hbm_bytes.py step_time.py",
        ),
        ("the unfused loss moves 38 bytes a logit", '"forward": 38', '"forward": 34', "hbm_bytes.py"),
        ("half of a ring's steps merge half", "Fraction(3, 4) if reached_by", "ONE if reached_by", "hbm_bytes.py"),
        (
            "a lookup reads rows, not its table",
            "return [op.inputs[0], op.outputs[0], *op.outputs]",
            "return [*op.inputs, *op.outputs]",
            "hbm_bytes.py",
        ),
    )
    + of(
        "inputs/curves.py",
        ("a tile is 128 wide", "TILE = 128", "TILE = 256", "curves.py step_time.py"),
        ("flash attention's backward has five products", "6 * d_qk + 4 * d_v if backward", "4 * d_qk + 4 * d_v if backward", "curves.py"),
    )
)

MEMORY = (
    of(
        "cost/memory.py",
        (
            "the head's saved tensors are not yet there in a layer's forward",
            "others - saved_after(rank, name, again) - saved",
            "others - saved",
            "memory.py",
        ),
        ("a layer at work counts once", "saved_after(rank, name, again) - saved", "saved_after(rank, name, again)", "memory.py"),
        ("the embedding's result is a local of the model's forward", " + embedded(rank, name)", "", "torch_peaks.py"),
        ("shards of earlier micro-batches are there already", "rank.fresh * shard_gradients", "shard_gradients", "torch_peaks.py"),
        (
            "a gather's buffer stays until the next is copied out",
            'moment(phase="gather"), gathered',
            'moment(phase="gather"), rest',
            "torch_peaks.py",
        ),
        ("the first layer of a kind behind others has a moment", "before := kinds_before(rank, name)", "before := [][:0]", "torch_peaks.py"),
        ("the update has its own temporaries", "static.gradients + optimizer_temporaries(rank)", "static.gradients", "memory.py"),
        (
            "backward holds its worst kernel",
            "worst(name, again, backward=True) + gradients_after",
            "worst(name, again) + gradients_after",
            "memory.py",
        ),
        (
            "the first layers run with all gradients made",
            "static.gradients + activations.earlier + first_layers(rank)",
            "static.gradients + first_layers(rank)",
            "memory.py",
        ),
        ("of what is reserved a share is in use", "rational(str(rank.strategy.allocator_in_use))", 'rational("0.95")', "memory.py"),
    )
    + of(
        "cost/memory_narrow.py",
        (
            "FP8 weights are kept for rows and columns",
            "return forms(rank.lowered.profile.assumptions, recipe) * recipe",
            "return recipe",
            "memory.py",
        ),
    )
    + of(
        "cost/states.py",
        ("an fp32 copy needs 16 more bits of a bf16 parameter", "return 2 if copy == 4", "return 3 if copy == 4", "memory.py"),
        ("a copy is updated, of every parameter", "else WIDTHS[main]\n", "else 0\n", "memory.py"),
    )
    + of(
        "inputs/optimizers.py",
        ("Adam has two moments", '"torch.optim.adamw", ("first", "second")', '"torch.optim.adamw", ("first",)', "memory.py"),
        ("CAME's loop holds two of the parameter before", "bound=2", "bound=1", "optimizers.py"),
        ("CAME moves 148 bytes besides", "moves=148", "moves=96", "optimizers.py"),
    )
    + of(
        "cost/held.py",
        ("a rank of DualPipe has the parameters of two stages", "both + of_other(book, lowered.profile.model, both)", "both", "memory.py"),
    )
    + of(
        "cost/memory_static.py",
        ("a rank of DualPipe holds the other stage too", "value + of_other(rank.book, rank.model, value)", "value", "memory.py"),
        ("a loop over parameters needs two of each", "own * n + bound * before", "n + before", "memory.py"),
        ("a loop over parameters holds one of that before", "own * n + bound * before", "own * n", "torch_peaks.py"),
        ("libraries keep 64 MiB on Hopper", '"hopper": 64 * MIB', '"hopper": 32 * MIB', "moments.py"),
        (
            "placeholders stand once for equal shapes",
            "minimum(1, total(symbol(runs(n)) for n in names))",
            "total(symbol(runs(n)) for n in names)",
            "moments.py",
        ),
    )
    + of(
        "cost/memory_activations.py",
        ("the last micro-batch in flight is not an earlier one", "return (alive - 1) * saved", "return alive * saved", "memory.py"),
        ("earlier micro-batches have left the head", "saved - of_head - of_depths)", "saved - of_depths)", "moments.py"),
        ("a chunk counts for its share", '/ (symbol("vpp") if strategy.vpp > 1 else 1)', "", "memory.py"),
    )
    + of(
        "cost/memory_backward.py",
        ("a tied table's gradient waits for the lookup's", "rank.fresh * of_head) + _tied_gradient(rank)", "rank.fresh * of_head)", "moments.py"),
        ("a group of n layers rebuilds n - 1 besides", "(together - 1)", "together", "moments.py"),
    )
    + of(
        "cost/memory_gathered.py",
        ("a forward gathers one unit ahead", "else everything) + next_to_run", "else everything)", "moments.py"),
        ("the root stays gathered", "return root + part + (running", "return part + (running", "moments.py"),
    )
    + of(
        "frameworks/fuse.py",
        (
            "shared experts run where their family calls them",
            "in_order(block.ops, profile.model) if profile.framework.op_by_op",
            "block.ops if True",
            "torch_peaks.py",
        ),
    )
    + of(
        "lowering/adapt.py",
        (
            "a call of DoRA's holds its locals",
            'frame=f"{op.name}.dora_" if norm else "")',
            'frame="")',
            "torch_peaks.py",
        ),
        ("what a function's first product made is made again", "again = frozenset({KERNEL}) if", "again = frozenset() if", "fused_adapters.py"),
        ("experts' adapters are scaled at their output", "not norm and not chosen", "not norm", "fused_adapters.py"),
    )
    + of(
        "cost/linear_loss.py",
        ("a chunk's weight gradient lies beside those before", "2 * weights, weights)", "weights, weights)", "linear_loss.py"),
    )
    + of(
        "cost/workspace.py",
        ("copies of parameters stay in autocast's cache", "    if cached:\n", "    if False:\n", "torch_peaks.py"),
        ("what runs again alone reads is gone behind it", "set(self.live) - self._needed(index + 1)", "set()", "torch_peaks.py"),
        ("what is added has one gradient", "            last = ZERO\n", "", "torch_peaks.py"),
        ("a graph is not recorded of what runs again", " and not (op.recorded and index in unrecorded)", "", "torch_peaks.py"),
        ("two gradients lie beside their sum", "2 * summed(self.walk.gradient(t) for t in first)", "ZERO", "torch_peaks.py"),
        ("two pieces' weight gradients lie beside their sum", "+ 2 * latest - gone, latest)", "- gone, latest)", "torch_peaks.py"),
        ("a layer's call holds what it is given", "(block.inputs if called and op_by_op else ())", "()", "torch_peaks.py"),
        ("a sum is reduced where it lies", "live[root] = live.pop(source)", "live[root] = self.size(root)", "moments.py"),
        ("backward of a log-softmax makes another one", "for t in op.attrs.inside)", "for t in op.attrs.rows[:0])", "memory.py"),
        (
            "a gradient is added where the first one lies",
            "self.gradients.setdefault(name, size)",
            "self.gradients[name] = self.gradients.get(name, ZERO) + size",
            "moments.py",
        ),
    )
)

PIPELINE = (
    of(
        "pipeline/exchanges.py",
        ("the last stage receives no gradient", "else o.stage < last)", "else True)", "exchanges.py"),
        ("what is made and what is needed next go together", "frozenset(sent + [o for", "frozenset([o for", "exchanges.py"),
        ("turns begin behind the forwards ahead", "slots[first : len(slots) - first]", "slots[first:]", "exchanges.py"),
    )
    + of(
        "pipeline/places.py",
        ("a stage of 1F1B waits for its first micro-batch", "- after + first + last)", "- after + last)", "schedules.py"),
        ("and for its last", "- after + first + last)", "- after + first)", "schedules.py"),
        ("only where it has more of them than are under way", " * is_positive(m - behind + 1)", "", "schedules.py"),
        (
            "a pipeline waits less for a slow stage that is not the last",
            'T_PLACE = (m - 1) * symbol("t_slow")',
            'T_PLACE = m * symbol("t_slow")',
            "schedules.py step_time.py",
        ),
        ("a rank of zb_h1 has its last weight gradients left", "(m - 1 - i) * w", "m * w", "schedules.py"),
        ("zb_h1 waits to and fro before it has weight gradients", "positive(to_and_fro - slower)", "positive(-slower)", "schedules.py"),
    )
    + of(
        "pipeline/schedules.py",
        (
            "1F1B has p - i micro-batches in flight",
            "exchanges * tc,\n        minimum(m, p - i)",
            "exchanges * tc,\n        minimum(m, p)",
            "schedules.py memory.py",
        ),
        ("GPipe has all", "fill_f + fill_b + 2 * (p - 1) * tc,\n        m,", "fill_f + fill_b + 2 * (p - 1) * tc,\n        p,", "schedules.py"),
        (
            "1F1B fills with backwards too",
            'fill_f + fill_b - symbol("t_place") + exchanges',
            'fill_f - symbol("t_place") + exchanges',
            "schedules.py",
        ),
        (
            "a round trip delays the micro-batch p later",
            "(p - 1 + floor((m - 1) * (p - 1) / p))",
            "(p - 1 + floor((m - 1) * p / p))",
            "schedules.py",
        ),
        (
            "interleaved chunks shorten the bubble by v",
            "(fill_f + fill_b) / v + 2 * (p - 1) * tc + returns,\n        under_way",
            "(fill_f + fill_b) + 2 * (p - 1) * tc + returns,\n        under_way",
            "schedules.py",
        ),
        (
            "interleaved warms up for every chunk but one",
            "(v - 1) * first_group + 2 * (p - 1 - i) + 1)",
            "v * first_group + 2 * (p - 1 - i) + 1)",
            "schedules.py",
        ),
        ("zb_h1 takes p - 1 weight gradients out of the bubble", "minimum(m - 1, p - 1) * tw", "minimum(m - 1, p) * tw", "schedules.py"),
        ("zb_h2 twice as many", "fill_f + fill_i - 2 * (p - 1) * tw", "fill_f + fill_i - (p - 1) * tw", "schedules.py"),
        ("interleaved_zb runs m // p rounds", "at_once // max(1, at_once // strategy.pp)", "strategy.pp", "schedules.py"),
    )
    + of(
        "inputs/longest_rows.py",
        ("rows of many short documents are sums of shorter rows", "c / alike ** (i / 2)", "c", "lengths.py"),
        ("all n stay below with the n-th power", "(below[:-1] ** n)", "(below[:-1] ** 2)", "lengths.py"),
    )
    + of(
        "inputs/cut_rows.py",
        ("a row begins anywhere in a document", "[longer[1] / (2 * mean), *", "[longer[1] / mean, *", "lengths.py"),
    )
    + of(
        "pipeline/paces.py",
        ("1F1B goes at the pace of nearly all that are under way", "Fraction(7, 8) * p", "p", "lengths.py"),
        ("work ahead hides no more than a fifth", "(DIFFER - Fraction(1, 5))", "(DIFFER - 1)", "lengths.py"),
        ("larger groups of micro-batches return before they are needed", "(1 - is_positive(first_group - p))", "1", "lengths.py"),
    )
    + of(
        "cost/lengths.py",
        ("a longest micro-batch is waited for as often as there are others under way", "paced * pace[1] * kept", "paced * kept", "lengths.py"),
        ("a pipeline fills with the longest of more where they differ more", "* _differ(lowered) / 2", "* 0", "lengths.py"),
    )
    + of(
        "cost/largest.py",
        ("the longest of sums of rows is nearer to a normal number", "root = ONE / sqrt(added)", "root = ONE", "lengths.py"),
    )
    + of(
        "cost/matrices.py",
        ("linear modules of a list are matrices apart", "times=weight.times * modules", "times=weight.times", "optimizers.py"),
        ("gate and up of dbrx lie apart", 'apart = local("h"), 2 if', 'apart = local("h"), 1 if', "optimizers.py"),
    )
    + of(
        "pipeline/flushes.py",
        ("no barrier between two flushes", '(times - 1) * part["apart"] + part["bubble"]', 'times * part["bubble"]', "flushes.py"),
        ("a flush has its part of the micro-batches", 'symbol("m") / times', 'symbol("m")', "flushes.py"),
    )
    + of(
        "cost/memory_static.py",
        ("shards of gradients that were reduced lie beside whole ones", "ends(strategy) > 1 and", "ends(strategy) > 99 and", "flushes.py"),
    )
    + of(
        "pipeline/schedules_v.py",
        ("ZB-V holds both halves of the V", "minimum(m, 2 * p - 1 - i) + minimum(m, i + 1),", "minimum(m, 2 * p - 1 - i),", "schedules.py"),
        ("DualPipe holds two copies", "weights=2 * ONE", "weights=ONE", "schedules.py"),
    )
    + of(
        "pipeline/stages.py",
        (
            "an uneven chunk ends at floor((j + 1) L / n)",
            "(j + 1) * (layers + extra) // n",
            "-(-(j + 1) * (layers + extra) // n)",
            "stages.py checks.py megatron.py",
        ),
        ("a V's second chunk counts from the end", "[rank, n - 1 - rank]", "[rank, n // 2 + rank]", "schedules.py stages.py"),
    )
)

FAMILIES = of(
    "inputs/hf/families.py",
    ("OLMo 2 has norms after", '"norms": ("post_attention", "post_mlp")', '"norms": ("post_attention",)', "params.py"),
    ("Phi's head has a bias", '"norms": ("pre_attention",), "lm_head_bias": True', '"norms": ("pre_attention",), "lm_head_bias": False', "params.py"),
    ("OPT's positions start at 2", '("max_position_embeddings") + 2', '("max_position_embeddings")', "params.py"),
    ("Qwen 2 has biases of queries, keys and values", 'attention={"qkv_bias": True}, mixers', 'attention={"qkv_bias": False}, mixers', "params.py"),
    ("Bloom has a norm after its embedding", '"alibi", "embedding_norm": True', '"alibi", "embedding_norm": False', "params.py"),
    (
        "Cohere norms heads apart",
        'choose("use_qk_norm", "per_head", "none")},\n                     model={"normalization": "LayerNorm", "parallel_block"',
        'choose("use_qk_norm", "head", "none")},\n                     model={"normalization": "LayerNorm", "parallel_block"',
        "hf.py params.py",
    ),
    (
        "Llama 4's shared expert is as wide as one",
        'moe_shared_expert_intermediate_size=integer("intermediate_size")',
        'moe_shared_expert_intermediate_size=integer("intermediate_size_mlp")',
        "params.py",
    ),
    (
        "ERNIE's router has a bias that is a parameter",
        'moe_router_enable_expert_bias="parameter"',
        'moe_router_enable_expert_bias="buffer"',
        "params.py",
    ),
    (
        "DeepSeek-V3 chooses 8 of 256 where nothing is said",
        '"num_experts_per_tok": 8, "moe_intermediate_size": 2048',
        '"num_experts_per_tok": 6, "moe_intermediate_size": 2048',
        "hf.py params.py",
    ),
)

FACTS = (*MESSAGES, *TIME, *MEMORY, *PIPELINE, *FAMILIES)
