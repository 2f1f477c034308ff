"""A picture as a file: SVG, or a page of HTML that holds it above what it is of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from symsim.errors import InputError
from symsim.inputs.reading import write_text

KINDS = (".svg", ".html")


def check_picture(path: Path) -> None:
    """InputError where no picture is written so, or there."""
    if path.suffix.lower() not in KINDS:
        raise InputError(f"--plot {path}: a picture ends in .svg or .html")
    if not path.parent.is_dir():
        raise InputError(f"--plot {path}: it cannot be written: there is no directory {path.parent}")


def write_picture(path: Path, svg: str, title: str, lines: Sequence[str]) -> None:
    """lines: what a page has below the picture."""
    if path.suffix.lower() == ".svg":
        write_text(path, svg)
        return
    style = "body{font-family:sans-serif;max-width:900px;margin:2em auto;color:#222}svg{max-width:100%;height:auto}pre{overflow-x:auto}"
    body = f"<h1>{escape(title)}</h1>\n{svg}<pre>{escape(chr(10).join(lines))}</pre>\n"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title><style>{style}</style>'
    write_text(path, f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}</body></html>\n')
