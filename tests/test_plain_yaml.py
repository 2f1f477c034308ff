"""The quick reader of plain YAML gives what a full parser gives, or nothing."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from symsim.errors import InputError
from symsim.inputs import reading
from symsim.inputs.plain_yaml import plain_events

ROOT = Path(__file__).parents[1]
FILES = ("models/systems/h100-sxm.yaml", "models/deepseek-v3.yaml", "models/qwen3-next-80b-a3b.yaml", "tests/imported/axolotl/full/llama.yaml")
PIECES = (" ", "\n", "  ", "- ", ": ", ":", " #", "#", "[", "]", "{", "}", ",", "'", '"', ">-", "|", "\t", "&a", "*a", "!x", "?", "%", "---", "~")
PIECES += ("key: v", "\n  - a", "\n- b", "é", "\\", "<<: x", "- - a", "`", "\n\n", "a: b", "\r", "null", "0x1f", ".inf", "\n ", "$", "@")


def read(text: str, monkeypatch: pytest.MonkeyPatch, full: bool) -> Any:
    """The data with the lines of their keys, or the sentence of the error."""
    with monkeypatch.context() as patch:
        if full:
            patch.setattr(reading, "plain_events", lambda text: None)
        try:
            document = reading._parsed(text, "f.yaml")
        except InputError as error:
            return str(error)
    return repr(document.data), document.lines


@pytest.mark.parametrize("file", FILES)
def test_files_are_read_as_by_a_full_parser(file, monkeypatch):
    text = (ROOT / file).read_text()
    assert plain_events(text) is not None
    assert read(text, monkeypatch, False) == read(text, monkeypatch, True)


def test_mutated_texts_are_read_as_by_a_full_parser(monkeypatch):
    draw = random.Random(11)
    lines = [line for file in FILES for line in (ROOT / file).read_text().split("\n")]
    compared = 0
    for _ in range(1200):
        first = draw.randrange(len(lines) - 8)
        text = "\n".join(lines[first : first + draw.randint(1, 6)])
        for _ in range(draw.randint(1, 2)):
            at = draw.randrange(len(text) + 1)
            text = text[:at] + draw.choice(PIECES) + text[at + draw.choice((0, 0, 1, 3)) :]
        if plain_events(text) is not None:
            compared += 1
            assert read(text, monkeypatch, False) == read(text, monkeypatch, True), text
    assert compared > 150


@pytest.mark.parametrize(
    "text",
    ["a: &x 1", "a: *x", "a: !!int 1", "a: |\n  b", "a: >\n  b", "a: b: c", "a: b\n  c", "? a", "<<: {a: 1}", "- - a", "a:\tb", "---\na: 1"]
    + ["%YAML 1.2", "a: [b: c]", "a: [1,\n 2]", "a: [1", "a: {b}", "a:b", "a: 'b''c'", 'a: "\\n"', "a:\n  - b\n c: d", "", "a: @b", "a: [1,]"]
    + [f"a: {1001 * chr(98)}"],
)
def test_all_else_is_left_to_the_parser(text):
    assert plain_events(text) is None


def test_a_twofold_key_is_refused_with_both_lines():
    assert plain_events("a: 1\nb: {c: 1, c: 2}") is not None
    with pytest.raises(InputError, match=re.escape("f.yaml:2: 'b.c' is given twice (first on line 2)")):
        reading.parse_yaml("a: 1\nb: {c: 1, c: 2}", "f.yaml")


def test_an_evaluation_loads_no_parser_makes_one_schedule_and_builds_one_command():
    script = (
        "import sys\nfrom symsim.api import cli\nmade, build = [], cli.typer.main.get_command_from_info\n"
        "cli.typer.main.get_command_from_info = lambda **given: made.append(given['command_info'].name) or build(**given)\n"
        "try:\n    cli.main(['eval', 'llama3-8b', '-s', 'tp=2,pp=2', '-y', 'h100-sxm'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "from symsim.pipeline.schedules import SCHEDULES\n"
        "count = sum(one.cache_info().currsize for one in SCHEDULES._made.values())\n"
        "print('ruamel.yaml' in sys.modules, count, made, file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stderr == "False 1 ['eval']\n"
