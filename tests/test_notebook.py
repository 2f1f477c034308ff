"""What notebooks show: tables and figures that stand in light and dark, formulas as they are read, and the verbs behind `--next` and `--world`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import symsim
from symsim.errors import InputError
from symsim.evaluation.launches import launching_of_step
from symsim.inputs.settings import text_of
from symsim.report.amounts import seconds
from symsim.report.notebook import words

STRATEGY = "tp=8,sp=true,pp=4,num_microbatches=32"
FIXED = "cp=1,pp=1,vpp=1,recompute=none,overlap_grad_reduce=true"


@pytest.fixture(scope="module")
def result() -> symsim.Result:
    return symsim.derive("llama3-70b", STRATEGY, system="h100-sxm")


@pytest.fixture(scope="module")
def swept() -> symsim.SweepRows:
    return symsim.sweep("llama3-8b", {"tp": [1, 2, 4], "micro_batch_size": range(1, 9)}, "dp=8", "h100-sxm")


@pytest.fixture(scope="module")
def planned() -> symsim.Plan:
    return symsim.plan("smollm2-360m", "h100-sxm", world=4, global_batch_size=16, fix=FIXED)


def _cells(html: str) -> list[list[str]]:
    """The texts of a fragment's rows; it parses, and sets no colour of letters or paper that a theme would have to match."""
    tree = ElementTree.fromstring(html)
    assert not re.findall(r"(?:^|[;\"])(?:color|background):(?!inherit|#4a90d9)[^;\"]*", html) and "<style" not in html
    return [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]


def test_a_result_is_its_step_where_it_goes_and_what_it_needs(result: symsim.Result) -> None:
    rows = _cells(result._repr_html_())
    assert ["one step takes", "5.128 s", "32 accelerators"] in rows
    parts = [row for row in rows if row[-1] == "" and len(row) == 4]
    assert [row[0] for row in parts][:2] == ["kernels of the slowest stage", "pipeline bubble (waiting)"] and "optimizer states" in str(parts)
    shares = [float(row[2].split()[0]) for row in rows[rows.index(["", "time", "share"]) + 1 :] if row[0] != "" and len(row) == 4][:6]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    assert "one step takes" in result._repr_latex_() and not re.search(r"(?<!\\)[%&#_](?!\{)", re.sub(r" & ", "", result._repr_latex_()))


def test_without_a_system_a_result_is_its_counts() -> None:
    rows = _cells(symsim.derive("mixtral-8x7b", "ep=2")._repr_html_())
    assert ["parameters a token uses", "12.88 B"] in rows and not any("time" in str(row) for row in rows)


def test_a_formula_is_typeset_as_it_is_read(result: symsim.Result) -> None:
    assert result.formula("N")._repr_latex_() == r"$\displaystyle N = h(L_{\mathrm{dense}}(2d(a + g) + 3f + 2) + 2V + 1)$"
    step = result.formula("t_step")
    assert len(step._repr_latex_()) < 1000
    assert r"t_{\mathrm{pipeline}} & \text{5.086 s} & \text{the pipeline" in step._repr_latex_()
    assert set(step._repr_mimebundle_()) == {"text/plain", "text/latex"}


def test_words_among_mathematics() -> None:
    assert words("3 % of a_b") == r"\text{3 }\%\text{ of a}\_\text{b}"


def test_a_front_end_may_choose(result: symsim.Result, planned: symsim.Plan) -> None:
    assert set(result._repr_mimebundle_()) == {"text/plain", "text/html", "text/latex"}
    assert result._repr_mimebundle_(include=["text/plain"]) == {"text/plain": repr(result)}
    assert set(planned._repr_mimebundle_(exclude=["text/html"])) == {"text/plain", "text/latex"}


def test_rows_of_a_sweep(swept: symsim.SweepRows) -> None:
    rows = _cells(swept._repr_html_())
    assert len(swept) == 24 and len(rows) == 21 and rows[0][:3] == ["", "tp", "b"] and "The first 20 of 24 rows" in swept._repr_html_()
    assert "memory" in rows[0] and len(rows[1]) == len(rows[0]) >= len(swept.columns)


def test_a_plan_has_its_certificate(planned: symsim.Plan) -> None:
    rows = _cells(planned._repr_html_())
    assert ["configurations of the space", "10"] in rows and ["evaluated", "3"] in rows
    pytest.importorskip("pandas")
    frame = planned.to_pandas()
    assert frame.strategy.tolist() == [choice.text for choice in planned.best]
    assert frame["time.step"].item() == planned.best[0].result.value("time.step")


def test_figures_stand_alone(result: symsim.Result, swept: symsim.SweepRows, tmp_path: Path) -> None:
    drawn = [*(result.plot(what) for what in ("step", "memory", "roofline", "schedule", "counts")), swept.plot(), swept.plot("time.step", over="tp")]
    for figure in drawn:
        tree = ElementTree.fromstring(figure._repr_svg_())
        assert {"width", "height", "viewBox", "font-family", "fill"} <= tree.attrib.keys() and "href" not in figure.svg
    drawn[0].write(tmp_path / "step.svg")
    assert (tmp_path / "step.svg").read_text() == drawn[0].svg and "kernels of the slowest stage: 3.313 s (64.6 %)" in drawn[0].svg
    # of each place the best of all other axes: the shortest step
    shortest = [min(t for t, tp in zip(swept.rows["time.step"], swept.rows["tp"]) if tp == degree) for degree in (1, 2, 4)]
    heights = [float(y) for y in re.findall(r'<circle cx="[^"]+" cy="([^"]+)"', drawn[-1].svg)]
    assert (heights[0] - heights[1]) / (heights[0] - heights[2]) == pytest.approx((shortest[0] - shortest[1]) / (shortest[0] - shortest[2]), abs=0.01)


