"""Calculon's files as a job: what each key becomes, and that every key has a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError
from symsim.importers.job import write_job

IMPORTED = Path(__file__).parent / "imported" / "calculon"
# Llm.Application and Llm.Execution.fields() of Calculon (git caa4b11, calculon/llm/llm.py)
APPLICATION = "hidden feedforward seq_size attn_heads attn_size num_blocks".split()
EXECUTION = """
    num_procs tensor_par pipeline_par data_par tensor_par_net pipeline_par_net data_par_net batch_size microbatch_size datatype fused_activation
    attention_type activation_recompute pipeline_interleaving optimizer_sharding tensor_par_comm_type tensor_par_overlap seq_par_ag_redo
    data_par_overlap weight_offload activations_offload optimizer_offload training""".split()
TIER = "bandwidth efficiency size latency must_be_filled processor_usage ops.p2p ops.reduce_scatter ops.all_gather ops.all_reduce".split()


def files(name: str) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in sorted((IMPORTED / name).iterdir())}


def job(folder: Path, name: str = "shares", lenient: bool = False, **changes: dict[str, Any]) -> symsim.Job:
    """The job of an example with some keys changed; None takes one out."""
    paths = []
    for what, data in files(name).items():
        given = {key: value for key, value in {**data, **changes.get(what, {})}.items() if value is not None}
        paths.append(folder / f"{what}.json")
        paths[-1].write_text(json.dumps(given))
    return symsim.load_job("calculon", *map(str, paths), lenient=lenient)


def fates(made: symsim.Job) -> dict[str, str]:
    return {row.key: row.fate for row in made.rows}


def test_a_job_of_three_files(tmp_path: Path) -> None:
    made = symsim.load_job("calculon", *map(str, (IMPORTED / "shares").iterdir()))
    assert made.strategy == {
        "tp": 8, "pp": 4, "dp": 4, "seq_length": 2048, "micro_batch_size": 1, "num_microbatches": 32, "vpp": 3, "precision": "fp16", "zero": 1,
        "grad_reduce_in_fp32": False, "sp": True, "recompute": "selective", "overlap_grad_reduce": True, "overlap_param_gather": True,
    }  # fmt: skip
    assert made.assumptions == {"attention_kernel": "math"}
    assert made.architecture is not None and made.architecture.num_layers == 48 and made.architecture.mlp is not None
    assert made.architecture.mlp.bias and not made.architecture.mlp.gated and made.architecture.vocab_size == 51200
    write_job(made, tmp_path)
    system = symsim.load_system(tmp_path / "system.yaml")
    assert float(system.accelerator.peak.bf16.value) == 312e12 and float(system.kernels.gemm.efficiency.value) == 0.9
    inner, outer = system.network
    assert (inner.ranks, outer.ranks, float(inner.efficiency["all_reduce"].value)) == (8, "all", 0.7)
    assert system.host is not None and float(system.host.bandwidth.value) == 25e9 * 0.9
    assert symsim.derive(tmp_path).value("time.step") > 0


def test_parameters_are_its_own_count(tmp_path: Path) -> None:
    """Application.num_parameters, biases and 51200 rows of vocabulary among them, but for the final norm, which it leaves out."""
    write_job(symsim.load_job("calculon", str(IMPORTED / "shares" / "application.json")), tmp_path)
    h, f, s, width, blocks = 8192, 32768, 2048, 64 * 128, 48
    theirs = blocks * (2 * h * f + 4 * h * width + h + f + 3 * width + h + 4 * h) + (51200 + s) * h
    assert symsim.derive(tmp_path).value("params.total") == theirs + 2 * h


def test_every_key_has_a_row() -> None:
    for name in ("shares", "offloaded"):
        made = symsim.load_job("calculon", *map(str, (IMPORTED / name).iterdir()))
        told = fates(made)
        assert {*APPLICATION, *EXECUTION} <= told.keys()
        assert {f"networks[{place}].{key}" for place in (0, 1) for key in TIER} <= told.keys()
        assert {"matrix.float16.tflops", "vector.float16.tflops", "mem1.GiB", "mem2.MB_efficiency", "processing_mode"} <= told.keys()


def test_a_system_without_a_second_memory(tmp_path: Path) -> None:
    """Of no capacity: `mem2.capacity > 0` is what Calculon's search asks before it offloads."""
    made = job(tmp_path, system={"mem2": {"GiB": 0, "GBps": 32, "MB_efficiency": [[0, 1]]}})
    told = fates(made)
    assert "host" not in (made.system or {})
    assert {told[f"mem2.{key}"] for key in ("GiB", "GBps", "MB_efficiency")} == {"no_cost_effect"}


