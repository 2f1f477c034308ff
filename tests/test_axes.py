"""Axes of a sweep: what users write is read exactly, and every refusal says what would be right."""

from __future__ import annotations

import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symsim.errors import InputError
from symsim.grid.axes import Axis, DerivedAxis, parse_axes, parse_axis
from symsim.grid.conditions import evaluate, show


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_axis(text)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 300
    return sentence


def values(text: str) -> tuple[Any, ...]:
    axis = parse_axis(text)
    assert isinstance(axis, Axis) and len(axis.columns) == len(axis.names) == 1 and axis.size == len(axis.columns[0])
    return axis.columns[0]


@pytest.mark.parametrize("text", ["50:200 GB/s:*2", "50 GB/s:200 GB/s:*2", "50 GB/s:200:*2", "50:200:*2 GB/s"])
def test_a_unit_stands_behind_any_number_of_a_range(text: str):
    assert values(f"B_2={text}") == ("50 GB/s", "100 GB/s", "200 GB/s")


def derived(text: str) -> tuple[str, str, str]:
    axis = parse_axis(text)
    assert isinstance(axis, DerivedAxis)
    return axis.name, show(axis.expression), axis.text


def types(found: tuple[Any, ...]) -> list[type]:
    return [type(value) for value in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tp=1,2,4", (1, 2, 4)),
        (" tp = 1 , 2 ", (1, 2)),
        ("tp=8", (8,)),
        ("f=0.1,.5,2.0,1e3,1e-3,-3,+4", (0.1, 0.5, 2.0, 1000, 0.001, -3, 4)),
        ("sp=true,False", (True, False)),
        ("reshard_after_forward=true,1,8", (True, 1, 8)),
        ("schedule=1f1b,zb_h1", ("1f1b", "zb_h1")),
        ("schedule=gpipe", ("gpipe",)),
        ("recompute_modules=core_attn+mlp", ("core_attn+mlp",)),
        ("recompute_modules=core_attn,core_attn+mlp", ("core_attn", "core_attn+mlp")),
        ("rank_order=tp-cp-ep-dp-pp", ("tp-cp-ep-dp-pp",)),
        ("system=a100-sxm-80", ("a100-sxm-80",)),
        ("system=h20,gemma-2,a100-pcie-80", ("h20", "gemma-2", "a100-pcie-80")),
        ("model=gemma-2b", ("gemma-2b",)),
        ("layout=Et*3|(tt|)*29m|L", ("Et*3|(tt|)*29m|L",)),
        ("pp=1:8", (1, 2, 3, 4, 5, 6, 7, 8)),
        ("pp=3:3", (3,)),
        ("s=8:64:8", (8, 16, 24, 32, 40, 48, 56, 64)),
        ("s=8:63:8", (8, 16, 24, 32, 40, 48, 56)),
        ("s=-4:4:4", (-4, 0, 4)),
        ("tp=1:64:*2", (1, 2, 4, 8, 16, 32, 64)),
        ("tp=1:63:* 2", (1, 2, 4, 8, 16, 32)),
        ("f=0.5:2:0.25", (0.5, 0.75, 1, 1.25, 1.5, 1.75, 2)),
        ("f=0.1:0.5:0.1", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("f=4:14:*1.5", (4, 6, 9, 13.5)),
        ("f=1e3:3e3:1e3", (1000, 2000, 3000)),
        ("tp=1,2,8:32:8", (1, 2, 8, 16, 24, 32)),
        ("time.exposed=1", (1,)),
    ],
)
def test_lists_and_ranges(text: str, expected: tuple[Any, ...]):
    assert values(text) == expected and types(values(text)) == types(expected)
    assert parse_axis(text) == Axis((text.partition("=")[0].strip(),), (expected,))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dp==world/(tp*cp*pp)", ("dp", "world/(tp*cp*pp)", "world/(tp*cp*pp)")),
        ("dp=world/(tp*cp*pp)", ("dp", "world/(tp*cp*pp)", "world/(tp*cp*pp)")),
        ("dp = max(tp, 2)", ("dp", "max(tp, 2)", "max(tp, 2)")),
        ("sp==tp>1", ("sp", "tp > 1", "tp>1")),
        ("sp=tp>1", ("sp", "tp > 1", "tp>1")),
        ("sp=tp==8 and schedule=='a,b:c'", ("sp", "tp == 8 and schedule == 'a,b:c'", "tp==8 and schedule=='a,b:c'")),
        ("first=layers-1", ("first", "layers - 1", "layers-1")),
        ("first=layers+1", ("first", "layers + 1", "layers+1")),
        ("dp==tp", ("dp", "tp", "tp")),
        ("dp==8", ("dp", "8", "8")),
        ("dp==tp-cp", ("dp", "tp - cp", "tp-cp")),
    ],
)
def test_derived(text: str, expected: tuple[str, str, str]):
    assert derived(text) == expected


