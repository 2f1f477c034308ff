"""The page of the package's layout names what is there, and imports run one way."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "symsim"
PAGE = (ROOT / "docs/architecture.md").read_text()
# files of changes that the page describes and that were not kept
EXAMPLES = {"symsim/layers/low_rank.py", "symsim/report/plain.py"}
ROOMS = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in PACKAGE.rglob("*.py")}
Graph = Mapping[str, set[str]]


def _imports(tree: ast.AST, *, deep: bool) -> Iterator[str]:
    """Modules of symsim that a tree imports as it is loaded; deep: inside functions too, and never what is for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("symsim"):
            yield from (name if (name := f"{node.module}.{a.name}") in MODULES else node.module for a in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name in MODULES)
        if deep or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _imports(node, deep=deep)


def _graph(*, deep: bool) -> Graph:
    return {m: {n for n in _imports(ast.parse(p.read_text()), deep=deep) if n != m} for m, p in MODULES.items()}


def _circle(graph: Graph) -> list[str]:
    """What is left of a graph when everything that leads nowhere, and then what leads only there, is taken away."""
    left = {name: set(to) for name, to in graph.items()}
    while ends := [name for name, to in left.items() if not to & left.keys()]:
        for name in ends:
            del left[name]
    return sorted(left)


def _rooms(graph: Graph) -> Graph:
    found: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        here = module.split(".")[1] if "." in module else ""
        if here in ROOMS:
            found[here] |= {r for t in targets if "." in t and (r := t.split(".")[1]) in ROOMS and r != here}
    return found


def test_what_the_page_names_exists() -> None:
    named = set(re.findall(r"\b(?:symsim|tests|docs|models)/[\w./]*\w", PAGE))
    assert len(named) > 40
    assert {n for n in named if not (ROOT / n).exists()} == EXAMPLES
    rows = re.findall(r"^\| `(symsim/\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    short = [(room, word) for room, says in rows for word in re.findall(r"`(\w+\.py)`", says)]
    assert short and not [f"{room}/{word}" for room, word in short if not (ROOT / room / word).is_file()]
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def test_every_room_is_in_the_table_and_the_rest_in_the_picture() -> None:
    assert set(re.findall(r"^\| `symsim/(\w+)` \|", PAGE, re.MULTILINE)) == ROOMS
    picture = PAGE.split("```text\n")[1].split("```")[0]
    # what stands beside the way of a question
    assert set(re.findall(r"symsim/(\w+)", picture)) == ROOMS - {"calibration", "bench"}


def test_lines_of_a_change_add_up() -> None:
    rows = re.findall(r"^\| (?:a|an) [^|]*\|[^|]*\|([^|]*)\| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 7
    for files, lines in rows:
        parts = [int(n) for n in re.findall(r"\((?:new, )?(\d+)\)", files)]
        assert not parts or sum(parts) == int(lines), files


def test_no_circle_of_rooms() -> None:
    assert _circle(_rooms(_graph(deep=False))) == []


def test_no_circle_of_modules_even_inside_functions() -> None:
    assert _circle(_graph(deep=True)) == []


def _too_long(name: str, source: str) -> Iterator[str]:
    """What of a file is beyond 500 lines, or of its functions beyond 60."""
    if len(source.splitlines()) > 500:
        yield f"{name}: {len(source.splitlines())} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := (node.end_lineno or 0) - node.lineno + 1) > 60:
            yield f"{name}, {node.name}: {lines} lines"


def test_no_file_and_no_function_is_too_long() -> None:
    files = [*MODULES.values(), *(ROOT / "docs").glob("*.py"), *(ROOT / "reports").glob("*.py")]
    assert [said for path in files for said in _too_long(str(path.relative_to(ROOT)), path.read_text())] == []
    assert list(_too_long("a", "def f():\n" + "    pass\n" * 60)) == ["a, f: 61 lines"]
    assert list(_too_long("a", "x = 1\n" * 501)) == ["a: 501 lines"]


def test_a_circle_is_found() -> None:
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
    inside = ast.parse("def f():\n    from symsim.errors import nearest\n")
    assert not list(_imports(inside, deep=False)) and list(_imports(inside, deep=True)) == ["symsim.errors"]
