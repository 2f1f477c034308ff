"""Docstrings on the site: what is typed behind >>> in one stands in a block of its own."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(?:>>> .*\n?(?:(?!\n|>>> ).+\n?)*)+", re.MULTILINE)


class Examples(griffe.Extension):
    """Every docstring with its examples fenced."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = "\n".join(line if line.strip() else "" for line in obj.docstring.value.splitlines())
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"\n```pycon\n{found[0].rstrip()}\n```\n", text)