def test_a_derived_axis_can_be_evaluated():
    axis = parse_axis("dp=world/(tp*pp)")
    assert isinstance(axis, DerivedAxis) and evaluate(axis.expression, {"world": 64, "tp": 8, "pp": 2}) == 4


def test_a_plain_word_is_text_and_words_joined_are_text():
    assert values("dp=tp") == ("tp",)
    assert values("dp=tp-cp") == ("tp-cp",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tp", "axis 'tp': it has no '='; write NAME=VALUES, as in tp=1,2,4, or @FILE"),
        ("", "axis '': it has no '='"),
        ("=1", "axis '=1': '' is not a name"),
        ("1tp=1", "'1tp' is not a name: letters, digits, _ and . are, a letter or _ first"),
        ("t p=1", "'t p' is not a name"),
        ("é=1", "'é' is not a name"),
        ("tp=", "axis tp: no values are given; write them after the =, as in tp=1,2,4"),
        ("tp=1,,2", "axis tp: item 2 of the list is empty"),
        ("tp=1,2,", "axis tp: item 3 of the list is empty"),
        ("tp=8:1", "axis tp: the range 8:1 runs downwards; 1:8 would be right"),
        ("tp=64:1:*2", "axis tp: the range 64:1:*2 runs downwards; 1:64:*2 would be right"),
        ("tp=8:1:-2", "axis tp: the range 8:1:-2 runs downwards; 1:8:2 would be right"),
        ("B_1=200 GB/s:1 TB/s", "the range 200 GB/s:1 TB/s is in GB/s and in TB/s; one unit for all of it would be right"),
        ("tp=1:8:0", "axis tp: the range 1:8:0 has the step 0; a step is above 0"),
        ("tp=1:8:-1", "has the step -1; a step is above 0"),
        ("tp=1:8:", "axis tp: the range 1:8: has no step; 1:8 or 1:8:2 or 1:8:*2 would be right"),
        ("tp=1:8:*", "has no factor"),
        (":8", "it has no '='"),
        ("tp=:8", "has no start"),
        ("tp=1:", "has no end"),
        ("tp=1:2:3:4", "has 4 parts; it is START:END, START:END:STEP or START:END:*FACTOR"),
        ("tp=1:8:*1", "has the factor 1; a factor is above 1"),
        ("tp=1:8:**2", "'*2' is not a number"),
        ("tp=1:8:*0.5", "has the factor 0.5; a factor is above 1"),
        ("tp=0:8:*2", "axis tp: the range 0:8:*2 starts at 0; with a factor it starts above 0"),
        ("tp=-1:8:*2", "starts at -1; with a factor it starts above 0"),
        ("tp=1:x", "axis tp: the range 1:x: 'x' is not a number"),
        ("tp=1:inf", "'inf' is not a number"),
        ("tp=1:1e400", "1e400 is out of range: numbers lie between 1e-300 and 1e300"),
        ("tp=1:2**3", "'2**3' is not a number"),
        ("tp=nan", "axis tp: nan is not a number that can be used here"),
        ("tp=1,-Infinity", "axis tp: -Infinity is not a number that can be used here"),
        ("tp=1e400", "axis tp: 1e400 is out of range: numbers lie between 1e-300 and 1e300 and have at most 400 digits"),
        ("tp=1e-320", "axis tp: 1e-320 is out of range"),
        ("tp=" + "9" * 390 + ".5", "is out of range"),
        ("tp=1,2,1", "axis tp: 1 is given twice"),
        ("tp=1,1.0", "axis tp: 1.0 is given twice"),
        ("tp=1:4,3", "axis tp: 3 is given twice"),
        ("sp=true,True", "axis sp: true is given twice"),
        ("tp=1:10000001", "axis tp: the range 1:10000001 has more than 100000 values"),
        ("tp=1:60000,100001:160000", "axis tp has 120000 values, and 100000 are the most"),
        ("tp=1:1e300:*1.0001", "has too many values so close together; a larger factor would be right"),
        ("tp=world/tp,4", "axis tp: 'world/tp' is neither a value, nor a range, nor @FILE; an expression is an axis of its own"),
        ("tp=2*4", "axis tp: '2*4' is neither a value nor a range; as an expression it is written tp==2*4"),
        ("tp=(cp)", "as an expression it is written tp==(cp)"),
        ("schedule='1f1b'", "axis schedule: text stands without quotes, as in schedule=1f1b"),
        ("tp=cp=8", "axis tp: column 3: '=' is not allowed in an expression: equality is written =="),
        ("tp=a b", "axis tp: column 3: 'b' does not read as an expression"),
        ("tp=[1,2]", "(lists are not)"),
        ("tp=world/(cp", "axis tp: column 7: '(cp' does not read as an expression"),
        ("tp==", "axis tp: the expression is empty"),
        ("tp=='x'", "axis tp: column 1: ''x'' is text"),
        ("tp=__import__('os').system('x')", "axis tp: column 1: '__import__('os').system('x')' is not allowed: the only functions are"),
        ("tp==open('x')", "axis tp: column 1: 'open('x')' is not allowed"),
        ("tp==9**9**9", "is not an exponent"),
        ("@", "axis '@': no file is named"),
        ("tp=@", "axis tp: '@' names no file"),
        ("tp=@f.csv#", "axis tp: '@f.csv#' names no column"),
        ("tp=@points.txt", "'points.txt': values of an axis come in a .csv or .parquet file"),
        ("@absent.csv", "absent.csv: no such file"),
        ("tp=@absent.parquet", "absent.parquet: no such file"),
    ],
)
def test_refuses(text: str, expected: str):
    assert expected in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "tp=1:1e300",
        "tp=1:1e300:1e-300",
        "tp=1:2:*1.00000000000000000000001",
        "tp=1:1e300:*1.001",
        "tp=1:" + "9" * 9000,
        "tp=" + "9" * 9000,
        "tp=" + "(" * 9000,
        "tp=" + "|" * 90_000 + "!",
        "tp=" + "a-" * 45_000 + "!",
        "tp==" + "a+" * 4999 + "a",
    ],
)
def test_bombs_are_refused_quickly(text: str):
    start = time.process_time()
    refusal(text)
    assert time.process_time() - start < 2


