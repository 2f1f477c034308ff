"""The user's guide: every name in it exists, its formulas are those of the code, and what it shows is what symsim prints."""

from __future__ import annotations

import itertools
import math
import re
import shlex
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from schedule_cases import equal_stages, refused, sizes

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
sys.path.insert(0, str(Path(__file__).parents[1] / "docs/site"))

import cells
import guide
import mathematics
import pycon
import sweep_pictures
from latex2mathml.converter import convert
from ruamel.yaml import YAML

from symsim.api.cli import main
from symsim.calibration.points import _COLUMNS
from symsim.exporters.refused import REFUSED
from symsim.grid.axes import parse_axes
from symsim.grid.conditions import parse_condition, parse_quantity
from symsim.grid.space import Space
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.deciding import DEGREES, SIZES
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.lowering.checks import RULES
from symsim.pipeline.schedules import SCHEDULES, Schedule
from symsim.program.base import read_base

ROOT = Path(__file__).parents[1]
OPTIONS = ("README.md", "docs/tutorial.md", "docs/time.md", "docs/memory.md", "docs/schedules.md", "docs/systems.md", "docs/sweep.md")
_WORDS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def _page(name: str) -> str:
    return (ROOT / name).read_text()


def _rows(page: str, heading: str) -> list[list[str]]:
    """Cells of the first table below a heading."""
    section = page.split(f"\n{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table[0].splitlines()[2:]]


def _plain(page: str) -> str:
    """A page without its formulas, blocks and made tables: the text that people wrote."""
    page = re.sub(r"<!-- made:.*?<!-- end -->", "", page, flags=re.DOTALL)
    return re.sub(r"\$`.*?`\$", "", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", OPTIONS)
def test_names_exist(name: str) -> None:
    """Every `option=value`, `assume.NAME` and file that a page names."""
    for word in _WORDS.findall(_plain(_page(name))):
        assumed = re.fullmatch(r"assume\.(\w+)(?:=(\w+))?", word)
        if assumed and assumed[1] != "NAME":
            assert assumed[1] in ASSUMPTIONS, word
            assert assumed[2] is None or assumed[2] in ASSUMPTIONS[assumed[1]].choices, word
        option = re.fullmatch(r"(\w+)=(\w+)", word)
        if option and option[2] not in ("n", "NAME"):
            assert option[1] in Strategy.model_fields, word
            load_strategy(word)
        if re.fullmatch(r"[\w./]+\.(py|md)", word) and "/" in word:
            assert word.startswith(("runtime/", "Merak/")) or (ROOT / word).is_file(), word


@pytest.mark.parametrize("name", OPTIONS)
def test_words_with_underscores_are_names(name: str) -> None:
    """A strategy field, a schedule, an assumption or one of its choices, a column, a collective, a part of a system, a symbol, or a definition."""
    known = {*Strategy.model_fields, *SCHEDULES, *ASSUMPTIONS, *(c for a in ASSUMPTIONS.values() for c in a.choices), *_COLUMNS}
    known |= {c for f in Strategy.model_fields.values() for a in (f.annotation, *get_args(f.annotation)) for c in get_args(a) if isinstance(c, str)}
    known |= {*sweep_pictures.example().reported.results[0].derivation.definitions}
    code = "".join(p.read_text() for p in (ROOT / "symsim").rglob("*.py")) + _page("docs/systems.md").split("## An example")[1].split("```")[1]
    for word in _WORDS.findall(_plain(_page(name))):
        # `eta_j_...`: a symbol of every tier
        if re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+", word) and word not in known and "_j" not in word:
            assert re.search(rf"\b{word}\b", code), word


@pytest.mark.parametrize("name", OPTIONS)
def test_links(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", _page(name)):
        assert target.startswith("http") or (ROOT / name).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("name", OPTIONS)
def test_formulas_are_latex(name: str) -> None:
    page = _page(name)
    formulas = re.findall(r"\$`(.*?)`\$", page) + re.findall(r"^```math\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    for formula in formulas:
        assert formula.count("{") == formula.count("}") and formula.count("(") == formula.count(")"), formula
        assert not re.search(r">\\[A-Za-z]", convert(formula)), formula
    # GitHub's markdown takes backslashes out of $...$ and $$...$$
    assert not re.search(r"\$\$|\$(?!`|\s)[^`$\n]*\\", _plain(page))


def test_assumption_tables() -> None:
    for page, heading in (("docs/time.md", "## Assumptions that enter"), ("docs/memory.md", "## Overheads outside the model")):
        for names, defaults, *_ in _rows(_page(page), heading):
            for name, default in zip(_WORDS.findall(names), _WORDS.findall(defaults), strict=True):
                assert ASSUMPTIONS[name].default == default


def test_every_schedule_is_in_every_table() -> None:
    for heading in ("## Time", "## Memory"):
        assert [row[0].strip("`") for row in _rows(_page("docs/schedules.md"), heading)] == list(SCHEDULES)
    sources = [name for row in _rows(_page("docs/schedules.md"), "## Sources") for name in _WORDS.findall(row[0])]
    assert sources == list(SCHEDULES)


def _value(formula: str, values: dict[str, Any]) -> Any:
    """The value of a LaTeX formula of one-letter symbols, with fractions, max, min, floor and [ ]^+."""
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", formula)
    text = re.sub(r"\\(Bigl|Bigr|begin\{aligned\}|end\{aligned\})|\\\\|&", "", text)
    for latex, python in ((r"\lfloor", "floor("), (r"\rfloor", ")"), ("]^+", ")"), ("[", "positive("), (r"\max", "max"), (r"\min", "min")):
        text = text.replace(latex, python)
    tokens = re.findall(r"[a-z]{2,}|[a-z]|\d+|[-+*/(),]", text)
    assert "".join(tokens) == text.replace(" ", "").replace("\n", ""), formula
    made = ""
    for before, token in zip(["", *tokens], tokens):
        starts, ends = token == "(" or token.isalnum(), before == ")" or (before.isalnum() and len(before) < 3)
        made += "*" * (starts and ends) + (f"Fraction({token})" if token.isdigit() else token)
    functions = {"max": max, "min": min, "floor": math.floor, "positive": lambda x: max(0, x), "Fraction": Fraction}
    return eval(made, {"__builtins__": {}}, {**functions, **values})  # noqa: S307


def _cases(schedule: Schedule) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Sizes and durations with which the schedule runs: the letters of the page, and the symbols of the closed forms."""
    found = []
    for p in (2, 3, 4, 5, 6):
        for m in (1, 2, 3, 4, 5, 8, 12, 13, 16):
            for v, group in itertools.product((2, 3), {p, (p + 1) // 2}) if schedule.chunks == "any" else ((int(schedule.chunks), p),):
                size = sizes(p, m, v, group)
                if refused(schedule, size):
                    continue
                for f, d, w, r in ((1, 1, 1, 0), (2, 3, 1, 0), (3, 2, 4, 1), (2, 5, 1, 2), (1, 2, 3, 2), (4, 1, 1, 3)):
                    parts = [Fraction(n, v) for n in (f, d, w, r)]
                    values = size | equal_stages(p, v, *parts)
                    in_a_row = min(group, m)
                    letters = {
                        "p": p,
                        "m": m,
                        "v": v,
                        "f": f,
                        "d": d,
                        "w": w,
                        "r": r,
                        "x": d + r,
                        "y": f + d + r + w,
                        "g": in_a_row,
                        "l": m - in_a_row * (-(-m // in_a_row) - 1),
                        "q": p - 1,
                        "h": 2 - p % 2,
                        "s": 4 * p - 5 - 2 * (p % 3 == 0),
                        "u": int(p % 3 == 2),
                        "t": int(p % 3 == 0),
                        "n": int(p in (3, 5, 6, 9)),
                    }
                    found.append((letters, values))
    assert found
    return found


def _formulas(cell: str) -> list[str]:
    return re.findall(r"\$`(.*?)`\$", cell)


def _makespan_blocks() -> list[str]:
    return re.findall(r"^```math\n(.*?)\n```$", _page("docs/schedules.md"), re.MULTILINE | re.DOTALL)


def test_bubbles() -> None:
    """Each formula of the page is the code's closed form at equal stages without messages, and so is each share."""
    blocks = dict(zip(("zbv", "v_half", "v_min", "1f1b_v", "dualpipe", "dualpipev"), _makespan_blocks(), strict=True))
    for name, _, bubble, share in _rows(_page("docs/schedules.md"), "## Time"):
        schedule = SCHEDULES[name.strip("`")]
        for letters, values in _cases(schedule):
            if schedule.name in blocks:
                halved = Fraction(1, 2) if schedule.name in ("v_half", "v_min", "1f1b_v") else 1
                formula, wanted = blocks[schedule.name], schedule.makespan if schedule.name.startswith("dual") else schedule.bubble / halved
                if schedule.name == "zbv" and letters["m"] < 2 * letters["p"] - 1:
                    continue
            else:
                formula, wanted = _formulas(bubble)[0], schedule.bubble
                if schedule.name == "interleaved_zb" and letters["m"] < letters["p"]:
                    continue
            assert _value(formula, letters) == wanted.evaluate(values), (name, letters)
        v = {"any": 2, 1: 1, 2: 2}[schedule.chunks]
        at = sizes(4, 16, v) | equal_stages(4, v, *(Fraction(1, v),) * 3)
        assert share == f"{100 * float(schedule.bubble.evaluate(at) / schedule.makespan.evaluate(at)):.1f} %", name


def test_messages() -> None:
    section = _page("docs/schedules.md").split("Messages add", 1)[1]
    for names, cell in _rows("\n" + section.replace(", where", "\nMessages\n", 1), "Messages")[:-1]:
        for name in _WORDS.findall(names):
            schedule = SCHEDULES[name]
            for letters, values in _cases(schedule):
                if schedule.chunks == "any" and letters["m"] < letters["p"]:
                    continue
                c = Fraction(1, 16)
                added = schedule.bubble.evaluate(values | {"tc": c}) - schedule.bubble.evaluate(values)
                assert added == _value(_formulas(cell)[0], letters | {"c": c}), (name, letters)


def test_activations_in_flight() -> None:
    for name, in_flight, weights, _ in _rows(_page("docs/schedules.md"), "## Memory"):
        schedule = SCHEDULES[name.strip("`")]
        assert schedule.weights == int(weights)
        formulas = _formulas(in_flight)
        for letters, values in _cases(schedule):
            for i in range(letters["p"]):
                at, of_rank = letters | {"i": i}, values | {"i": i}
                assert _value(formulas[0], at) == schedule.in_flight.evaluate(of_rank), (name, at)
                if schedule.name in ("zb_h1", "zb_h2"):
                    assert _value(formulas[1], at) == schedule.before_input_gradients.evaluate(of_rank)
                whole = {"one of them kept whole": 1, "one of them kept whole but on the last rank": int(i < letters["p"] - 1)}
                assert schedule.whole.evaluate(of_rank) == whole.get(in_flight.split(", ")[-1], 0)


MISFITS = (
    ("sec", "gemm,forward,1,2,3,,1e-3", ""),
    ("seconds", "gemm,forwards,1,2,3,,1e-3", ""),
    ("seconds", "gemm,forward,1,2,0,,1e-3", ""),
    ("seconds", "gemm,forward,1,2,3,,3 ms", ""),
    ("seconds", "gemm,forward,1,2,3,,1e-3", "attention"),
    ("seconds", "gemm,forward,1,2,3,fp8,1e-3", ""),
)


def test_sentences_of_calibrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    sentences = [row[0].strip("`") for row in _rows(_page("docs/systems.md"), "What does not fit ends in one sentence with file and line:")]
    for sentence, (seconds, line, op) in zip(sentences, MISFITS, strict=True):
        Path("points.csv").write_text(f"op,kind,m,n,k,precision,{seconds}\n{line}\n")
        with pytest.raises(SystemExit) as left:
            main(["calibrate", "a100-pcie-80", "--points", "points.csv", *(["--op", op] if op else [])])
        assert (left.value.code, capsys.readouterr().err) == (2, f"symsim: {sentence}\n")


@pytest.mark.long_after(15)
@pytest.mark.parametrize("name", guide.PAGES)
def test_shown_output(name: str) -> None:
    """Commands run, and print what the page shows (`python docs/guide.py` makes it again)."""
    page = _page(name)
    assert guide.remade(page) == page, f"{name} is out of date: python docs/guide.py"


def test_python_of_a_page_runs_in_order_beside_its_files(tmp_path: Path) -> None:
    page = "```pycon\n>>> x = 1\n>>> for k in range(3):\n...     print(k)\n...\n0\n\n[...]\n```\ntext"
    page += "\n```pycon\n>>> open('f').read(), x\n>>> y\n```\n"
    (tmp_path / "f").write_text("told")
    made = pycon.remade(page, str(tmp_path))
    assert made.split("text") == [
        "```pycon\n>>> x = 1\n>>> for k in range(3):\n...     print(k)\n...\n0\n1\n[...]\n```\n",
        "\n```pycon\n>>> open('f').read(), x\n('told', 1)\n>>> y\nTraceback (most recent call last):\nNameError: name 'y' is not defined\n```\n",
    ]
    assert pycon.remade(made, str(tmp_path)) == made


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """What `mkdocs build --strict` only says of pages that it is told to leave out."""
    config = YAML(typ="safe").load((ROOT / "docs/site/mkdocs.yml").read_text())

    def pages(entries: list[Any]) -> list[str]:
        found = [value for entry in entries for value in entry.values()]
        return [page for value in found for page in (pages(value) if isinstance(value, list) else [value])]

    named = pages(config["nav"])
    own = {path.name for path in (ROOT / "docs").glob("*.md")}
    made = {"index.md", "reference.md", "derivations/index.md", "reports/README.md", "models/kernels/README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    assert len(named) == len(set(named)) and set(named) == own | made


def test_code_that_ends_in_a_dollar_is_no_mathematics() -> None:
    """A line of the changelog names a pattern; what followed it up to the next dollar was one formula of the site."""
    text = "`.*_proj$` of all maps, $`d/t`$ and ``a$`b``\n\n`sh -c $X`: $`\\frac{s}{c}`$, `${x}`\n"
    found: list[str] = []
    assert mathematics.replaced(text, lambda latex: found.append(latex) or "M") == text.replace("$`d/t`$", "M").replace("$`\\frac{s}{c}`$", "M")
    assert found == ["d/t", "\\frac{s}{c}"]
    pages = [path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")] if "$`" in path.read_text()]
    formulas: list[str] = []
    for path in pages:
        lines = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        mathematics.replaced(lines, lambda latex: formulas.append(latex) or "")
    assert len(formulas) > 300 and not [one for one in formulas if "\n- " in one]


def test_lines_of_a_formula_are_lines_of_the_site() -> None:
    made = mathematics.drawn("\\begin{aligned}\n\\max\\Bigl(\n&a, b \\\\\n&c\\Bigr)\n\\end{aligned}")
    tree = ElementTree.fromstring(made)
    assert [["".join(cell.itertext()) for cell in row] for row in tree[0]] == [["max(", "a,b"], ["", "c)"]]


def test_a_long_formula_ends_its_lines_between_terms_and_inside_of_brackets() -> None:
    """In the tables of the site; a short one stays whole, and nothing of any is lost."""
    short, terms = r"\max(a, b) + c", " + ".join(rf"A_{{\mathrm{{name\_{n}}}}}" for n in "abcdefgh")
    assert mathematics.parts(short) == [short]
    assert mathematics.parts(f"A = {terms}")[:3] == ["A =", r"A_{\mathrm{name\_a}}", r"+ A_{\mathrm{name\_b}}"]
    assert mathematics.parts(rf"\max({terms}, x)")[-2:] == [r"+ A_{\mathrm{name\_h}},", "x)"]
    loosened = mathematics.parts(rf"t = \max\left({terms}, \frac{{a, b}}{{2}} + \left(c - d\right)\right)")
    assert loosened[1].startswith(r"\max\biggl(A") and loosened[-1] == r"+ \left(c - d\right)\biggr)"
    for part in loosened:
        mathematics.drawn(part)


def test_a_cell_breaks_long_names_behind_their_parts() -> None:
    made = cells.narrowed(
        "<td><code>tensor_model_parallel_size</code></td><td>overlap_grad_reduce=true, 3.5 s</td><p><code>tensor_model_parallel_size</code></p>"
    )
    assert made.startswith('<td><code class="parted">tensor_<wbr>model_<wbr>parallel_<wbr>size</code></td>')
    assert "<td>overlap_<wbr>grad_<wbr>reduce=<wbr>true, 3.5\u202fs</td>" in made and made.endswith("<p><code>tensor_model_parallel_size</code></p>")
    for short in ("<td><code>num_microbatches</code></td>", "<td>llama3.1-8b</td>", "<td>micro_batch=2</td>"):
        assert cells.narrowed(short) == short


def test_pictures() -> None:
    for path, svg in guide.pictures().items():
        assert path.read_text() == svg, f"{path.name} is out of date: python docs/guide.py"
        assert any(f"(img/{path.name})" in _page(name) for name in OPTIONS if name.startswith("docs/"))


def test_readme_commands_and_python(tmp_path: Path) -> None:
    """What the README lets people type besides what it shows the output of."""
    page = _page("README.md")
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    typed = re.findall(r"\bsymsim (?:derive|eval|list)[^&#\n]*", shell)
    assert typed
    for command in typed:
        guide.run(command, str(tmp_path))
    _run_python(page, tmp_path)


def _run_python(page: str, directory: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        done = subprocess.run([sys.executable, "-c", block], cwd=directory, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_python_of_a_sweep(tmp_path: Path) -> None:
    pytest.importorskip("xarray", reason="the page shows to_xarray")
    _run_python(_page("docs/sweep.md"), tmp_path)


def test_axes_and_conditions_of_the_page() -> None:
    """Every axis that the page of sweeps names is one of a model with experts, and every expression reads."""
    page = _page("docs/sweep.md")
    axes = [shlex.split(text)[0] for text in re.findall(r"`--axis ([^`]+)`", page)]
    assert len(axes) > 15
    for text in axes:
        if "@" not in text and not text.startswith("NAME="):
            beside = [axis for axis in ("world=64", "tp=1,2", "pp=1,2") if not text.startswith(axis[:3])]
            free, derived = parse_axes([text, *beside])
            Space(read_base("mixtral-8x7b", None, "h100-sxm", []), free, derived)
    expressions = [shlex.split(line) for line in re.findall(r"^    (--(?:where|by) .*)$", page, re.MULTILINE)]
    for option, text in expressions:
        (parse_condition if option == "--where" else parse_quantity)(text)
    assert len(expressions) == 4


def test_the_page_of_plans_names_every_rule() -> None:
    names = [row[0].strip("`") for row in _rows(_page("docs/plan.md"), "## What refuses")]
    others = {"derived dp", "expert_load", "system"}
    assert others <= set(names) and [n for n in names if n not in others] == [rule.__name__.strip("_") for rule in RULES]
    own = [row[0].strip("`") for row in _rows(_page("docs/plan.md"), "### What a framework does not start with")]
    assert own == list(dict.fromkeys(rule.__name__.strip("_") for rules in REFUSED.values() for rule in rules))


def test_the_page_says_which_names_are_sizes_and_degrees() -> None:
    rows = {row[0]: _WORDS.findall(row[1]) for row in _rows(_page("docs/sweep.md"), "### What may vary, and what a derivation is")}
    assert set(rows["sizes"]) == set(SIZES) and set(rows["degrees"]) == set(DEGREES)