def test_what_of_a_system_the_execution_reads(tmp_path: Path) -> None:
    """A tier's share of the processors is the system's; engines of another type than that of the execution are not read."""
    files = {path.name: json.loads(path.read_text()) for path in (IMPORTED / "shares").iterdir()}
    system = next(data for data in files.values() if "vector" in data)
    system["vector"]["float8"] = system["vector"]["float16"]
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data))
    made = symsim.load_job("calculon", *map(str, tmp_path.iterdir()))
    told, usage = fates(made), [tier["processor_usage"] for tier in system["networks"]]
    assert (told["vector.float16.tflops"], told["vector.float8.tflops"]) == ("not_modelled", "no_cost_effect")
    assert [told[f"networks[{place}].processor_usage"] for place in (0, 1)] == ["mapped" if share else "no_cost_effect" for share in usage]
    assert [tier.get("processors", ["0"])[0] for tier in (made.system or {})["network"]] == [f"{share:g}" for share in usage] and any(usage)


@pytest.mark.parametrize(
    ("execution", "option", "value"),
    [
        ({"tensor_par_comm_type": "ar", "seq_par_ag_redo": False}, "sp", None),
        ({"seq_par_ag_redo": False}, "assume.save_gathered", "true"),
        ({"tensor_par_comm_type": "p2p_rs_ag", "seq_par_ag_redo": False}, "assume.pipeline_scatter_gather", "true"),
        ({"tensor_par_overlap": "pipe"}, "tp_comm_overlap", True),
        ({"datatype": "float8"}, "fp8", "tensorwise"),
        ({"datatype": "bfloat16"}, "precision", "bf16"),
        ({"activation_recompute": "full", "seq_par_ag_redo": False}, "recompute", "full"),
        ({"batch_size": 72}, "microbatch_group_size_per_vp_stage", 6),
        ({"optimizer_offload": True}, "optimizer_cpu_offload", True),
        ({"optimizer_sharding": False}, "zero", 0),
    ],
)
def test_what_becomes_of(execution: dict[str, Any], option: str, value: Any, tmp_path: Path) -> None:
    made = job(tmp_path, execution=execution)
    assert made.strategy is not None
    where = made.assumptions if option.startswith("assume.") else made.strategy
    assert where.get(option.removeprefix("assume.")) == value
    assert any(row.to.startswith(option) for row in made.rows)


def test_groups_of_queries(tmp_path: Path) -> None:
    made = job(tmp_path, execution={"attention_type": "multiquery"})
    assert made.architecture is not None and made.architecture.query_groups == 1


def test_offloading_without_a_pipeline() -> None:
    made = symsim.load_job("calculon", *map(str, (IMPORTED / "offloaded").iterdir()))
    assert made.strategy is not None and made.strategy["cpu_offloading_num_layers"] == 47
    told = fates(made)
    assert (told["activations_offload"], told["weight_offload"], told["fused_activation"]) == ("mapped", "not_modelled", "not_modelled")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"execution": {"trainng": True, "training": None}}, "execution.json:1: Calculon's execution has no key 'trainng': did you mean 'training'"),
        ({"execution": {"data_par": None}}, "execution.json: data_par is not given; Calculon asks for every key"),
        ({"execution": {"training": False}}, r"training=false: inference is another workload.*--lenient goes on without it"),
        ({"execution": {"num_procs": 7}}, "num_procs is 7; it should be tensor_par pipeline_par data_par = 128"),
        ({"execution": {"batch_size": 127}}, "batch_size is 127; it should be a multiple of data_par microbatch_size = 4"),
        ({"execution": {"batch_size": 8}}, "pipeline_interleaving=3: 2 micro-batches do not fill pp=4 stages"),
        ({"execution": {"datatype": "int8"}}, r"datatype is int8; it should be one of float16, .*float8"),
        ({"application": {"hidden": None}}, "hidden is not given; it should be a whole number from 1 up"),
        ({"system": {"mem1": {"GiB": 80, "GBps": 0, "MB_efficiency": [[0, 1]]}}}, "mem1.GBps is 0; it should be a number above zero"),
        ({"system": {"mem1": {"GiB": 80, "GBps": 1, "MB_efficiency": [[0, 2]]}}}, "MB_efficiency is 0 2; it should be a list of"),
        ({"system": {"mem1": {"GiB": 80, "GBps": 1, "MB_efficiency": [[1, 0.5]]}}}, "MB_efficiency is 1 0.5; .* down to the size 0"),
        ({"system": {"networks": []}}, "networks is missing; it should be a list of tiers"),
        ({"execution": {"data_par_net": "far"}}, "data_par_net is far; it should be a number"),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        job(tmp_path, **changes)


def test_lenient_keeps_rows(tmp_path: Path) -> None:
    told = fates(job(tmp_path, lenient=True, execution={"training": False, "nonsense": 1, "batch_size": 8}))
    assert (told["training"], told["nonsense"], told["pipeline_interleaving"]) == ("refused", "refused", "refused")