def test_several_axes():
    free, follows = parse_axes(["tp=1,2", "dp=world/tp", "schedule=1f1b", "sp==tp>1"])
    assert [axis.names for axis in free] == [("tp",), ("schedule",)]
    assert [axis.name for axis in follows] == ["dp", "sp"]
    assert parse_axes([]) == ((), ())


def test_a_name_is_given_once(tmp_path: Path):
    (tmp_path / "f.csv").write_text("tp,pp\n1,2\n")
    for texts in (["tp=1,2", "pp=1", "tp=4"], ["tp=1", "tp==pp"], ["tp=1", f"@{tmp_path}/f.csv"]):
        with pytest.raises(InputError, match="axis tp is given twice: as '.*' and as '.*'"):
            parse_axes(texts)


def test_a_column_of_a_csv_file(tmp_path: Path):
    file = tmp_path / "f.csv"
    file.write_text("tp, kind,rate\n8,a,0.5\n2,,1e3\n\n8,b+c,0.5\n4,a,true\n")
    assert values(f"tp=@{file}") == (8, 2, 4)
    assert values(f"x=@{file}#kind") == ("a", "b+c")
    assert values(f"x=@{file}#rate") == (0.5, 1000, True)
    assert values(f"tp=1,@{file}") == (1, 8, 2, 4)
    assert refusal(f"tp=4,@{file}") == "axis tp: 4 is given twice"
    assert refusal(f"tpp=@{file}") == f"{file}: there is no column 'tpp': did you mean 'tp'?"
    assert refusal(f"x=@{file}#zzz") == f"{file}: there is no column 'zzz': valid names: kind, rate, tp"


