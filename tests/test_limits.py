"""Stated bounds: what lies within them is answered in seconds, what lies beyond is refused with a sentence that names the bound."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import symsim
from symsim.api.result import Result, derive
from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.limits import LARGEST_SIZE, MOST_EXPERTS, MOST_LAYER_KINDS, MOST_LAYERS, MOST_RANKS, MOST_STAGES
from symsim.inputs.models import load_model, override_architecture
from symsim.inputs.settings import split_settings
from symsim.inputs.strategies import load_strategy
from symsim.inputs.systems import load_system

HUGE = [10**9, 10**12, 10**19, 10**100, 10**309]


def derived(model: str, strategy: str, *settings: str) -> Result:
    asked = split_settings(settings)
    return derive(override_architecture(load_model(model).architecture, asked.architecture), load_strategy(strategy, asked.strategy))


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("name", ["num_layers", "pp", "vpp", "tp", "dp", "cp", "ep", "etp", "num_moe_experts", "moe_router_topk", "mtp_num_layers"])
def test_counts_beyond_their_bound_are_refused(name: str, number: int):
    began = time.process_time()
    with pytest.raises(InputError, match=r"at most|less than or equal to|from 1 to|more than|exceeds|does not divide|needs|no mult") as caught:
        derived("mixtral-8x7b", "tp=1", f"{name}={number}")
    assert len(str(caught.value)) <= 292 and time.process_time() - began < 2


@pytest.mark.parametrize("number", [number for number in HUGE if number > LARGEST_SIZE])
@pytest.mark.parametrize("name", ["h", "V", "f_e", "a", "g", "d", "seq_length", "micro_batch_size", "num_microbatches", "global_batch_size"])
def test_sizes_beyond_their_bound_are_refused(name: str, number: int):
    with pytest.raises(InputError, match=f"it should be less than or equal to {LARGEST_SIZE}|is not a whole|too large"):
        derived("mixtral-8x7b", "tp=1", f"{name}={number}")


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (f"{MOST_LAYERS + 1} * dense", f"from 1 to {MOST_LAYERS} layers are read"),
        ("5000 * dense + 5001 * dense", f"10001 layers are too many: at most {MOST_LAYERS}"),
        ("1 * (9999 * dense + 9999 * dense)", f"19998 layers are too many: at most {MOST_LAYERS}"),
        ("9999 * (9999 * dense + dense)", f"at most {MOST_LAYERS}"),
        (MOST_LAYERS + 1, f"from 1 to {MOST_LAYERS} are read"),
        (10**18, f"from 1 to {MOST_LAYERS} are read"),
        (" + ".join(f"k{i}" for i in range(MOST_LAYER_KINDS + 1)), f"at most {MOST_LAYER_KINDS} are derived"),
    ],
)
def test_layers_beyond_their_bound_are_refused_before_they_are_written_out(layers: object, reason: str):
    kinds = {"dense": {}, **{f"k{i}": {} for i in range(MOST_LAYER_KINDS + 1)}}
    given = {"name": "x", "hidden_size": 64, "vocab_size": 64, "attention": {"num_attention_heads": 4}, "mlp": {"ffn_hidden_size": 64}}
    with pytest.raises(ValueError, match=reason):
        Architecture.model_validate({**given, "layers": layers, "layer_kinds": kinds})


def test_stages_and_experts_are_bounded_together():
    with pytest.raises(InputError, match=f"pp\\*vpp=128\\*64=8192 stages are too many: at most {MOST_STAGES:,}"):
        derived("llama3-8b", "pp=128,vpp=64", "num_layers=8192")
    with pytest.raises(InputError, match=f"32 layers of 400000 experts are 12800000, which are too many: at most {MOST_EXPERTS}"):
        derived("mixtral-8x7b", "tp=1", "E=400000")


def test_a_listing_of_valid_degrees_takes_no_time_and_is_short():
    began = time.process_time()
    with pytest.raises(InputError, match="tp=24 neither divides num_query_groups=64 nor is a multiple of it; valid: 1, 2, 4, 8, "):
        derived("llama3-8b", "tp=24", f"a={3 * 2**48}", "g=64", "d=128", "h=4608")
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("model", "strategy", "settings"),
    [
        ("llama3-8b", "tp=1", [f"num_layers={MOST_LAYERS}"]),
        ("llama3-8b", f"pp={MOST_STAGES}", [f"num_layers={MOST_LAYERS}"]),
        ("llama3-8b", f"pp=2,vpp={MOST_STAGES // 2}", [f"num_layers={MOST_STAGES}"]),
        ("mixtral-8x7b", "tp=1", ["num_layers=1", f"E={MOST_EXPERTS}"]),
        (
            "llama3-8b",
            f"dp={MOST_RANKS},tp=8",
            [f"m={LARGEST_SIZE}", f"s={LARGEST_SIZE}", f"b={LARGEST_SIZE}", f"h={LARGEST_SIZE}", f"f={LARGEST_SIZE}"],
        ),
    ],
)
def test_what_lies_at_the_bounds_is_answered_in_ten_seconds(model: str, strategy: str, settings: list[str]):
    asked = split_settings(settings)
    began = time.process_time()
    architecture = override_architecture(load_model(model).architecture, asked.architecture)
    result = derive(architecture, load_strategy(strategy, asked.strategy), system=load_system("h100-sxm"))
    found = result.to_json()
    assert found["time"]["step"] > 0 and found["memory"]["peak"] > 0
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("name", "content", "most"),
    [("m.yaml", "a: [" + "1," * 2**18 + "]", 512), ("c.json", '{"a": [' + "1, " * 2**21 + "1]}", 4096)],
    ids=["yaml", "json"],
)
def test_a_file_that_would_take_minutes_to_read_is_refused(name: str, content: str, most: int, tmp_path: Path):
    (tmp_path / name).write_text(content)
    began = time.process_time()
    with pytest.raises(InputError, match=f"is larger than {most} KiB"):
        load_model(str(tmp_path / name))
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("axis", "reason"),
    [
        ("vpp=65536,2", "65536 is more than the largest value that a grid takes, 4096"),
        ("dp=1,1000001", "1000001 is more than the largest value that a grid takes, 1000000"),
        ("world=8,100000000000000000000", "is more than the largest value that a grid takes"),
        ("hidden_size=4096,10000000000000000000", "10000000000000000000 is more than the largest value that a grid takes"),
        ("hidden_size=1:100000", "100000 values, which are read one by one; at most 10000 are"),
        ("vpp==num_microbatches*2000", "vpp cannot be 8000"),
    ],
)
def test_an_axis_is_bounded_as_its_setting_is(axis: str, reason: str):
    with pytest.raises(InputError, match=reason):
        symsim.sweep("llama3-8b", [axis, "num_microbatches=4,8"])


@pytest.mark.parametrize(
    ("number", "reason"),
    [("[1e-60 GB/s, estimated, x]", "is out of range"), ("[1e60 GB/s, estimated, x]", "is out of range"), ("[7 GB/s, estimated, --set]", "sources")],
)
def test_a_number_of_a_system_is_bounded(number: str, reason: str, tmp_path: Path):
    from symsim.inputs.shipped import models_directory

    text = (models_directory() / "systems" / "h100-sxm.yaml").read_text()
    lines = [f"  memory_bandwidth: {number}" if line.startswith("  memory_bandwidth:") else line for line in text.splitlines()]
    (tmp_path / "s.yaml").write_text("\n".join(lines))
    with pytest.raises(InputError, match=reason):
        load_system(str(tmp_path / "s.yaml"))
