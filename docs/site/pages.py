"""What the site has besides docs/: the README as its first page, the reports, published formulas, and the reference of Python's names.

Links between pages are those of the repository, which GitHub follows too; here each is led to where its file lies in the site. Mathematics in
$`...`$ and ```math becomes MathML, which browsers set without a script.
"""

from __future__ import annotations

import inspect
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from cells import narrowed  # noqa: E402
from mathematics import drawn, parts, replaced  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402

import symsim  # noqa: E402

# pages, and files that pages lead to, by their place in the repository; docs/ itself is the site's root
PAGES = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "reports/README.md": "reports/README.md"}
PAGES |= {"models/kernels/README.md": "models/kernels/README.md"}
COPIED = ("reports/*.html", "reports/*.tex", "derivations/*.yaml", "derivations/*.json", "models/strategies/*.yaml", "LICENSE")
FOLDERS = {"reports": "reports/README.md", "derivations": "derivations/index.md", "models/kernels": "models/kernels/README.md"}

_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^```(?:math\n(.*?)\n|.*?^)```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
_LONG = 50
_LONG_CODE = re.compile(r"<code>([^<]{32,}</code>)")
_PLACE = "symsim-formula-{}-here"


def on_files(files: Files, config: Any) -> Files:
    for place, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / place).read_text(encoding="utf-8")))
    for pattern in COPIED:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, "reference.md", content=_reference()))
    files.append(File.generated(config, "derivations/index.md", content=_derivations()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    uri = page.file.src_uri
    place = next((p for p, known in PAGES.items() if known == uri), f"docs/{uri}" if (ROOT / "docs" / uri).exists() else uri)
    page.meta["formulas"] = formulas = []

    def kept(html: str) -> str:
        formulas.append(html)
        return _PLACE.format(len(formulas) - 1)

    def text(part: str) -> str:
        return _led(replaced(part, lambda latex: kept(_inline(latex))), place, uri)

    made, after = "", 0
    for fence in _FENCE.finditer(markdown):
        made += text(markdown[after : fence.start()])
        if fence[1] is None:
            made += _FILE_NAME.sub(r'```\1 title="\2"', fence[0])
        else:
            made += f'\n{kept(f"""<div style="overflow-x:auto">{drawn(fence[1])}</div>""")}\n'
        after = fence.end()
    return made + text(markdown[after:])


def _inline(latex: str) -> str:
    """MathML does not break between lines: a long formula is several, between its terms; of these what a telephone has no room for scrolls."""
    return " ".join(f'<span class="wide">{drawn(part)}</span>' if len(part) > _LONG else drawn(part) for part in parts(latex))


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    html = narrowed(html)
    for n, formula in enumerate(page.meta.get("formulas", ())):
        html = html.replace(f"<p>{_PLACE.format(n)}</p>", formula).replace(_PLACE.format(n), formula, 1)
    # names in tables stay whole, commands break
    return _LONG_CODE.sub(r'<code class="long">\1', html)


def _led(text: str, place: str, uri: str) -> str:
    """The links of a page of the repository as links of the site."""

    def led(found: re.Match[str]) -> str:
        target = found[2]
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        there = FOLDERS.get(there, PAGES.get(there, there.removeprefix("docs/")))
        if there.startswith("reports/") and there.endswith(".md") and there not in PAGES.values():
            there = there.removesuffix(".md") + ".html"
        return f"{found[1]}{posixpath.relpath(there, posixpath.dirname(uri) or '.')}{found[3]}"

    return _LINK.sub(led, text)


def _reference() -> str:
    """The public names, verbs first; what stands below each is its docstring."""
    names = [name for name in symsim.__all__]
    verbs = [name for name in names if not inspect.isclass(getattr(symsim, name))]
    objects = [name for name in names if name not in verbs]
    made = ["# Python", "", "What `import symsim` gives, with the words that stand in the code. [In Python](python.md) shows them in use.", ""]
    for title, members in (("Verbs", verbs), ("Results and inputs", objects)):
        made += [f"**{title}**: " + ", ".join(f"[`{name}`][{_home(name)}]" for name in members), ""]
    for name in [*verbs, *objects]:
        made += [f"::: {_home(name)}", ""]
    return "\n".join(made)


def _home(name: str) -> str:
    found = getattr(symsim, name)
    return f"{found.__module__}.{name}"


def _derivations() -> str:
    """The files of published formulas by the titles that they give."""
    rows = ["# Published formulas", "", "What papers and frameworks print; `symsim audit` holds each against what symsim derives.", ""]
    rows += ["| file | source |", "|---|---|"]
    for path in sorted((ROOT / "derivations").glob("*.yaml")):
        title = re.search(r"\btitle: *(?:\"([^\"]+)\"|([^\n,}]+))", path.read_text(encoding="utf-8"))
        rows.append(f"| [{path.stem}]({path.name}) | {(title[1] or title[2]).strip() if title else ''} |")
    return "\n".join([*rows, ""])
