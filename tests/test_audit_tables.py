"""Tables of printed numbers: recomputed, held against how near they must be, and what is said of a bad one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from symsim.api.cli import main
from symsim.audit import command
from symsim.audit.printed import Recomputed, Tables, audit_tables, recompute, tables_of
from symsim.audit.subjects import Derivations
from symsim.errors import InputError
from symsim.inputs.reading import parse_yaml

HEAD = """\
source: {title: T, authors: A et al., year: 2024, arxiv: "2401.00001"}
of: {model: bare-gpt}
tables:
- id: mine.table
  at: table 1
  status: seen
  says: M_stage_weights + M_stage_gradients + M_stage_optimizer
  of: {strategy: "dp=8,zero=1,grad_reduce_in_fp32=false"}
  rows:
"""
DERIVATIONS = Derivations()


def recomputed(rows: str, head: str = HEAD) -> Recomputed:
    (table,) = tables_of(parse_yaml(head + rows, "mine.yaml"))
    return recompute(table, DERIVATIONS)


def test_states_of_zero() -> None:
    """arXiv 1910.02054 Table 1: 7.5 B parameters on 64 ranks, 31.4 GB."""
    found = recomputed('  - {values: {P_stage_dense: "7.5e9", dp: 64}, printed: "31.4e9", within: 0.001}\n')
    assert found.values == (31406250000,)
    assert found.passes and found.mape == found.worst == pytest.approx(0.000199, rel=1e-2)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{values: {P_stage_dense: "7.5e9", dp: 64}, printed: "31.5e9", within: 0.001}', "3.15e+10 is missed by -0.298 % (3.14062e+10)"),
        ('{values: {P_stage_dense: "7.5e9", dp: 64}, printed: "31.4e9", within: 0.001, misses: x}', "3.14e+10 is met, and said to be missed"),
    ],
)
def test_red(row: str, said: str) -> None:
    (red,) = recomputed(f"  - {row}\n").red
    assert red.startswith("mine.yaml:10: mine.table: ") and said in red


def test_a_miss_that_is_said() -> None:
    assert recomputed('  - {values: {P_stage_dense: "7.5e9", dp: 64}, printed: "30e9", misses: typo}\n').passes


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{says: N_nothing, printed: 1}", "mine.yaml:10: bare-gpt has no 'N_nothing'"),
        ("{values: {tp_: 4}, printed: 1}", "does not stand on 'tp_'"),
        ('{printed: "b*s"}', "mine.yaml:10: 'b*s' is no number"),
        ("{printed: 1, stage: 3}", "mine.yaml:10: there is no stage 3 of 1"),
        ("{printed: 1, of: {model: no-gpt}}", "mine.yaml:10: there is no model 'no-gpt'"),
        ('{printed: 1, says: "__import__(1)"}', "mine.yaml:10: column 1"),
        ("{printed: 1, off: 2}", "mine.yaml:10: unknown key 'off'"),
    ],
)
def test_bad_tables(row: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        recomputed(f"  - {row}\n")
    assert said in str(error.value) and "\n" not in str(error.value)


def status(*arguments: str) -> object:
    with pytest.raises(SystemExit) as exit:
        main(["audit", *arguments])
    return exit.value.code


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(HEAD + '  - {what: 7.5 B, values: {P_stage_dense: "7.5e9", dp: 64}, printed: "31.4e9", within: 0.001}\n')
    assert status(str(file), "--json") == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert (table["id"], table["rows"], table["passes"], table["cells"][0]["symsim"]) == ("mine.table", 1, True, 31406250000.0)
    file.write_text(file.read_text().replace("31.4e9", "30e9"))
    assert status(str(file)) == 1
    out = capsys.readouterr().out
    assert "! mine.table, table 1" in out and max(map(len, out.splitlines())) <= 80 + len(str(tmp_path))


def test_claims_are_shown_where_no_table_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "asked", lambda names: ([], []))
    shown: list[str] = []
    assert command.run([], False, None, shown.append, shown.append) == 0
    assert "no claims" in shown[0] and "isca.table2" in shown[0]
    assert command.run(["dsv3.table1"], False, None, shown.append, shown.append) == 0
    assert "no claims" not in shown[1] and "dsv3.table1" in shown[1]


def test_shipped_tables() -> None:
    """All printed cells are met, or missed as it is said; ISCA'25 counts its dense models by another rule than its mixtures of experts."""
    found: Tables = audit_tables((), DERIVATIONS)
    assert not found.errors
    assert [r for t in found.found for r in t.red] == []
    tables = {t.table.id: t for t in found.found}
    assert len(tables["zero.table1"].values) == 54
    two_rules = tables["isca.table2"]
    assert [round(float(v) / 1e9) for v in two_rules.values] == [155, 250, 394, 2448, 445, 2473]
    both = tables["isca.table4"].values[:2]
    assert [round(100 * float(v), 1) for v in both] == [43.8, 39.0]
