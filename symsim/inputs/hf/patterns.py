"""Which layers of a model are which: lists that a config writes, and the rules that transformers takes where it writes none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from symsim.errors import InputError
from symsim.inputs.architecture import LayerKind
from symsim.inputs.hf.config import Config
from symsim.inputs.hf.fields import Ffns, Mixers, typed

Rule = Callable[[Config], Callable[[int], bool]]


def every(period: str | int) -> Rule:
    """Layers `period`, 2 `period`, ... counted from one."""

    def rule(c: Config) -> Callable[[int], bool]:
        n = period if isinstance(period, int) else c.integer(period)
        return lambda i: (i + 1) % n == 0

    return rule


def starting(period: int) -> Rule:
    """The first layer and every `period`-th after it."""
    return lambda c: lambda i: i % period == 0


def always(c: Config) -> Callable[[int], bool]:
    return lambda i: True


def where_no_window(c: Config) -> Callable[[int], bool]:
    """configuration_ministral.py: every layer has the window where there is one."""
    none = c.optional("sliding_window") is None
    return lambda i: none


def listed(whole: Rule, windowed_turn: bool = False) -> Mixers:
    """`layer_types`, or full attention where the rule `whole` says so and a window elsewhere.

    windowed_turn: layers without a window have no RoPE (Cohere 2; EXAONE 4: unless there is no window at all).
    """

    def kinds(c: Config) -> list[LayerKind]:
        given = c.items("layer_types", str, c.depth)
        if given is None:
            is_whole = whole(c)
            given = ["full_attention" if is_whole(i) else "sliding_attention" for i in range(c.depth)]
        made = typed(c, given)
        if not windowed_turn:
            return made
        return [kind.model_copy(update={"rope": name == "sliding_attention"}) for kind, name in zip(made, given, strict=True)]

    return kinds


def both_ways_where(key: str, mixers: Mixers) -> Mixers:
    """configuration_gemma3.py: attention to what comes behind too, in windows of half the width and the token itself (EmbeddingGemma)."""

    def kinds(c: Config) -> list[LayerKind]:
        made = mixers(c)
        if not c.flag(key):
            return made
        windows = [None if kind.window is None else kind.window // 2 + 1 for kind in made]
        return [kind.model_copy(update={"bidirectional": True, "window": window}) for kind, window in zip(made, windows, strict=True)]

    return kinds


def compass_mixers(c: Config) -> list[LayerKind]:
    """configuration_cohere_compass.py: all layers attend to everything unless `layer_types` says otherwise; a type whose rope_parameters are null has
    no RoPE."""
    types = c.items("layer_types", str, c.depth) or ["full_attention"] * c.depth
    said = c.values.get("rope_parameters")
    unturned = {name for name, of in said.items() if of is None} if isinstance(said, Mapping) else set()
    return [kind.model_copy(update={"rope": name not in unturned}) for kind, name in zip(typed(c, types), types, strict=True)]


def turned_where_windowed(whole: Rule) -> Mixers:
    """modeling_exaone4.py: RoPE in layers with a window; in all where sliding_window is null."""

    def kinds(c: Config) -> list[LayerKind]:
        if c.optional("sliding_window") is None and c.items("layer_types", str, c.depth) is None:
            raise c.refuse("layer_types", "given where sliding_window is null", None)
        return listed(whole, windowed_turn=c.optional("sliding_window") is not None)(c)

    return kinds


def every_from_the_last(period: int) -> Rule:
    """The last layer and every `period`-th before it."""
    return lambda c: lambda i: (c.depth - 1 - i) % period == 0


def granite_rope(whole: Rule, omitted: Rule | None = None) -> Mixers:
    """configuration_granite_swa.py: layer_rope_theta 0 leaves a layer without RoPE. omitted: the layers without it where the key is left out."""

    def kinds(c: Config) -> list[LayerKind]:
        name, thetas = c.look("layer_rope_theta")
        made = listed(whole)(c)
        if thetas is None:
            none = omitted(c) if omitted else lambda i: False
            return [kind.model_copy(update={"rope": not none(i)}) for i, kind in enumerate(made)]
        numbers = isinstance(thetas, list) and all(isinstance(t, int | float) and not isinstance(t, bool) for t in thetas)
        if not numbers or len(thetas) != c.depth:
            raise c.refuse(name, f"a list of {c.depth} numbers", thetas)
        return [kind.model_copy(update={"rope": bool(theta)}) for kind, theta in zip(made, thetas, strict=True)]

    return kinds


def sparse_from(first: str | int, every: str = "") -> Ffns:
    """`mlp_layer_types`, or experts from layer `first` on, in layers whose number the key `every` divides."""

    def ffns(c: Config) -> list[str]:
        given = c.items("mlp_layer_types", str, c.depth)
        if given is None:
            n = first if isinstance(first, int) else c.integer(first, 0)
            step = c.integer(every) if every else 1
            return ["moe" if i >= n and i % step == 0 else "mlp" for i in range(c.depth)]
        wrong = [kind for kind in given if kind not in ("dense", "sparse")]
        if wrong:
            raise InputError(f"{c.where}: key 'mlp_layer_types' names '{wrong[0]:.40}'; a layer is dense or sparse.")
        return ["moe" if kind == "sparse" else "mlp" for kind in given]

    return ffns


def cohere_moe_windows(c: Config) -> list[LayerKind]:
    """configuration_cohere2_moe.py: the dense layers that come first have a pattern of their own, and RoPE throughout where it is 1."""
    first, period = c.integer("first_k_dense_replace", 0), c.integer("prefix_dense_sliding_window_pattern")
    rest = c.integer("sliding_window_pattern")
    types = c.items("layer_types", str, c.depth) or [
        "full_attention" if ((i + 1) % period == 0 if i < first else (i - first + 1) % rest == 0) else "sliding_attention" for i in range(c.depth)
    ]
    kinds = [kind.model_copy(update={"rope": name == "sliding_attention"}) for kind, name in zip(typed(c, types), types, strict=True)]
    plain = sparse_from("first_k_dense_replace")(c)
    return [kind.model_copy(update={"rope": kind.rope or (ffn == "mlp" and period == 1)}) for kind, ffn in zip(kinds, plain, strict=True)]
