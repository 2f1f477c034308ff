"""What a layer kind is called changes no number: words of every name, as names of kinds, against arbitrary ones."""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from symsim.algebra.kinds import ORDINARY, SPELT, in_words, kind_of, spelt
from symsim.api import python as public
from symsim.api.result import Result, derive
from symsim.grid.api import sweep
from symsim.inputs.architecture import Architecture, LayerKind, Mlp
from symsim.inputs.layer_pattern import Segment, parse_layers
from symsim.inputs.models import format_model, load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.system import System
from symsim.inputs.systems import load_system
from symsim.program.base import read_base
from symsim.program.module import compile_module
from symsim.report import render_markdown

MODELS = {
    "llama3-8b": (
        "tp=2,sp=true,pp=2,dp=2,recompute=full,recompute_method=block,recompute_num_layers=1",
        "tp=2,cp=2,dp=2,zero=3,fusion=eager",
    ),
    "mixtral-8x7b": ("tp=2,sp=true,ep=2,etp=1,pp=2,dp=2,num_microbatches=4", "ep=4,dp=4,zero=3,overlap_grad_reduce=true"),
    "deepseek-v3": (
        "tp=2,sp=true,ep=4,pp=2,dp=4,num_microbatches=8",
        "ep=8,dp=8,zero=1,use_precision_aware_optimizer=true,optimizer_cpu_offload=true",
    ),
    "qwen3-next-80b-a3b": ("tp=2,sp=true,ep=4,dp=4,recompute=selective,recompute_modules=core_attn+layernorm", "ep=2,dp=2"),
    "gemma-3-12b": ("tp=2,sp=true,pp=2,num_microbatches=4", "cp=2,cp_comm_type=all_gather,pp=4,schedule=dualpipe,num_microbatches=8"),
}
PAIRS = tuple("moe moe_shared moe_experts a a_b b a__b _a a_ dense dense_ckpt dense_i Dense DENSE x2 2 x_2".split())
SHORT = (*"head embedding mtp e s stage step x_ckpt x_stage x_i tp_stage kind__head kind_head Zed N".split(), "\u00e9-|", "")


@cache
def system() -> System:
    return load_system("h100-sxm")


@cache
def names() -> frozenset[str]:
    """Every name of a few derivations: of definitions, their groups, and the symbols in them."""
    found: set[str] = set()
    for model, strategies in MODELS.items():
        for strategy in strategies:
            book = derive(load_model(model).architecture, load_strategy(strategy), system=system()).derivation.definitions
            found |= {*book, *(s for d in book.values() for s in d.expr.symbols()), *(d.key.section for d in book.values())}
    return frozenset(found)


def words() -> tuple[str, ...]:
    """Every part of every name."""
    return tuple(sorted({w for n in names() for w in n.split("_")}))


def of_kinds(model: str, names: tuple[str, ...]) -> Architecture:
    """The model with layers of so many kinds in turn, every dense one with a width of its own."""
    base = load_model(model).architecture
    own = base.kind_names()
    kinds: dict[str, LayerKind] = {}
    for n, name in enumerate(names):
        kind = base.layer_kinds[own[n % len(own)]]
        kinds[name] = kind.model_copy(update={"ffn_hidden_size": 4096 + 128 * n}) if kind.ffn == "mlp" else kind
    layers = (Segment(repeat=2, kinds=names[:1]), Segment(repeat=1, kinds=names), *(Segment(repeat=1, kinds=(n,)) for n in names))
    return base.model_copy(update={"layers": layers, "layer_kinds": kinds})


def of_name(model: str, name: str) -> Architecture:
    """The model, whose one kind of layer goes by another name."""
    base = load_model(model).architecture
    (kind,) = base.layer_kinds.values()
    layers = tuple(s.model_copy(update={"kinds": (name,) * len(s.kinds)}) for s in base.layers)
    return base.model_copy(update={"layers": layers, "layer_kinds": {name: kind}})


def numbers(result: Result) -> list[Any]:
    """All numbers in the order in which they are defined: the JSON's but for its words, every definition's, every stage's."""

    def placed(data: Any) -> Any:
        if isinstance(data, dict):
            return [placed(v) for k, v in data.items() if k not in ("what", "at")]
        return [placed(v) for v in data] if isinstance(data, list) else data

    stages = [list(result.stage_numbers(s).values()) for s in result.stages]
    return [placed(result.to_json()), list(result.step_numbers.values()), stages]


@cache
def expected(model: str, at: int, count: int) -> list[Any]:
    other = of_kinds(model, tuple(f"qq{n}qq" for n in range(count)))
    return numbers(derive(other, load_strategy(MODELS[model][at]), system=system()))


def assert_same(model: str, at: int, names: tuple[str, ...]) -> None:
    """A model with kinds of these names has the numbers of the same model with kinds of other names."""
    found = derive(of_kinds(model, names), load_strategy(MODELS[model][at]), system=system())
    assert numbers(found) == expected(model, at, len(names))


def test_words_of_every_name_as_kinds() -> None:
    """Many kinds in one model, which must not meddle with each other either."""
    every = tuple(dict.fromkeys((*PAIRS, *SHORT, *words()[::16])))
    for k in range(0, len(every) - 14, 15):
        assert_same("llama3-8b", 0, every[k : k + 15])


OTHERS = (("mixtral-8x7b", 0), ("mixtral-8x7b", 1), ("qwen3-next-80b-a3b", 1), ("deepseek-v3", 1), ("gemma-3-12b", 1))


