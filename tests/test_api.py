"""The Python API: a few public names that do what the command line does."""

from __future__ import annotations

import pytest

import symsim
from symsim.errors import InputError


def test_public_names() -> None:
    assert set(symsim.__all__) == {"derive", "load_model", "load_strategy", "load_system", "sweep", "write_report"}
    assert all(callable(getattr(symsim, name)) for name in symsim.__all__)
    with pytest.raises(AttributeError, match="no attribute 'derived'"):
        _ = symsim.derived


def test_derive() -> None:
    result = symsim.derive(symsim.load_model("llama3-70b"), symsim.load_strategy("tp=8,pp=4", sp=True))
    assert result.value("N") == 70553706496
    assert result.to_json()["params"]["total"] == 70553706496
    assert result.formula("F_dense")._repr_latex_().startswith("$\\displaystyle F_{\\mathrm{dense}} = ")
    assert "<math" in result._repr_html_()


def test_bad_input_is_one_sentence() -> None:
    with pytest.raises(InputError, match="tp=3 does not divide num_attention_heads=64"):
        symsim.derive(symsim.load_model("llama3-70b"), symsim.load_strategy("tp=3"))
