"""`derive(overrides=...)` takes what `--set` takes on the command line, with the same effect, and refuses everything else."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from symsim.api.cli import _result
from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.settable import architecture_keys
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system

MOE = ("mixtral-8x7b", "tp=2,sp=true,pp=2,ep=2,etp=1,dp=2,num_microbatches=4", "h100-sxm")
DENSE = ("llama3-8b", "tp=2,sp=true,pp=2,num_microbatches=4", "h100-sxm")


def in_python(case: tuple[str, str, str | None], overrides: dict[str, Any]) -> Result:
    model, strategy, system = case
    machine = load_system(system) if system else None
    return derive(load_model(model).architecture, load_strategy(strategy), overrides=overrides, system=machine)


SETTINGS: list[tuple[tuple[str, str, str], dict[str, Any]]] = [
    (DENSE, {"tp": 4}),
    (DENSE, {"pp": 4}),
    (DENSE, {"tensor_model_parallel_size": 8}),
    (DENSE, {"world": 16}),
    (DENSE, {"seq_length": 2048}),
    (DENSE, {"s": 2048, "b": 2}),
    (DENSE, {"sp": False}),
    (DENSE, {"recompute": "selective", "recompute_modules": ["core_attn", "mlp"]}),
    (DENSE, {"L": 40}),
    (DENSE, {"h": 5120, "attention.num_attention_heads": 40}),
    (DENSE, {"B_2": "100 GB/s"}),
    (DENSE, {"B_hbm": "1 TB/s", "eta_gemm": 0.5}),
    (DENSE, {"network.infiniband.latency": "1 us"}),
    (DENSE, {"accelerator.peak.bf16": "1 PFLOP/s"}),
    (DENSE, {"assume.causal": "half", "assume.save_gathered": True}),
    (MOE, {"lam": 1.5}),
    (MOE, {"lam": Fraction(3, 2), "E": 16, "ep": 4, "dp": 4}),
]


def spelt(value: Any) -> str:
    return (
        "+".join(value)
        if isinstance(value, list)
        else str(value).lower()
        if isinstance(value, bool)
        else f"{float(value)}"
        if isinstance(value, Fraction)
        else str(value)
    )


@pytest.mark.long_after(6)
@pytest.mark.parametrize(("case", "overrides"), SETTINGS, ids=[" ".join(o) for _, o in SETTINGS])
def test_the_same_effect_as_on_the_command_line(case: tuple[str, str, str], overrides: dict[str, Any]) -> None:
    settings = [f"{name}={spelt(value)}" for name, value in overrides.items()]
    expected, base = _result(*case, settings)[0].to_json(), in_python(case, {}).to_json()
    found = in_python(case, overrides).to_json()
    assert found == expected
    assert found != base, "an override without effect proves nothing"


def test_a_degree_changes_the_stages() -> None:
    result = in_python(DENSE, {"pp": 4, "tp": 4})
    assert len(result.stages) == 4 and result.strategy.tp == 4
    assert (
        result.stage_numbers(result.stages[1])["X_stage"]
        == in_python(("llama3-8b", "tp=4,sp=true,pp=4,num_microbatches=4", "h100-sxm"), {}).stage_numbers(result.stages[1])["X_stage"]
    )


def test_numbers_of_numpy_are_numbers() -> None:
    plain = in_python(DENSE, {"tp": 4, "sp": False, "eta_gemm": 0.5})
    assert plain.values["tp"] == 4 and plain.values["eta_gemm"] == 0.5
    assert in_python(DENSE, {"tp": np.int64(4), "sp": np.bool_(False), "eta_gemm": np.float64(0.5)}).to_json() == plain.to_json()


def test_a_result_with_overrides_derives_again() -> None:
    result = in_python(MOE, {"lam": Fraction(4, 3)})
    assert result.overrides == {"lam": Fraction(4, 3)}
    assert derive(result.model, result.strategy, result.assumptions, result.overrides, result.system).to_json() == result.to_json()


@pytest.mark.parametrize(
    ("case", "overrides", "said"),
    [
        (DENSE, {"foo": 3}, "foo: no such setting"),
        (DENSE, {"seq_lenght": 3}, "did you mean 'seq_length'"),
        (DENSE, {"L_dense": 40}, "L_dense: no such setting"),
        (DENSE, {"first_i": 1}, "first_i: no such setting"),
        (DENSE, {"n_z": 3}, "n_z .* cannot be set"),
        (DENSE, {"tf": 1.0}, "tf .* cannot be set"),
        (DENSE, {"B_hbm": 3e12}, "a bandwidth is needed, such as 900 GB/s"),
        (DENSE, {"B_7": "1 GB/s"}, "no tier '7'"),
        (("llama3-8b", "tp=2", None), {"B_2": "100 GB/s"}, "changes a system's number, and none is"),
        (DENSE, {"eta_gemm": 0}, "is zero"),
        (DENSE, {"tp": 0}, "tp"),
        (DENSE, {"tp": "many"}, "tp"),
        (DENSE, {"tp": True}, "tp is true"),
        (DENSE, {"tp": None}, "tp"),
        (DENSE, {"tp": {}}, "tp"),
        (DENSE, {"tp": 1j}, "tp"),
        (DENSE, {"tp": 4, "tensor_model_parallel_size": 4}, "are the same setting"),
        (DENSE, {"lam": 2}, "no experts"),
        (MOE, {"lam": float("nan")}, "a number from 1 up"),
        (MOE, {"lam": float("inf")}, "a number from 1 up"),
        (MOE, {"lam": [2]}, "lam"),
        (MOE, {"lam": 3}, "busiest"),
        (DENSE, {"assume.cuasal": "half"}, "cuasal"),
        (DENSE, {3: 4}, "3"),
        (DENSE, {"": 4}, "name"),
        (DENSE, {"vocab_size": 128257}, "tp"),
    ],
)
def test_refused(case: tuple[str, str, str | None], overrides: dict[Any, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as refusal:
        in_python(case, overrides)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) <= 300


def test_what_is_no_mapping_is_refused() -> None:
    with pytest.raises(InputError, match="overrides"):
        in_python(DENSE, ["tp=4"])  # type: ignore[arg-type]


def test_every_section_of_a_model_file_has_its_keys() -> None:
    """Those of the blocks that Zamba2's layers share among them."""
    assert architecture_keys()["shared_block.adapter_rank"] == ("shared_block", "adapter_rank")
    sections = {name for name, value in load_model("zamba2-7b").architecture if isinstance(value, BaseModel)}
    assert sections <= {path[0] for path in architecture_keys().values() if len(path) == 2}
