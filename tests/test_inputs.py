"""Mutated inputs and well-formed combinations, of which tests/draws/inputs.py runs 220,000: here a few of each kind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "draws"))

import inputs
import inputs_bad

# seconds of CPU decide how many: about 15 for all
FEW = {kind: 6 * share for kind, share in inputs_bad.SHARES.items()} | {inputs.GOOD: 30}


@pytest.mark.long_after(6)
@pytest.mark.parametrize("kind", FEW)
def test_no_input_ends_in_a_traceback_a_hang_or_half_a_file(kind: str):
    text, faults = inputs.table(inputs.outcomes({kind: range(FEW[kind])}, seed=1))
    assert not faults, text


def test_a_case_is_drawn_the_same_again():
    for kind in FEW:
        assert inputs.drawn(kind, 9, 5) == inputs.drawn(kind, 9, 5)


@pytest.mark.parametrize("by", ["ceil(1/0)", f"tp*{10**309}", f"tp/{10**309}", f"-1.5*{10**350}*tp", "mfu*1e200*1e200", f"mfu - {10**309}"])
def test_numbers_past_what_a_float_holds_are_infinity(by: str, capsys: pytest.CaptureFixture[str]):
    import json

    from symsim.api.cli import main

    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as left:
            main(["sweep", "llama3-8b", "-y", "h100-sxm", "--axis", "tp=1,2", "--backend", "numpy", "--top", "2", "--by", by, *more])
        found = capsys.readouterr()
        assert left.value.code == 0, found.err
    rows = json.loads(found.out)
    assert len(rows) == 2 and all(row[by] is None or by.startswith("tp/") for row in rows)


def test_an_imbalance_past_what_a_float_holds_is_refused(capsys: pytest.CaptureFixture[str]):
    from symsim.api.cli import main

    with pytest.raises(SystemExit) as left:
        main(["eval", "mixtral-8x7b", "-s", "ep=2", "--set", f"lam={10**309}"])
    assert left.value.code == 2 and "from 1 up, and at most" in capsys.readouterr().err
