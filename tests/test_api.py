"""The Python API: a few public names that do what the command line does."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import symsim
import symsim.inputs.shipped
from symsim.errors import InputError
from symsim.evaluation.interval import ENDS
from symsim.evaluation.quantities import QUANTITIES
from symsim.inputs.reading import read_yaml


def test_public_names() -> None:
    verbs = {*"anchor ask audit compare compile derive load_job load_model load_strategy load_system next_changes plan run sizing sweep".split()}
    verbs |= {"write_report"}
    assert set(symsim.__all__) == verbs | {"Architecture", "Formula", "InputError", "Job", "Plan", "Result", "Strategy", "SweepRows", "System"}
    assert all(callable(getattr(symsim, name)) for name in symsim.__all__)
    with pytest.raises(AttributeError, match="no attribute 'derived'"):
        _ = symsim.derived


def test_derive() -> None:
    result = symsim.derive(symsim.load_model("llama3-70b"), symsim.load_strategy("tp=8,pp=4", sp=True))
    assert result.value("N") == 70553706496
    assert result.to_json()["params"]["total"] == 70553706496
    assert result.formula("F_dense")._repr_latex_().startswith("$\\displaystyle F_{\\mathrm{dense}} = ")
    assert "70.55 B" in result._repr_html_()


def test_derive_takes_names_texts_paths_and_mappings(tmp_path: Path) -> None:
    wanted = symsim.derive(symsim.load_model("llama3-70b"), symsim.load_strategy("tp=8,pp=4"), system=symsim.load_system("h100-sxm"))
    (tmp_path / "s.yaml").write_text("tp: 8\npp: 4\n")
    model = Path(symsim.inputs.shipped.models_directory() / "llama3-70b.yaml")
    for asked in (
        symsim.derive("llama3-70b", "tp=8,pp=4", system="h100-sxm"),
        symsim.derive(model, tmp_path / "s.yaml", system=Path(symsim.inputs.shipped.models_directory() / "systems" / "h100-sxm.yaml")),
        symsim.derive(read_yaml(model).data, {"tp": 8, "pp": 4}, system="h100-sxm"),
        symsim.derive(symsim.load_model("llama3-70b"), {"tensor_model_parallel_size": 8, "pp": 4}, system="h100-sxm"),
    ):
        assert asked.to_json() == wanted.to_json()
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 256}
    assert symsim.derive(config).model.num_layers == 2 and symsim.derive(config).strategy.world_size == 1
    with pytest.raises(InputError, match="the strategy: unknown key 'tp_size': did you mean 'tp'"):
        symsim.derive("llama3-70b", {"tp_size": 8})
    with pytest.raises(InputError, match="no system or file is named 'h100'"):
        symsim.derive("llama3-70b", "tp=8", system="h100")


@pytest.mark.parametrize(("model", "strategy"), [("llama3-8b", "tp=2,sp=true,pp=2,num_microbatches=4"), ("mixtral-8x7b", "ep=2,dp=4,zero=1")])
def test_every_quantity_has_its_value(model: str, strategy: str) -> None:
    result = symsim.derive(model, strategy, overrides={"tokens": "1T"}, system="h100-sxm")
    swept = symsim.sweep(
        model,
        {"num_microbatches": [result.strategy.microbatches]},
        strategy.replace(",num_microbatches=4", ""),
        "h100-sxm",
        columns=",".join(QUANTITIES),
        overrides={"tokens": "1T"},
    )
    for name in QUANTITIES:
        # a grid has the ends of an interval from differences over a millionth of a spread
        near = 1e-6 if name in ENDS else 1e-12
        assert float(result.value(name)) == pytest.approx(float(swept.rows[name][0]), rel=near), name
    told = result.to_json()
    assert result.value("time.step") == told["time"]["step"] and result.value("memory.peak") == told["memory"]["peak"]
    assert all(result.value(f"time.exposed.{axis}") == seconds for axis, seconds in told["time"]["exposed"].items())
    assert result.formula("time.step").sympy() == result.formula("t_step").sympy() != result.formula("tokens_per_second").sympy()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("memory.peek", "there is no 'memory.peek': did you mean 'memory.peak'?"),
        ("time.stpe", "did you mean 'time.step'?"),
        ("F_dens", "did you mean 'F_dense'?"),
        ("step", "did you mean 'time.step'?"),
        ("zzz", "'symsim list quantities' has names, 'symsim formula MODEL' those of formulas"),
        ("M_stage_peak", "each stage has its own M_stage_peak"),
    ],
)
def test_unknown_names_are_key_errors_with_the_nearest(name: str, said: str) -> None:
    result = symsim.derive("llama3-8b", "tp=2", system="h100-sxm")
    for ask in (result.value, *([] if name == "M_stage_peak" else [result.formula])):
        with pytest.raises(KeyError) as caught:
            ask(name)
        assert said in str(caught.value) and isinstance(caught.value, InputError)
    with pytest.raises(KeyError, match="time.step needs a system"):
        symsim.derive("llama3-8b").value("time.step")


@pytest.mark.parametrize("system", [None, "h100-sxm"])
def test_a_result_shows_itself_in_a_screen(system: str | None) -> None:
    shown = repr(symsim.derive("deepseek-v3", "ep=8,pp=4,cp=2,num_microbatches=8,recompute=full", system=system))
    assert len(shown.splitlines()) <= 24 and max(map(len, shown.splitlines())) <= 80
    assert "deepseek-v3" in shown and "671 B parameters" in shown and ("a step" in shown.split("peak memory")[1]) == (system is not None)


def test_only_the_verbs_are_seen() -> None:
    assert dir(symsim) == sorted(symsim.__all__)
    assert (Path(symsim.__file__).parent / "py.typed").is_file()
    assert "Derive the closed formulas" in (symsim.derive.__doc__ or "") and "model" in inspect.signature(symsim.derive).parameters
    assert symsim.load_model.__annotations__["return"] == "Architecture"


def test_bad_input_is_one_sentence() -> None:
    with pytest.raises(InputError, match="tp=3 does not divide num_attention_heads=64"):
        symsim.derive(symsim.load_model("llama3-70b"), symsim.load_strategy("tp=3"))
