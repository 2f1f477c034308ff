"""YAML and JSON are read strictly, and every refusal says where."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.reading import (
    Document,
    dotted,
    format_yaml,
    from_validation_error,
    parse_json,
    parse_yaml,
    read_json,
    read_text,
    read_yaml,
    write_text,
)


def refusal(call, *arguments) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_scalars_are_yaml_1_2():
    data = parse_yaml("a: 989e12\nb: on\nc: 010\nd: 1_000\ne: 2001-01-01\nf: ~\ng: True\nh: '12'\ni: -1.5\nj: 0x1F\nk: 8\n", "f").data
    assert data == {"a": 989e12, "b": "on", "c": 10, "d": "1_000", "e": "2001-01-01", "f": None, "g": True, "h": "12", "i": -1.5, "j": 31, "k": 8}
    assert isinstance(data["a"], float) and isinstance(data["k"], int) and data["g"] is True


def test_yaml_knows_the_line_of_every_key():
    document = parse_yaml("# a comment\na: 1\nb:\n  c: [1,\n      2]\n  d: {e: 5}\n", "f.yaml")
    assert document.data == {"a": 1, "b": {"c": [1, 2], "d": {"e": 5}}}
    assert [document.line_of(path) for path in (("a",), ("b",), ("b", "c"), ("b", "c", 1), ("b", "d", "e"))] == [2, 3, 4, 5, 6]
    assert document.line_of(("b", "x")) is None
    assert document.place(("b", "d", "x")) == "f.yaml:6"


def test_what_has_a_name_is_written_once():
    text = "base: &base\n  tp: 2\n  moe: &moe {ep: 4, k: [1, {z: 2}]}\nrun:\n  tp: 8\n  <<: *base\n  more: *moe\n"
    text += "last: {<<: [*moe, {ep: 9, w: 1}], '<': 0}\n"
    document = parse_yaml(text, "f.yaml")
    moe = {"ep": 4, "k": [1, {"z": 2}]}
    assert document.data == {
        "base": {"tp": 2, "moe": moe},
        "run": {"tp": 8, "more": moe, "moe": moe},
        "last": {"<": 0, **moe, "w": 1},
    }
    # a value stands where it is written, a key of its own where it is given
    places = ("base.moe.ep", "run.tp", "run.moe.k", "run.more", "run.more.ep", "last.w", "last.ep")
    assert [document.line_of(tuple(path.split("."))) for path in places] == [3, 5, 3, 7, 3, 8, 3]
    document.data["run"]["moe"]["k"].append(0)
    assert document.data["base"]["moe"] == document.data["run"]["more"] == moe
    assert parse_yaml("'<<': 1", "f").data == {"<<": 1} and parse_yaml("a: &x 1\nb: *x\na2: &x 3\nc: *x", "f").data["c"] == 3
    assert parse_yaml("a: &x {b: &y {c: 1}}\nd: {<<: *x, e: {<<: *y, c: 2}}", "f").data["d"] == {"b": {"c": 1}, "e": {"c": 2}}


def test_what_is_merged_is_what_yaml_says():
    """Of mappings drawn: a key of its own holds before all that is merged, and of these the first that has it (yaml.org/type/merge.html). PyYAML
    6.0.4 is no oracle: of a mapping that merges another it hands on the other's values."""
    import random

    draw = random.Random(4)
    for _ in range(200):
        made: dict[str, dict[str, object]] = {}
        text = ""
        for at in range(draw.randint(2, 5)):
            own: dict[str, object] = {key: draw.randint(0, 9) for key in sorted(draw.sample("abcde", draw.randint(1, 4)))}
            lines, merged = [f"  {key}: {value}" for key, value in own.items()], dict[str, object]()
            if made and draw.random() < 0.7:
                several = draw.sample(list(made), draw.randint(1, len(made)))
                merge = f"  <<: *{several[0]}" if len(several) == 1 else f"  <<: [{', '.join(f'*{one}' for one in several)}]"
                lines.insert(draw.randint(0, len(lines)), merge)
                for one in reversed(several):
                    merged |= made[one]
            if made and draw.random() < 0.4:
                name = draw.choice(list(made))
                lines.append(f"  f: *{name}")
                own["f"] = made[name]
            text += f"k{at}: &n{at}\n" + "\n".join(lines) + "\n"
            made[f"n{at}"] = merged | own
        assert parse_yaml(text, "f").data == {f"k{name[1:]}": mapping for name, mapping in made.items()}, text


