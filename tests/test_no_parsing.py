"""No definition is found, and nothing learnt of one, by taking its symbol apart: its key says what it is of.

Two tests. One reads the source: every place that cuts text is in a table, with what the text is. The other makes symbols of a kind
that refuses to be cut, and derives, evaluates and reports with them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.algebra import key
from symsim.algebra.kinds import BLOCKS
from symsim.ir.roles import LAYER, ROLES, role_of
from symsim.report import render_markdown

ROOT = Path(symsim.__file__).parent
CUTTING = frozenset("removeprefix removesuffix startswith endswith partition rpartition split rsplit fullmatch match search findall finditer".split())
# rooms whose subject is text that comes from outside: files, arguments, what a machine says
OUTSIDE = ("inputs", "importers", "exporters", "api", "bench")

# What is cut, and where: FILE:FUNCTION, or FILE alone for all of it.
ALLOWED: dict[str, str] = {
    "what a user wrote: a formula, a fact, an axis, a condition, a layout, a placement, an equation": """
        algebra/facts.py:_chain algebra/grammar.py grid/axes.py grid/conditions.py placement/given.py:_read pipeline/layout.py ir/einsum.py
        lowering/checks.py:_layout program/module.py:free_names errors.py
        frameworks/recompute.py:runs_of lowering/checks_recompute.py:named_operations
        audit/switching.py:read_switches audit/switching.py:left_under planning/given.py:tokens
        planning/knobs.py:_one_axis grid/exported.py:exported grid/api.py:SweepRows.plot
        asking/questions.py asking/verbs.py:along asking/verbs.py:_moved_by asking/verbs.py:_range asking/verbs.py:_ends
        asking/verbs.py:_number asking/text.py:elasticities_text grid/drawn.py:_numbered algebra/reading.py:_names algebra/reading.py:_share""",
    "the index of a stage in words": "report/ink.py:worded",
    "an option's value": """
        cost/collectives.py:groups lowering/checks_overlap.py:overlap lowering/lower.py:remembered layers/decoder.py:_normed
        frameworks/fuse_eager.py:eager_activation audit/own.py:own_claim""",
    "a dotted name that was asked for: time.exposed.tp, assume.causal, params.total": """
        evaluation/numbers.py:_symbol_of grid/question.py grid/reported.py:Reported.quantity grid/symbols.py:Symbols.sort
        grid/symbols.py:Symbols.option grid/sweep.py:_reported program/unrolled.py:_Unroller.outputs page/live.py:_time_label
        audit/own.py:own_subject""",
    "the domain of a symbol, in words": """
        algebra/arranged.py
        algebra/facts.py:_Application._bounds algebra/facts.py:_Application._check_domain algebra/facts.py:_Application.take_limits
        algebra/formula.py:Formula.elasticity algebra/proof.py:_Point.__missing__ algebra/proof.py:Prover._sign
        asking/moving.py:moving asking/branch.py:in_symbols audit/points.py:_first audit/points.py:_number audit/points.py:_lies""",
    "a symbol that is no definition: a number of the system, the layers or the width of a kind": """
        algebra/typeset.py:entry algebra/vocabulary.py:domain algebra/kinds.py program/unrolled.py:_argument calibration/calibrate.py
        calibration/shares.py page/inputs.py report/machine.py:tier_of
        audit/subjects.py:Derived.fixed audit/references.py:relative_sizes""",
    "the path of an operation or of a tensor inside its layer": """
        placement/given.py:_operations placement/given.py:_lacking placement/names.py:Placement.of frameworks/eager_attention.py:_repeated_table
        frameworks/fuse_te.py:_ungroup_heads frameworks/kernels.py:joined_linear evaluation/buffers.py
        report/blocks.py:Blocks._operations report/blocks.py:Blocks._operation report/blocks.py:Blocks._tensor report/text_time.py:title
        report/alike.py:_same_name report/alike.py:_by_operation report/alike.py:once
        cost/memory_backward.py:_of_attention frameworks/narrow.py:as_stored lowering/adapt.py:module_names lowering/adapt.py:_of_loss
        lowering/adapt.py:map_names
        lowering/adapt.py:_with_adapters lowering/adapt.py:_function cost/workspace.py:_Walk.__init__ cost/workspace.py:_returned
        lowering/remember.py:_narrows lowering/marked.py:names_of frameworks/streams.py:eager_hyper_weights.part""",
    "names of dimensions, as a row of the placement lists them": """
        report/question.py:placement report/question.py:placement.dimension report/text.py:_placement""",
    "the label of an axis, as it is made of axes": "lowering/verify.py:_messages compat/simumax/messages.py:Messages.seconds",
    "text as it is written: LaTeX, code, prose, a title": """
        algebra/expr.py:Expr.__str__ algebra/written.py algebra/typeset.py:_product algebra/typeset.py:width algebra/typeset.py:pieces
        algebra/typeset.py:_bare
        algebra/vocabulary.py:_table ir/block.py:Net.op evaluation/quantities.py:refuse_unknown
        program/c_source.py program/module.py program/module_text.py program/straight.py report/formula.py
        program/unrolled.py:_Unroller._stages report/blocks.py:_where report/html.py report/ink.py report/latex.py report/markdown.py report/mathml.py
        asking/text.py:over_text
        report/typst.py report/typst_math.py report/widths.py report/timeline_tex.py report/figure.py report/closed_forms.py:_form
        report/assumed.py:_together report/timing.py:_coded report/alike.py:_same_span
        grid/shown.py grid/space.py:Space._setting grid/refused.py grid/units.py:_powers
        report/over_kinds.py:OverKinds.summed report/over_kinds.py:_indexed report/parts.py:_below
        report/front.py:_once report/front.py:_unit
        compat/simumax/messages.py:Messages.gathered_again""",
    "a mark that symsim itself puts in front": "algebra/asymptote.py planning/members.py:Members.why planning/plan.py:_reason",
    "a file's name or contents, or another program's": """
        calibration/points.py calibration/steps.py grid/store.py program/c_build.py program/cache.py
        audit/between.py audit/claims.py:_has_claims audit/printed.py audit/running.py compat/simumax/settings.py:version_of""",
    "an array": "grid/work.py:Best.settle",
}


def cuts() -> Iterator[tuple[str, str, str]]:
    """(file, function, source) of every call that takes text apart."""
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.split("/")[0] not in OUTSIDE:
            for where, source in _of_tree(ast.parse(path.read_text()), ""):
                yield name, where, source


def _of_tree(node: ast.AST, inside: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        where = inside
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            where = f"{inside}.{child.name}" if inside else child.name
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and child.func.attr in CUTTING:
            literal = isinstance(child.func.value, ast.Constant)  # "a b".split()
            if not literal and (child.args or child.func.attr not in ("split", "rsplit")):
                yield where, ast.unparse(child)
        if isinstance(child, ast.Compare) and isinstance(child.ops[0], (ast.In, ast.NotIn)) and isinstance(child.left, ast.Constant):
            text = child.left.value
            if isinstance(text, str) and len(text) > 1 and (text.startswith("_") or text.endswith("_")):
                yield where, ast.unparse(child)
        yield from _of_tree(child, where)


def allowed() -> dict[str, str]:
    return {place: reason for reason, places in ALLOWED.items() for place in places.split()}


def test_every_place_that_cuts_text_is_known() -> None:
    table, used, unknown = allowed(), set(), []
    for file, function, source in cuts():
        place = next((p for p in (f"{file}:{function}", file) if p in table), None)
        if place is None:
            unknown.append(f"symsim/{file}, in {function or 'the module'}: {source}")
        else:
            used.add(place)
    assert not unknown, "text is taken apart; a definition is found by its key (Derivation.of), other text belongs in ALLOWED:\n" + "\n".join(unknown)
    assert {p for p in table if ":" in p} <= used, "these cut nothing any more"


@pytest.mark.parametrize(
    "line",
    ['name.removeprefix("M_at_")', 'd.symbol.rpartition("_at_")', 'name.split("_", 2)', 're.fullmatch(r"e_([fb])_(\\\\w+)", name)', '"_at_" in name'],
)
def test_a_symbol_that_is_parsed_is_found(line: str) -> None:
    assert list(_of_tree(ast.parse(f"def found(book):\n    return [n for n in book if {line}]"), ""))


class Whole(str):
    """A symbol that may be compared, joined and looked up, and refuses to be taken apart."""

    def _refuse(self, *arguments: Any) -> Any:
        raise AssertionError(f"{str(self)} is taken apart: {arguments}")


for _method in "startswith endswith removeprefix removesuffix partition rpartition split rsplit find index __getitem__".split():
    setattr(Whole, _method, Whole._refuse)


def refuse(model: str, strategy: str) -> None:
    """Derives, evaluates and reports with symbols that refuse to be cut."""
    spelt: Callable[[key.Key], str] = key._spelt
    vars(key)["_spelt"] = lambda k: Whole(spelt(k))
    result = symsim.derive(model, strategy, system="h100-sxm")
    assert isinstance(next(iter(result.derivation.definitions)), Whole)
    assert result.to_json()["time"]["step"] == result.value("time.step") > 0
    assert len(result.further.definitions) > len(result.derivation.definitions)
    assert result.formula("t_step").written_out().definitions[-1].symbol == "t_step"
    assert "Working memory of blocks" in render_markdown(result)


@pytest.mark.long_after(1)
@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("llama3-8b", "tp=2,sp=true,pp=2,dp=2,num_microbatches=8"),
        ("llama3-8b", "dp=8,zero=3,num_microbatches=4"),
        ("deepseek-v3", "tp=2,sp=true,pp=4,ep=8,etp=1,dp=8,cp=2,num_microbatches=16,recompute=full"),
    ],
)
def test_symbols_that_refuse_to_be_cut(model: str, strategy: str) -> None:
    """In a process of its own: there is one object of a symbol's name, which other tests have made and will ask for."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_no_parsing; test_no_parsing.refuse({model!r}, {strategy!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.returncode == 0, done.stderr[-2000:]


