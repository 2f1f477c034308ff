"""Templates, compiled once a process."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

_FOLDER = Path(__file__).parent / "templates"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    # LaTeX is full of braces and percent signs, so no template uses them for anything else
    return Environment(
        loader=FileSystemLoader(_FOLDER),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        autoescape=lambda name: bool(name) and ".html" in str(name),
    )


def template(name: str, **tools: Any) -> Template:
    """A template with the functions it calls."""
    return _environment().get_template(name, globals=tools)