def test_json_knows_the_line_of_every_key():
    document = parse_json('{"a": "}{\\"",\n "b": {"c": [1,\n  {"d": 2}]},\n "e": -1.5e3}', "f.json")
    assert document.data == {"a": '}{"', "b": {"c": [1, {"d": 2}]}, "e": -1500.0}
    assert [document.line_of(path) for path in (("a",), ("b", "c", 0), ("b", "c", 1, "d"), ("e",))] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3", "f:3: 'a' is given twice (first on line 1)"),
        ("x:\n  a: 1\n  a: 1", "f:3: 'x.a' is given twice (first on line 2)"),
        ("a: 1\nb: !!python/object/apply:os.system ['true']", "f:2: tag !!python/object/apply:os.system is not accepted"),
        ("a: !custom 1", "f:1: tag !custom is not accepted"),
        ("a: !!int 1", "f:1: tag !!int is not accepted"),
        ("a: *x\nb: &x 1", "f:1: alias *x names nothing; the value that it repeats has to stand before it, as &x VALUE"),
        ("a: &x {b: *x}", "f:1: alias *x stands inside the value that &x names"),
        ("a: &x 1\nb:\n  <<: *x", "f:3: << brings the keys of a mapping"),
        ("a: &x {b: 1}\nc: {<<: [*x, 2]}", "f:2: << brings the keys of a mapping"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  <<: *x", "f:4: 'c.<<' is given twice (first on line 3)"),
        ("a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 99)), "f:5: alias *a3 and those before"),
        ("a: [1,\nb: }", "f:2: not YAML:"),
        ("a:\n\t- 1", "f:2: not YAML:"),
        ("a: 1\nb: \x01", "f:2: not YAML:"),
        ("", "f: the file is empty"),
        ("# only a comment\n", "f: the file is empty"),
        ("- 1\n- 2", "f: holds a list;"),
        ("word", "f: holds a single value;"),
        ("a: 1\n---\nb: 1", "f:2: a second YAML document"),
        ("a: .nan", "f:1: .nan is not a number"),
        ("a: 1e999", "f:1: 1e999 is too large"),
        ("a: " + "9" * 5000, "is too large a number"),
        ("? [1]\n: 2", "f:1: a key must be a plain name"),
        ("a: " + "[" * 5000, "f:1: nested too deeply"),
        ('a: "\\ud800"', "f:1: text with half a Unicode character"),
    ],
)
def test_yaml_refuses(text: str, expected: str):
    assert expected in refusal(parse_yaml, text, "f")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1,\n "b": [1, 2', "f:2: not JSON:"),
        ('{"a": 1,\n"a": 2}', "f:2: 'a' is given twice (first on line 1)"),
        ('{"b": {"a": 1,\n"\\u0061": 2}}', "f:2: 'b.a' is given twice (first on line 1)"),
        ('{"a": "NaN",\n"b": NaN}', "f:2: NaN is not a number"),
        ('{"a": -Infinity}', "f:1: -Infinity is not a number"),
        ('{"a":\n1e999}', "f:2: 1e999 is too large"),
        ('{"a": ' + "9" * 5000 + "}", "is too large a number"),
        ("[1]", "f: holds a list;"),
        ("", "f: the file is empty"),
        ("{'a': 1}", "f:1: not JSON:"),
        ('{"a": ' * 20_000, "f: nested too deeply"),
        ('{"a": "\\ud800"}', "f:1: text with half a Unicode character"),
    ],
)
def test_json_refuses(text: str, expected: str):
    assert expected in refusal(parse_json, text, "f")


def test_files_that_cannot_be_read(tmp_path: Path):
    assert refusal(read_yaml, tmp_path / "absent.yaml") == f"{tmp_path}/absent.yaml: no such file"
    assert "is a directory" in refusal(read_json, tmp_path)
    (tmp_path / "latin").write_bytes(b"a: 1\nb: caf\xe9\n")
    assert refusal(read_yaml, tmp_path / "latin") == f"{tmp_path}/latin:2: not UTF-8 text (byte 0xe9)"
    assert "larger than" in refusal(read_text, "/dev/zero")
    assert "cannot be read" in refusal(read_text, "a\0b")


