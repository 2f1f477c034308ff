"""The public names in Python: their examples run, a strict type checker reads them, and they take objects where they take names."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError

ROOT = Path(__file__).parents[1]

# each line of the first part is right; each of the second has one fault, which the checker names
RIGHT = """
from typing import assert_type
import symsim
result = symsim.derive("llama3-8b", {"tp": 2}, system="h100-sxm", overrides={"L": 16})
assert_type(result, symsim.Result)
assert_type(result.formula("N"), symsim.Formula)
assert_type(symsim.load_model("llama3-8b"), symsim.Architecture)
assert_type(symsim.load_strategy("tp=2", pp=2).world_size, int)
assert_type(symsim.load_system("h100-sxm"), symsim.System)
assert_type(symsim.compile("llama3-8b", free=["b"]), str)
assert_type(symsim.sweep(symsim.load_model("llama3-8b"), {"tp": [1, 2]}, columns=["memory.peak"]), symsim.SweepRows)
assert_type(symsim.write_report(result, "r.md"), list[str])
def told(error: symsim.InputError) -> str:
    return str(error)
"""
WRONG = {
    "symsim.derive(3)": 'Argument 1 to "derive" has incompatible type "int"',
    'symsim.deriv("llama3-8b")': 'Module has no attribute "deriv"',
    'symsim.derive("llama3-8b", stratgy="tp=2")': 'Unexpected keyword argument "stratgy"',
    'result.valeu("N")': '"Result" has no attribute "valeu"',
}


VERBS = (
    "symsim.api.python",
    "symsim.api.anchored",
    "symsim.api.run",
    "symsim.audit.python",
    "symsim.compat.verbs",
    "symsim.grid.api",
    "symsim.importers.reading",
    "symsim.planning.plan",
    "symsim.planning.verbs",
)


def examples(module: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(importlib.import_module(module)) if test.examples]


@pytest.mark.parametrize("module", ["symsim", *VERBS])
def test_the_examples_in_docstrings_run(module: str) -> None:
    found = examples(module)
    assert found
    for test in found:
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0, test.name


def test_the_examples_of_the_page_run() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("sympy")
    ran = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert ran.attempted > 15 and ran.failed == 0


def test_every_verb_has_an_example() -> None:
    named = {test.name.rpartition(".")[2] for module in VERBS for test in examples(module)}
    verbs = {name for name in symsim.__all__ if inspect.isfunction(getattr(symsim, name))}
    assert verbs - {"write_report"} <= named


@pytest.mark.long
def test_a_strict_type_checker_sees_the_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    script = tmp_path / "user.py"
    script.write_text(RIGHT + "\n".join(WRONG) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}/cache", str(script)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(ROOT)}, cwd=tmp_path)
    errors = [line for line in run.stdout.splitlines() if ": error: " in line]
    first = len(RIGHT.splitlines()) + 1
    assert [int(line.split(":")[1]) for line in errors] == list(range(first, first + len(WRONG))), run.stdout
    assert all(said in line for said, line in zip(WRONG.values(), errors)), run.stdout


def test_help_shows_whole_signatures() -> None:
    shown = str(inspect.signature(symsim.derive))
    assert "Architecture | Job | str | os.PathLike[str] | Mapping[str, Any]" in shown and '"' not in shown


def test_objects_are_taken_where_names_are() -> None:
    model, strategy = symsim.load_model("llama3-8b"), symsim.load_strategy("tp=2,sp=true,recompute=selective,recompute_modules=core_attn+mlp")
    text = "tp=2,sp=true,recompute=selective,recompute_modules=core_attn+mlp"
    axes = {"num_microbatches": [1, 4]}
    by_name = symsim.sweep("llama3-8b", axes, text, "h100-sxm", overrides={"B_2": "100 GB/s"})
    by_object = symsim.sweep(model, axes, strategy, Path(symsim_system("h100-sxm")), overrides={"B_2": "100 GB/s"})
    assert {n: v.tolist() for n, v in by_name.rows.items()} == {n: v.tolist() for n, v in by_object.rows.items()}
    assert symsim.compile("llama3-8b", text, free="b,s") == symsim.compile(model, strategy, free=["b", "s"])
    slower = symsim.sweep(model, axes, strategy, "h100-sxm", overrides={"B_hbm": "1 TB/s"})
    assert (slower.rows["time.step"] > by_name.rows["time.step"]).all()


def symsim_system(name: str) -> Path:
    from symsim.inputs.shipped import models_directory

    return models_directory() / "systems" / f"{name}.yaml"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: symsim.derive(3), "the model is 3; a name, a path"),  # type: ignore[arg-type]
        (lambda: symsim.derive("llama3-8b", 8), "the strategy is 8"),  # type: ignore[arg-type]
        (lambda: symsim.derive("llama3-8b", system=["h100-sxm"]), "the system is \\['h100-sxm'\\]"),  # type: ignore[arg-type]
        (lambda: symsim.sweep("llama3-8b", {"tp": [1]}, overrides={"seq_lenght": 1}), "did you mean 'seq_length'"),
        (lambda: symsim.compile("llama3-8b", overrides={"assume.cuasal": "half"}), "cuasal"),
        (lambda: symsim.compile("llama3-8b", free="b,,s"), "separated by commas"),
        (lambda: symsim.compile("llama3-8b", free=["bb"]), "bb"),
        (lambda: symsim.load_system("h100-smx"), "did you mean 'h100-sxm'"),
        (lambda: symsim.sweep("llama3-8b", None), "the axes are None; a mapping such as"),  # type: ignore[arg-type]
        (lambda: symsim.sweep("llama3-8b", {"tp": [1]}, top="x"), "top='x': the name of a quantity and a number"),  # type: ignore[arg-type]
        (lambda: symsim.sweep("llama3-8b", {"tp": [1]}, by=["world"]), "by=\\['world'\\], top=None"),  # type: ignore[arg-type]
        (lambda: symsim.write_report("llama3-8b", "a.md"), "write_report\\('llama3-8b', 'a.md'\\): what derive returns"),  # type: ignore[arg-type]
        (lambda: symsim.derive("gpt2").value(None), "None is no name: text such as 'time.step'"),  # type: ignore[arg-type]
        (lambda: symsim.derive("gpt2").formula("N").value({"h": 1}), "N has no value without L_dense, P, V, "),
        (lambda: symsim.derive("gpt2").formula("N").given(3), "3 is no fact: text such as 'g = a'"),  # type: ignore[arg-type]
        (lambda: symsim.derive("gpt2", "tp=2", "h100-sxm"), "assumptions is 'h100-sxm'; a mapping .* a system is system='h100-sxm'"),  # type: ignore[arg-type]
        (lambda: symsim.derive("gpt2").ask(3), "3 is no question: text such as 'largest s where"),  # type: ignore[arg-type]
        (lambda: symsim.compile("gpt2", free=5), "free is 5; names of arguments are needed"),  # type: ignore[arg-type]
        (lambda: symsim.sweep("gpt2", {"tp": [1]}, columns=5), "columns is 5; names of quantities are needed"),  # type: ignore[arg-type]
        (lambda: symsim.sweep("gpt2", {"tp": [1]}, pareto=["world", 3]), "pareto is \\['world', 3\\]; names"),  # type: ignore[list-item]
        (lambda: symsim.derive("gpt2").formula("N").to(drop_below=2), "--drop-below 2: a share is needed"),
        (lambda: symsim.derive("gpt2").formula("N").to(inline="N_head,"), "names of definitions by commas"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(ask: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ask()


def test_what_the_command_line_takes_as_text_is_taken() -> None:
    """Names by commas and a percentage of one formula; a lone value, and two quantities in a row, of a sweep."""
    step = symsim.derive("llama3-8b", "tp=2,sp=true,pp=2,num_microbatches=4", system="h100-sxm").formula("t_step")
    assert step.to(inline="t_tail,t_pipeline") == step.to(inline=["t_tail", "t_pipeline"]) != step.to()
    assert step.to(inline="all") == step.to(inline=["all"])
    layer = symsim.derive("llama3-8b").formula("A_dense")
    assert layer.to(per="s", drop_below="5%") == layer.to(per="s", drop_below=0.05) != layer.to(per="s")
    assert symsim.sweep("llama3-8b", {"tp": 2}).rows["tp"].tolist() == [2]
    both = symsim.sweep("llama3-8b", {"tp": [1, 2]}, pareto=("memory.peak", "world"))
    assert len(both) == len(symsim.sweep("llama3-8b", {"tp": [1, 2]}, pareto="memory.peak,world")) == 2


@pytest.mark.long_after(1)
@pytest.mark.parametrize(
    ("model", "strategy", "overrides"),
    [
        ("zamba2-7b", "pp=3,dp=4,num_microbatches=6", {"B_hbm": "1 TB/s"}),
        ("mixtral-8x7b", "tp=2,sp=true,ep=4,dp=4,tuner_type=lora,num_microbatches=4", {"lam": 1.5, "assume.causal": "half"}),
    ],
)
def test_a_result_goes_to_another_process(model: str, strategy: str, overrides: dict[str, Any], tmp_path: Path) -> None:
    """As a pool of processes hands it back, after its report too: it is derived again from what it is of."""
    result = symsim.derive(model, strategy, system="h100-sxm", overrides=overrides)
    symsim.write_report(result, tmp_path / "page.html")
    there = pickle.loads(pickle.dumps(result))
    assert there.to_json() == result.to_json() and repr(there) == repr(result)


def test_rows_of_a_sweep_are_a_screen() -> None:
    found = symsim.sweep("llama3-8b", {"micro_batch_size": range(1, 101)}, "tp=2", "h100-sxm")
    lines = repr(found).splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 100 and lines[-1].startswith("100 rows;")
    assert repr(symsim.sweep("llama3-8b", {"tp": [2]}, where="tp > 4")).startswith("0 rows;")
    assert symsim.sweep("llama3-8b", "tp=1,2").axes == {("tp",): [(1,), (2,)]}
    given: dict[str, Any] = {"world": 2, "global_batch_size": 4, "fix": "pp=1,cp=1,recompute=none"}
    one, several = (symsim.plan("smollm2-360m", "h100-sxm", allow=allow, **given) for allow in ("clip_grad=0,1", ["clip_grad=0,1"]))
    assert one.certificate.configurations == several.certificate.configurations


def test_frames_hold_what_results_hold() -> None:
    pytest.importorskip("pandas")
    result = symsim.derive("mixtral-8x7b", "pp=2,ep=2,dp=2,num_microbatches=4", system="h100-sxm")
    frame = result.to_pandas()
    assert set(frame.symbol) == set(result.derivation.definitions)
    assert frame[frame.symbol == "N"].value.item() == result.value("N") and frame[frame.symbol == "N"].unit.item() == "element"
    assert frame[frame.symbol == "t_step"].value.item() == result.value("time.step")
    peaks = frame[frame.symbol == "M_stage_peak"]
    assert peaks.stage.tolist() == [0, 1] and -(-peaks.value.max() // 1) == result.value("memory.peak")
    swept = symsim.sweep("llama3-8b", {"tp": [1, 2]}, system="h100-sxm")
    table = swept.to_pandas()
    assert table.tp.tolist() == [1, 2] and table["time.step"].tolist() == swept.rows["time.step"].tolist()
    assert table.attrs["units"]["time.step"] == "s" and "fullest" in table.attrs["meanings"]["memory.peak"]


def test_frames_without_pandas_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for give in (symsim.derive("llama3-8b").to_pandas, symsim.sweep("llama3-8b", {"tp": [1]}).to_pandas):
        with pytest.raises(InputError, match="pip install 'symsim\\[pandas\\]'"):
            give()