def _named_blocks(tree: ast.AST) -> Iterator[str]:
    """Where code asks whether a block is a certain one: by a comparison with its name, or by a table of names."""
    for node in ast.walk(tree):
        asked = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [k for k in node.keys if k] if isinstance(node, ast.Dict) else []
        parts = [part for one in asked for part in (one.elts if isinstance(one, (ast.Tuple, ast.List, ast.Set)) else (one,))]
        if any(isinstance(part, ast.Constant) and part.value in BLOCKS for part in parts):
            yield ast.unparse(node)


def test_no_block_is_a_case_by_its_name() -> None:
    """What the embedding, the head and the depths are otherwise than layers is in symsim/ir/roles.py."""
    rooms = ("cost", "evaluation", "frameworks", "grid", "lowering", "pipeline", "placement", "program", "report")
    files = [path for room in rooms for path in (ROOT / room).glob("*.py")]
    found = {f"{p.parent.name}/{p.name}": said for p in files if (said := list(_named_blocks(ast.parse(p.read_text()))))}
    # a module of recomputation, as it is spelt there
    assert found.keys() <= {"frameworks/recompute.py"}, found
    for line in ('x = 1 if name == "head" else 0', 'x = name in ("embedding", "head")', '{"mtp": 1}.get(name)'):
        assert list(_named_blocks(ast.parse(line)))


def test_every_block_that_is_no_layer_has_a_role() -> None:
    assert tuple(ROLES) == BLOCKS and all(role.title and role.words and role.runs and role.holds for role in ROLES.values())
    assert role_of("dense") is role_of("moe") is LAYER
    assert all(set(role.followed_by) <= set(BLOCKS) for role in (LAYER, *ROLES.values()))