def test_a_path_with_a_hash(tmp_path: Path):
    (tmp_path / "a#b.csv").write_text("tp\n1\n")
    assert values(f"x=@{tmp_path}/a#b.csv#tp") == (1,)


def test_rows_of_a_csv_file_are_one_axis(tmp_path: Path):
    file = tmp_path / "f.csv"
    file.write_text('\ufefftp,schedule,f\n1,"1f1b",0.5\n\n2,zb_h1,1\n1,zb_h1,1\n')
    assert parse_axis(f"@{file}") == Axis(("tp", "schedule", "f"), ((1, 2, 1), ("1f1b", "zb_h1", "zb_h1"), (0.5, 1, 1)))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ": the file is empty"),
        ("\n\n", ": the file is empty"),
        ("tp,pp\n", ": there are no rows below the header"),
        ("tp,pp\n1,2\n3\n", ":3: 1 cells, and the header names 2 columns"),
        ("tp,pp\n1,2,3\n", ":2: 3 cells, and the header names 2 columns"),
        ("tp,pp\n1,2\n\n3, \n", ":4: pp is empty; a row of a joint axis has a value in every column"),
        ("tp,pp\n1,2\n,\n", ":3: tp is empty"),
        ("tp,p p\n1,2\n", ": the column 'p p' is not a name"),
        ("tp,\n1,2\n", ": the column '' is not a name"),
        ("tp,tp\n1,2\n", ": the column 'tp' is there twice"),
        ("tp,pp\n1,2\n1,4\n1,2\n", ":4: the row repeats that of "),
        ("tp,pp\n1,nan\n", ":2: nan is not a number that can be used here"),
        ("tp,pp\n1,-inf\n", ":2: -inf is not a number that can be used here"),
        ("tp,pp\n1,1e999\n", ":2: 1e999 is out of range"),
        ('tp,pp\n1,"2\n', ":2: not CSV: "),
        ('tp,pp\n1,"2"3\n', ":2: not CSV: "),
    ],
)
def test_csv_refuses(tmp_path: Path, content: str, expected: str):
    file = tmp_path / "f.csv"
    file.write_text(content)
    assert refusal(f"@{file}").startswith(f"{file}{expected}")


def test_csv_files_that_cannot_be_read(tmp_path: Path):
    (tmp_path / "d.csv").mkdir()
    assert "is a directory" in refusal(f"@{tmp_path}/d.csv")
    (tmp_path / "f.csv").write_bytes(b"tp\n\xe9\n")
    assert refusal(f"tp=@{tmp_path}/f.csv") == f"{tmp_path}/f.csv:2: not UTF-8 text (byte 0xe9)"
    (tmp_path / "g.csv").write_text("tp,x\n,1\n")
    assert refusal(f"tp=@{tmp_path}/g.csv") == f"{tmp_path}/g.csv: the column tp is empty"


def parquet(path: Path, columns: dict[str, list[Any]]) -> Path:
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns), path)
    return path


def test_parquet(tmp_path: Path):
    file = parquet(tmp_path / "f.parquet", {"tp": [8, 2, 8], "sp": [True, False, False], "memory.peak": [0.5, 1.0, 2.5], "kind": ["a", "b", "a"]})
    assert values(f"tp=@{file}") == (8, 2)
    assert values(f"x=@{file}#memory.peak") == (0.5, 1.0, 2.5)
    joint = parse_axis(f"@{file}")
    assert joint == Axis(("tp", "sp", "memory.peak", "kind"), ((8, 2, 8), (True, False, False), (0.5, 1.0, 2.5), ("a", "b", "a")))
    assert isinstance(joint, Axis) and joint.size == 3 and types(joint.columns[1]) == [bool] * 3 and types(joint.columns[2]) == [float] * 3
    assert refusal(f"tpp=@{file}") == f"{file}: there is no column 'tpp': did you mean 'tp'?"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"tp": [1, None]}, ": row 2: tp is empty"),
        ({"kind": ["a", ""]}, ": row 2: kind is empty"),
        ({"f": [1.0, float("nan")]}, ": row 2: f is nan, which is not a number that can be used here"),
        ({"l": [[1], [2]]}, ": row 1: l holds list; an axis holds numbers, true or false, or text"),
        ({"tp": []}, ": there are no rows in it"),
        ({"tp": [1, 2, 1], "pp": [1, 2, 1]}, ": row 3: the row repeats that of "),
        ({"a b": [1]}, ": the column 'a b' is not a name"),
    ],
)
def test_parquet_refuses(tmp_path: Path, columns: dict[str, list[Any]], expected: str):
    file = parquet(tmp_path / "f.parquet", columns)
    assert refusal(f"@{file}").startswith(f"{file}{expected}")


