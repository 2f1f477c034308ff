"""Tables of a page of the site: long names in their cells break behind their parts, and numbers stay with their units."""

from __future__ import annotations

import re

from symsim.report.amounts import unbroken

_CELL = re.compile(r"(?<=<td)[^>]*>.*?(?=</td>)|(?<=<th)[^>]*>.*?(?=</th>)", re.DOTALL)
_TEXT = re.compile(r"(?<=>)[^<]+")
_LONG_NAME = re.compile(r"[^\s\"]{18,}")
_PART = re.compile(r"([_/,]|[.=](?!\d))(?=.)")
_PARTED = re.compile(r"<code>([^<]*<wbr>)")


def narrowed(html: str) -> str:
    """The page with places in its tables where a line may end."""
    return _CELL.sub(lambda cell: _PARTED.sub(r'<code class="parted">\1', _TEXT.sub(_text, cell[0])), html)


def _text(found: re.Match[str]) -> str:
    return _LONG_NAME.sub(lambda name: _PART.sub(r"\1<wbr>", name[0]), unbroken(found[0]))
