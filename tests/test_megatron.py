"""Megatron-Core itself (../shared/oracle/megatron.json): parameters of every rank, gradient buffers, and traced layers'
collectives, FLOPs and saved bytes.
"""

from __future__ import annotations

import megatron_cases as cases
import pytest
from shared import cases as oracle_cases
from shared import needed

FILE = "megatron.json"
PARAMS, DDP, TRACE = (oracle_cases(FILE, "sections", s) for s in ("params", "ddp", "trace"))


def names(found: list) -> list[str]:
    return [c["name"] if c else "absent" for c in found]


def check(case: dict, exceptions: dict[str, str], comparison: tuple) -> None:
    """Equal, or listed as an exception that does differ."""
    expected, computed = comparison
    if case["name"] in exceptions:
        assert expected != computed, f"{case['name']} is equal now: drop its exception ({exceptions[case['name']]})"
    else:
        assert computed == expected


@pytest.mark.parametrize("case", PARAMS, ids=names(PARAMS))
def test_parameters_of_every_rank(case: dict) -> None:
    check(needed(case, FILE), cases.PARAMETER_EXCEPTIONS, cases.parameters(case))


@pytest.mark.parametrize("case", DDP, ids=names(DDP))
def test_gradient_buffers(case: dict) -> None:
    check(needed(case, FILE), {}, cases.buffers(case))


@pytest.mark.parametrize("case", TRACE, ids=names(TRACE))
def test_collectives(case: dict) -> None:
    check(needed(case, FILE), cases.MESSAGE_EXCEPTIONS, cases.collectives(case))


@pytest.mark.parametrize("case", TRACE, ids=names(TRACE))
def test_flops(case: dict) -> None:
    check(needed(case, FILE), {}, cases.flops(case))


FUSED = [c for c in TRACE if c is None or c["name"].startswith("fused_")]


@pytest.mark.parametrize("case", FUSED, ids=names(FUSED))
def test_saved_bytes(case: dict) -> None:
    check(needed(case, FILE), {}, cases.saved(case))


GDN = [c for c in oracle_cases(FILE, "sections", "mixers") if c is None or c["name"].startswith("gdn_")] or [None]


@pytest.mark.parametrize("case", GDN, ids=names(GDN))
def test_gated_delta_net_parameters(case: dict) -> None:
    if case is None and oracle_cases(FILE) != [None]:
        pytest.skip(f"../shared/oracle/{FILE} has no gated delta net among its mixers")
    expected, computed = cases.mixer(needed(case, FILE))
    assert computed == expected
