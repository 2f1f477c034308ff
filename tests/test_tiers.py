"""Tiers of a network whose ranks are linked pair by pair, and latencies of calls by collective and number of ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import symsim
from symsim.algebra.expr import expr
from symsim.algebra.formula import Derivation
from symsim.algebra.typeset import entry
from symsim.cost.collectives import Network
from symsim.errors import InputError
from symsim.importers.reading import Options, read_job
from symsim.inputs.strategies import load_strategy
from symsim.inputs.system import System, symbol_values
from symsim.ir.messages import Message
from symsim.placement.mesh import mesh_of

SHIPPED = "a100-sxm-80"


def changed(**node: Any) -> System:
    """a100-sxm-80 with other fields of its inner tier of eight ranks."""
    data = yaml.safe_load((Path(symsim.__file__).parents[1] / "models" / "systems" / f"{SHIPPED}.yaml").read_text())
    data["network"][0].pop("launch", None)
    data["network"][0] |= node
    return System.model_validate(data)


def seconds(system: System, op: str, axis: str, strategy: str) -> float:
    """Of one call over the axis, of 2^20 elements of two bytes."""
    options = load_strategy(strategy)
    mesh, book = mesh_of(options), Derivation()
    group = mesh.degree(axis)
    whole, share = expr(2**20), expr(2**20) / group
    send, receive = (share, whole) if op == "all_gather" else (whole, share)
    message = Message("forward", op, axis, group, send, receive, "bf16", "")
    quantity = Network(book, system, options, mesh).seconds(message)
    values = symbol_values(system, options) | {axis: mesh.degrees[axis] for axis in mesh.degrees}
    made = quantity.expr
    while names := made.symbols() & set(book.definitions):
        made = made.substitute({name: book.definitions[name].expr for name in names})
    return float(made.evaluate(values))


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_to_all"])
def test_pairs_of_links(op: str, ranks: int) -> None:
    """Bytes take 7/(n - 1) of the seconds that they take over a switch; latencies stay."""
    nothing = {"latency": ["0 us", "estimated", next(iter(changed().sources))]}
    plain, linked = changed(**nothing), changed(fully_connected=True, **nothing)
    before, after = (seconds(s, op, "tp", f"tp={ranks}") for s in (plain, linked))
    assert after == pytest.approx(before * 7 / (ranks - 1))


def test_a_pair_has_one_link() -> None:
    nothing = {"latency": ["0 us", "estimated", next(iter(changed().sources))]}
    before, after = (seconds(changed(**nothing, **more), "p2p", "pp", "pp=4") for more in ({}, {"fully_connected": True}))
    assert after == pytest.approx(7 * before)


def test_nodes_are_as_ever() -> None:
    """Between nodes only what runs inside them is slower: a ring through two nodes of eight uses all links of a node."""
    before, after = (seconds(system, "all_gather", "dp", "dp=16") for system in (changed(), changed(fully_connected=True)))
    assert after == pytest.approx(before)


def test_calls_by_ranks() -> None:
    """An entry holds from its ranks up to the next; an all-reduce pays for one call; other collectives keep their launch."""
    of = next(iter(changed().sources))
    table = {"all_gather": {2: ["10 us", "measured", of], 4: ["25 us", "measured", of]}, "all_reduce": {2: ["40 us", "measured", of]}}
    plain, timed = changed(), changed(calls=table)
    added = [seconds(timed, "all_gather", "tp", f"tp={n}") - seconds(plain, "all_gather", "tp", f"tp={n}") for n in (2, 3, 4, 8)]
    assert added == pytest.approx([10e-6, 10e-6, 25e-6, 25e-6])
    assert seconds(timed, "all_reduce", "tp", "tp=8") - seconds(plain, "all_reduce", "tp", "tp=8") == pytest.approx(40e-6)
    assert seconds(timed, "reduce_scatter", "tp", "tp=8") == seconds(plain, "reduce_scatter", "tp", "tp=8")
    # beyond the node the longest call of the tiers counts
    assert seconds(timed, "all_gather", "dp", "dp=16") - seconds(plain, "all_gather", "dp", "dp=16") == pytest.approx(25e-6)


def test_a_table_in_a_whole_step(tmp_path: Path) -> None:
    data = yaml.safe_load((Path(symsim.__file__).parents[1] / "models" / "systems" / f"{SHIPPED}.yaml").read_text())
    data["network"][0].pop("launch")
    data["network"][0]["calls"] = {"default": {2: ["10 us", "measured", next(iter(data["sources"]))]}}
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(data))
    result = symsim.derive("llama3-8b", "tp=8,sp=true", system=str(path), overrides={"lambda_1_default_2": "20 us"})
    plain = symsim.derive("llama3-8b", "tp=8,sp=true", system=SHIPPED, overrides={"lambda_1": "0 us"})
    assert float(result.numbers["c_f_dense_tp"] - plain.numbers["c_f_dense_tp"]) == pytest.approx(4 * 20e-6)
    assert "of 2 ranks or more" in entry("lambda_1_default_2").meaning


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"calls": {"gather_all": {2: ["1 us", "estimated", "x"]}}}, "is no collective"),
        ({"calls": {"all_gather": {1: ["1 us", "estimated", "x"]}}}, "from 2 up"),
        ({"ranks": "all", "fully_connected": True}, "linked pair by pair"),
    ],
)
def test_what_cannot_be(node: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, ValueError), match=words):
        changed(**node)


def test_keys_of_simumax(tmp_path: Path) -> None:
    tier = {
        "processor_usage": 0,
        "bandwidth": {"gbps": 200, "efficient_factor": 0.8, "latency_us": 5},
        "op": {"all_reduce": {"scale": 2, "offset": -1, "fixed_latency_us_by_comm_num": {"2": 11, "8": 30}}},
    }
    accelerator = {
        "backend": "cuda",
        "mem_gbs": 80,
        "op": {"default": {"tflops": 300, "efficient_factor": 0.7}},
        "bandwidth": {"default": {"gbps": 1500, "efficient_factor": 0.8, "latency_us": 5}},
        "mode": "roofline",
    }
    networks = {"intra_with_pcie": False, "high_intra_node": tier, "inter_node": {**tier, "op": {}}}
    path = tmp_path / "system.json"
    path.write_text(json.dumps({"sys_name": "x", "num_per_node": 8, "accelerator": accelerator, "networks": networks, "FC8": True}))
    job = read_job("simumax", [str(path)], Options())
    assert job.system is not None
    node = job.system["network"][0]
    assert node["fully_connected"] is True and node["calls"]["all_reduce"][8][0] == "30 us"
    rows = {row.key: row.fate for row in job.rows}
    assert rows["FC8"] == rows["networks.high_intra_node.op.all_reduce.fixed_latency_us_by_comm_num"] == "mapped"