def test_a_place_without_a_row_is_not_said_to_be_refused(swept: symsim.SweepRows) -> None:
    """Of the best rows the others may run as well; where no conditions are, none is named. Titles say of what they are."""
    best = symsim.sweep("llama3-8b", {"tp": [1, 2, 4], "pp": [1, 2, 4]}, {"global_batch_size": 16}, "h100-sxm", top=3, by="time.step")
    drawn = best.plot(over="tp,pp").svg
    assert "no row is here" in drawn and not re.search("cannot run|conditions|meets", drawn)
    assert "llama3-8b on h100-sxm" in drawn and "llama3-8b on h100-sxm" in best._repr_html_() and "llama3-8b on h100-sxm" in swept._repr_html_()


WRONG: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda result, swept: result.plot("stpe"), "plot('stpe'): did you mean 'step'?"),
    (lambda result, swept: symsim.derive("llama3-8b").plot(), "plot('step') draws times on a system"),
    (lambda result, swept: swept.plot("mfuu"), "by='mfuu': the rows have no 'mfuu': did you mean 'mfu'?"),
    (lambda result, swept: swept.plot(over="pp"), "plot(over=...) pp: it is no axis of more than one value"),
    (lambda result, swept: symsim.sweep("llama3-8b", {"tp": [2, 4]}, where="tp > 4").plot(), "plot(): there are no rows to draw"),
    (lambda result, swept: result.plot().write("step.png"), "step.png: a figure ends in .svg"),
    (lambda result, swept: symsim.next_changes("llama3-8b", "tp=2"), "--next compares steps on a system"),
    (lambda result, swept: symsim.next_changes("llama3-8b", "tp=2", "h100-sxm", most=0), "most=0: a whole number"),
    (lambda result, swept: symsim.sizing("llama3-8b", "h100-sxm", world=[], global_batch_size=8), "sizing() needs a number of accelerators"),
    (lambda result, swept: symsim.plan("llama3-8b", "h100-sxm", world="8", global_batch_size=8), "--world 8: a number of accelerators"),  # type: ignore[arg-type]
    (lambda result, swept: symsim.sweep("llama3-8b", [1]), "an axis is a text such as tp=1,2,4"),  # type: ignore[list-item]
    (lambda result, swept: symsim.sizing("llama3-8b", "h100-sxm", world=8, overrides={"mtbf": "3 h"}), "nothing says how long it is"),
]


@pytest.mark.parametrize(("ask", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_what_cannot_be_shown_is_one_sentence(ask: Callable[[Any, Any], object], said: str, result: symsim.Result, swept: symsim.SweepRows) -> None:
    with pytest.raises(InputError) as caught:
        ask(result, swept)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_the_next_changes_are_those_of_the_command() -> None:
    found = symsim.next_changes("smollm2-360m", "dp=8,zero=1,micro_batch_size=1,global_batch_size=32", "h100-sxm", most=1)
    (change,) = found.changes
    same = symsim.derive("smollm2-360m", "dp=8,zero=1,micro_batch_size=4,global_batch_size=32", system="h100-sxm")
    assert change.text == "micro_batch_size=4" and change.after == pytest.approx(float(same.value("time.step")), rel=1e-12)
    assert repr(found).startswith("Changes that shorten the step most (of ")


def test_a_plan_draws_the_steps_of_its_best_by_what_tells_them_apart() -> None:
    found = symsim.plan("smollm2-360m", "h100-sxm", world=8, global_batch_size=16, fix="pp=1,vpp=1,recompute=none,overlap_grad_reduce=true", top=2)
    drawn = found.plot()
    first, second = found.best
    differ = {n for n in first.options if first.options[n] != second.options.get(n)}
    texts = re.findall(r'<text x="0"[^>]*>([^<]+)</text>', drawn.svg)
    assert [text[:2] for text in texts] == ["1.", "2."] and differ
    for text, choice in zip(texts, found.best):
        assert all(f"{n}={text_of(choice.options[n])}" in text for n in differ) and text.endswith(seconds(choice.result.value("time.step")))
        kernels = 100 * (float(choice.result.value("time.compute")) - launching_of_step(choice.result)) / float(choice.result.value("time.step"))
        assert f"({kernels:.1f} %)" in drawn.svg
    assert "recompute=" not in texts[0]


def test_sizes_of_clusters() -> None:
    found = symsim.sizing("smollm2-360m", "h100-sxm", world=[4, 8], global_batch_size=16, fix=FIXED, tokens="10B", days=0.25)
    assert [size.does for size in found.sizes] == [False, True]
    assert found.smallest is not None and found.smallest.world == 8 and found.cheapest is found.fastest is found.smallest
    rows = _cells(found._repr_html_())
    assert ["4", "380,995", "95,250", "8,603", "7 h 18 min", "99.9 %", "86.09"] in rows
    assert "smallest: 8" in repr(found) and found.plot().svg.startswith("<svg")
    assert [told["world"] for told in found.to_json()["sizes"]] == [4, 8]
