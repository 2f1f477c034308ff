"""Reports: a derivation as a reader meets it in a paper's appendix, in Markdown, HTML, PDF, Typst, LaTeX or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from symsim.errors import InputError, cut, printable

if TYPE_CHECKING:
    from symsim.evaluation.numbers import Evaluation
    from symsim.report.document import Report

# a suffix, and the module of this room that renders text of it; "": no text, or no document
_RENDERERS = {".md": "markdown", ".html": "html", ".pdf": "", ".typ": "typst", ".tex": "latex", ".json": ""}
SUFFIXES = tuple(_RENDERERS)

__all__ = ["SUFFIXES", "render_markdown", "rendered", "suffix_of", "write_report"]


def write_report(result: "Evaluation", path: "str | Path", short: bool = False) -> list[str]:
    """Write a report of the kind the suffix names, whole or not at all; returns notes for the user.

    short: four pages: the answer, the step and its pipeline, memory, notation and the assumptions that matter. InputError for another suffix,
    a place that cannot be written, a .pdf that nothing here can make, or a short .json.
    """
    from symsim.evaluation.numbers import Evaluation
    from symsim.inputs.reading import write_file

    if not isinstance(result, Evaluation) or not isinstance(path, str | Path):
        raise InputError(f"write_report({cut(repr(result))}, {cut(repr(path))}): what derive returns is needed, and the name of a file")
    path = Path(path)
    suffix = suffix_of(path)
    if short and suffix == ".json":
        raise InputError(f"{path}: --short is for a report that is read: give {_one_of(SUFFIXES[:-1])}; .json has every number")
    write_file(path, _rendered(result, suffix, short))
    return [f"wrote {path}"]


def suffix_of(path: Path) -> str:
    """What a report is written as. InputError for another suffix, or a place that cannot be written."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: a report is written as {_one_of(SUFFIXES)}")
    try:
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no directory {path.parent}")
        if path.is_dir():
            raise InputError(f"{path}: is a directory")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    return suffix


def _one_of(suffixes: Sequence[str]) -> str:
    return f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"


def render_markdown(result: "Evaluation", short: bool = False) -> str:
    """The report in GitHub Markdown."""
    return _rendered(result, ".md", short).decode()


def _rendered(result: "Evaluation", suffix: str, short: bool) -> bytes:
    if suffix == ".json":
        import json

        from symsim.evaluation.json_object import json_object

        return (json.dumps(json_object(result), indent=2, allow_nan=False) + "\n").encode()
    if suffix == ".html" and not short:
        return _answering(result).encode()
    from symsim.report.content import report

    return rendered(report(result, short), suffix)


def _answering(result: "Evaluation") -> str:
    """The page with its section that answers, which takes as long as all others together."""
    from symsim.report.apart import apart

    _ahead(result)
    with apart(partial(_live, result)) as live:
        # what either needs is imported by it alone
        from symsim.report import html
        from symsim.report.content import report

        return printable(html.render(report(result), live))


def _ahead(result: "Evaluation") -> None:
    """What two processes need alike is there when the second starts."""
    from symsim.evaluation.beside import ahead

    for name in ("machine", "mathml", "picture", "templating"):
        import_module(f"symsim.report.{name}")
    if result.system is not None:
        ahead(result)


def _live(result: "Evaluation") -> str:
    from symsim.page.live import live_section

    return live_section(result)


def rendered(document: "Report", suffix: str) -> bytes:
    """A document as anything but .json. InputError for a .pdf that nothing here can make."""
    if suffix == ".pdf":
        return _pdf(document)
    return printable(import_module(f"symsim.report.{_RENDERERS[suffix]}").render(document)).encode()


def _pdf(document: "Report") -> bytes:
    """By the Typst compiler that is installed with symsim; by a LaTeX engine on machines for which it has no wheel."""
    from symsim.report import latex, typst

    if find_spec("typst") is not None:
        return typst.compile_pdf(typst.render(document))
    return latex.compile_pdf(latex.render(document))