def test_byte_order_mark_is_skipped(tmp_path: Path):
    (tmp_path / "f.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(tmp_path / "f.json").data == {"a": 1}


def test_write_is_whole_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = tmp_path / "out.yaml"
    write_text(target, "half \ud800 of a character")
    assert target.read_text() == "half \\ud800 of a character"
    write_text(target, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", full)
        assert "cannot be written: No space left" in refusal(write_text, target, "new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.yaml"]
    assert f"there is no directory {tmp_path}" in refusal(write_text, tmp_path / "absent" / "f", "text")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner.filter(lambda v: not isinstance(v, dict)), max_size=3) | st.dictionaries(TEXT, inner, min_size=1, max_size=3),
    max_leaves=8,
)
TREES = st.dictionaries(TEXT, VALUES.filter(lambda v: "{" not in json.dumps(v) or isinstance(v, dict)), min_size=1, max_size=4)


def lists_hold_scalars(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(lists_hold_scalars, value.values()))
    return not (isinstance(value, list) and "{" in json.dumps(value).replace('"{', ""))


@given(TREES.filter(lists_hold_scalars))
def test_what_is_written_reads_back(data: dict):
    assert parse_yaml(format_yaml(data), "f").data == data


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_json_agrees_with_the_standard_reader(data: dict):
    text = json.dumps(data, indent=1)
    assert parse_json(text, "f").data == json.loads(text)


@given(st.text(max_size=60))
def test_any_text_is_data_or_one_sentence(text: str):
    for reader in (parse_yaml, parse_json):
        try:
            assert isinstance(reader(text, "f"), Document)
        except InputError as error:
            assert "\n" not in str(error)


MODEL = """name: m
hidden_size: 8
vocab_size: 16
layers: 2 * dense
attention: {num_attention_heads: 2}
mlp:
  ffn_hidden_size: 32
layer_kinds:
  dense:
    mixer: attention
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("  ffn_hidden_size: 32", "  fnn_hidden_size: 32", "f:7: unknown key 'fnn_hidden_size' in mlp: did you mean 'ffn_hidden_size'?"),
        ("    mixer: attention", "    mixr: attention", "f:10: unknown key 'mixr' in layer_kinds.dense: did you mean 'mixer'?"),
        ("vocab_size: 16\n", "", "f: vocab_size is missing"),
        ("hidden_size: 8", "hidden_size: -8", "f:2: hidden_size is -8; it should be greater than 0"),
        ("hidden_size: 8", "hidden_size: big", 'f:2: hidden_size is "big"; it should be a whole number'),
        (
            "    mixer: attention",
            "    mixer: atention",
            'f:10: layer_kinds.dense.mixer is "atention"; valid: attention, linear_attention, lightning_attention, compressed_attention, '
            "short_convolution, mamba, "
            "selective_scan or none (did you mean 'attention'?)",
        ),
        ("2 * dense", "2 * sparse", "layers uses 'sparse', which layer_kinds does not define"),
        ("2 * dense", "2 x dense", "f:4: layers: layer pattern does not read at"),
        ("attention: {num_attention_heads: 2}", "attention: 3", "f:5: attention is 3; it should be a mapping"),
        ("  ffn_hidden_size: 32", "  ffn_hidden_size: 3.5", "f:7: mlp.ffn_hidden_size is 3.5; it should be a whole number"),
    ],
)
def test_validation_errors_name_file_line_and_key(old: str, new: str, expected: str):
    assert old in MODEL
    document = parse_yaml(MODEL.replace(old, new), "f")
    with pytest.raises(ValidationError) as caught:
        Architecture.model_validate(document.data)
    assert expected in str(from_validation_error(caught.value, document, "f", Architecture))


def test_validation_error_without_a_model_or_document():
    class Pair(BaseModel):
        model_config = ConfigDict(extra="forbid")
        left: int = 0

    with pytest.raises(ValidationError) as caught:
        Pair.model_validate({"lift": 1})
    assert str(from_validation_error(caught.value, None, "here")) == "here: unknown key 'lift'"
    assert str(from_validation_error(caught.value, None, "here", Pair)) == "here: unknown key 'lift': did you mean 'left'?"


def test_dotted():
    assert dotted(("a", "b", 2, "c")) == "a.b[2].c"