def test_parquet_that_is_damaged(tmp_path: Path):
    file = parquet(tmp_path / "f.parquet", {"tp": list(range(100)), "kind": ["word"] * 100})
    whole = file.read_bytes()
    for damaged in (b"", b"PAR1", b"tp,pp\n1,2\n", whole[: len(whole) // 2], whole[:-20] + b"\0" * 16 + whole[-4:], b"\0" * 60 + whole[60:]):
        file.write_bytes(damaged)
        assert refusal(f"@{file}").startswith(f"{file}: not a Parquet file that can be read: ")


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "f.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "reading Parquet needs pyarrow" in refusal(f"@{tmp_path}/f.parquet")


def decimal(hundredths: int) -> str:
    sign, size = "-" if hundredths < 0 else "", abs(hundredths)
    return f"{sign}{size // 100}.{size % 100:02d}"


def plain(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


@given(st.integers(-500, 500), st.integers(0, 500), st.integers(1, 150))
def test_steps_are_those_counted_by_hand(start: int, span: int, step: int):
    """Hundredths, whose floats would drift."""
    expected, value = [], Fraction(start, 100)
    while value <= Fraction(start + span, 100):
        expected.append(plain(value))
        value += Fraction(step, 100)
    found = values(f"x={decimal(start)}:{decimal(start + span)}:{decimal(step)}")
    assert found == tuple(expected) and types(found) == types(tuple(expected))


@given(st.integers(1, 500), st.integers(0, 20_000), st.integers(101, 400))
def test_factors_are_those_multiplied_by_hand(start: int, span: int, factor: int):
    expected, value = [], Fraction(start, 100)
    while value <= Fraction(start + span, 100):
        expected.append(plain(value))
        value *= Fraction(factor, 100)
    found = values(f"x={decimal(start)}:{decimal(start + span)}:*{decimal(factor)}")
    assert found == tuple(expected) and types(found) == types(tuple(expected))


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 20))
def test_whole_ranges_are_those_of_python(start: int, span: int, step: int):
    assert values(f"x={start}:{start + span}:{step}") == tuple(range(start, start + span + 1, step))
    assert values(f"x={start}:{start + span}") == tuple(range(start, start + span + 1))


WORDS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda w: w not in ("true", "false", "nan", "inf", "infinity"))
VALUES = st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9).filter(lambda v: v != int(v) and abs(v) > 1e-300) | st.booleans() | WORDS


@given(st.lists(VALUES, min_size=1, max_size=8, unique_by=lambda v: (isinstance(v, bool), v)))
def test_a_list_is_what_was_written(written: list[Any]):
    found = values("x=" + ",".join(map(str, written)))
    assert found == tuple(written) and types(found) == types(tuple(written))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), WORDS), min_size=1, max_size=8, unique=True))
def test_a_file_is_the_list_of_its_rows(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str]]):
    file = tmp_path_factory.mktemp("axes") / "f.csv"
    file.write_text("n,w\n" + "".join(f"{n},{w}\n" for n, w in rows))
    assert parse_axis(f"@{file}") == Axis(("n", "w"), tuple(zip(*rows)))
    assert values(f"n=@{file}") == tuple(dict.fromkeys(n for n, _ in rows))


@given(st.text("ab1.e+-*/(),=:@#|'>\n ", max_size=25) | st.text(max_size=20))
def test_any_text_is_an_axis_or_one_sentence(text: str):
    for whole in (text, f"x={text}"):
        try:
            assert isinstance(parse_axis(whole), (Axis, DerivedAxis))
        except InputError as error:
            assert "\n" not in str(error)