@pytest.mark.long_after(1)
@pytest.mark.parametrize(("model", "at"), OTHERS)
def test_words_drawn_from_all_of_them_as_kinds(model: str, at: int) -> None:
    assert_same(model, at, tuple(random.Random(f"{model} {at}").sample(words(), 6)))
    assert_same(model, at, ("moe", "moe_shared", "moe_experts", "dense", "dense_ckpt", "a_b"))


@pytest.mark.parametrize("model", MODELS)
def test_words_that_are_no_kinds_as_kinds(model: str) -> None:
    assert_same(model, 0, ("head", "embedding", "mtp", "e", "x_ckpt", "stage"))


@pytest.mark.long_after(8)
@pytest.mark.parametrize("word", sorted(ORDINARY))
def test_ordinary_names_are_spelt_as_they_are_and_collide_with_nothing(word: str) -> None:
    assert spelt(word) == word
    assert_same("llama3-8b", 1, (word, "kind"))
    assert_same("mixtral-8x7b", 1, (word,))


def test_a_spelling_is_one_word_of_its_own() -> None:
    texts = {*PAIRS, *SHORT, *words(), *ORDINARY, "kind_", "kind__", "kind___a", "aZ5fZb", "Z", "ZZ", "a.b", "a b", "\u00e9"}
    found = {spelt(t) for t in texts}
    assert len(found) == len(texts)
    assert all(kind_of(spelt(t)) == t for t in texts)
    assert all(re.fullmatch(SPELT, s, re.ASCII) for s in found)
    assert not any("__" in name for name in names())


def test_the_parameters_of_llama_do_not_depend_on_a_name() -> None:
    for name in ("dense", "head", "e", "mtp", "stage"):
        assert derive(of_name("llama3-8b", name), load_strategy("tp=2"), system=system()).value("N") == 8030261248


def test_a_width_of_its_own_is_not_the_experts() -> None:
    """A dense kind called e, with a width f_e: the experts' width is f_e, too."""
    base = load_model("mixtral-8x7b").architecture
    found = set()
    for name in ("e", "s", "dense"):
        dense = base.layer_kinds["moe"].model_copy(update={"ffn": "mlp", "ffn_hidden_size": 4096})
        kinds = {name: dense, "moe": base.layer_kinds["moe"]}
        changes = {"layers": parse_layers(f"4 * {name} + 28 * moe"), "layer_kinds": kinds, "mlp": Mlp(ffn_hidden_size=4096)}
        found.add(derive(base.model_copy(update=changes), load_strategy("tp=2,sp=true")).value("N"))
    assert found == {46702792704 - 4 * (8 * 3 * 4096 * 14336 + 8 * 4096) + 4 * 3 * 4096 * 4096}


NUMBER = re.compile(r"(?<![A-Za-z_])[0-9][0-9.,]*")


@pytest.mark.parametrize("name", ["head", "x_ckpt", "stages"])
def test_reports_show_the_same_numbers(name: str) -> None:
    strategy = load_strategy("tp=2,sp=true,pp=2,dp=2,recompute=full,recompute_method=block,recompute_num_layers=2")
    shown = []
    # as long where it is printed, so that lines break alike
    for kind in (name, "q" * len(in_words(spelt(name))) if "_" not in name else "q_" + "q" * (len(name) - 2)):
        result = derive(of_name("llama3-8b", kind), strategy, system=system())
        report = render_markdown(result)
        assert "Decoder layer: " + kind.replace("_", r"\_") in report
        shown.append([Counter(NUMBER.findall(text)) for text in (result.table(), report)])
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", ["head", "e", "x_ckpt"])
def test_sweeps_and_modules_compute_the_same(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    found, other = swept_and_compiled(name, path), swept_with_an_arbitrary_kind()
    assert found[0] == other[0]
    assert found[1] == pytest.approx(other[1], rel=1e-12)  # sums are in the order of names


@cache
def swept_with_an_arbitrary_kind() -> tuple[Any, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return swept_and_compiled("qq", Path(folder, "model.yaml"))


def swept_and_compiled(kind: str, path: Path) -> tuple[Any, Any]:
    path.write_text(format_model(of_kinds("llama3-8b", (kind, "moe", "x"))))
    axes = {"tp": [1, 2], "pp": [1, 2], "micro_batch_size": [1, 2], "recompute": ["none", "full"]}
    rows = sweep(str(path), axes, "num_microbatches=4,dp=2", "h100-sxm")
    assert rows.rows["time.step"].size == 16
    space: dict[str, Any] = {}
    base = read_base(str(path), "tp=2,pp=2,dp=2,num_microbatches=4,recompute=full", "h100-sxm", [])
    exec(compile(compile_module(base, None), "<module>", "exec"), space)
    return {c: list(v) for c, v in rows.rows.items()}, space["kernel"]()


@pytest.mark.parametrize("model", ["kimi-linear-48b-a3b", "zamba2-7b", "gemma-3n-e2b"])
def test_the_model_of_a_result_is_derived_again_under_the_same_names(model: str) -> None:
    """Its kinds are spelt as names have them, and are not marked twice."""
    first = public.derive(model)
    again = public.derive(first.model)
    assert first.derivation.definitions.keys() == again.derivation.definitions.keys()
    assert public.compile(first.model) == public.compile(model)
    # fields of kinds are given as the user calls them
    given = {f"layer_kinds.{load_model(model).architecture.kind_names()[0]}.in_turn": 2}
    assert public.derive(first.model, overrides=given).architecture == public.derive(model, overrides=given).architecture
    assert first.architecture == load_model(model).architecture
