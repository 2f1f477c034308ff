"""Numbers from which no cost follows: read, kept, written where a trainer has an argument, and said where it has none."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import symsim
from symsim.exporters.export import Asked, export
from symsim.inputs.architecture import Architecture
from symsim.inputs.arithmetic import Arithmetic
from symsim.inputs.strategies import load_strategy
from tests.in_process import run

LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "initializer_range": 0.02,
}  # fmt: skip
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}
YARN = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}
MODELS = {name: symsim.load_model(name) for name in ("llama3-8b", "deepseek-v3", "gpt-oss-20b", "gpt3-175b", "gemma-2-9b", "mixtral-8x7b")}


def known(architecture: Architecture | None) -> dict[str, Any]:
    assert architecture is not None
    return architecture.arithmetic.model_dump(exclude_none=True) if architecture.arithmetic is not None else {}


def of_config(directory: Path, **keys: Any) -> Architecture:
    place = directory / "config.json"
    place.write_text(json.dumps({**LLAMA, **keys}))
    return symsim.load_model(str(place))


def there_and_back(architecture: Architecture, directory: Path) -> tuple[str, list[str], dict[str, Any]]:
    (path,), said = export("megatron", Asked(architecture, load_strategy("dp=2")), directory / "train.sh")
    return path.read_text(), said, known(symsim.load_job("megatron", str(path)).architecture)


@pytest.mark.parametrize(
    "keys, written",
    [
        ({}, "--norm-epsilon 1e-05,--init-method-std 0.02,--rotary-base 500000"),
        ({"rope_scaling": LLAMA3}, "--rotary-base 500000,--use-rope-scaling,--rope-scaling-factor 8.0"),
        (
            {"rope_scaling": None, "rope_theta": None, "rope_parameters": {**LLAMA3, "rope_theta": 10_000_000}},
            "--rotary-base 10000000,--use-rope-scaling",
        ),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "--rotary-base 500000,--rotary-seq-len-interpolation-factor 4"),
    ],
)
def test_what_a_config_says_is_written_and_comes_back(keys: dict[str, Any], written: str, tmp_path: Path) -> None:
    architecture = of_config(tmp_path, **keys)
    text, said, back = there_and_back(architecture, tmp_path)
    assert all(f"    {argument}\n" in text for argument in written.split(","))
    assert back == known(architecture) and not [one for one in said if "arithmetic" in one or "add by hand" in one]


def test_numbers_of_latent_attention_and_of_clamped_experts_come_back(tmp_path: Path) -> None:
    yarn = {"rotary_base": 10000, "rope_type": "yarn", "rope_scaling_factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1}
    latent = MODELS["deepseek-v3"].model_copy(update={"arithmetic": Arithmetic(**yarn, norm_epsilon=1e-6, moe_router_topk_scaling_factor=2.5)})
    text, said, back = there_and_back(latent, tmp_path)
    assert "    --rope-type yarn\n    --rotary-scaling-factor 40.0\n    --mscale 1.0\n    --mscale-all-dim 1.0\n" in text
    assert "    --moe-router-topk-scaling-factor 2.5\n" in text and not [one for one in said if "arithmetic" in one or "by hand" in one]
    assert known(latent).items() <= back.items()
    numbers = {"rotary_base": 150000, "rope_type": "yarn", "rope_scaling_factor": 32, "truncate": False, "norm_epsilon": 1e-5}
    clamped = MODELS["gpt-oss-20b"].model_copy(update={"arithmetic": Arithmetic(**numbers, activation_func_clamp_value=7, glu_linear_offset=1)})
    text, said, back = there_and_back(clamped, tmp_path)
    assert "    --no-yarn-correction-range-round-to-int\n" in text and "    --glu-linear-offset 1.0\n" in text
    assert back == known(clamped) and not [one for one in said if "by hand" in one]


@pytest.mark.parametrize(
    "keys, sentence",
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type=dynamic: what is written means default"),
        ({"rope_scaling": {**LLAMA3, "low_freq_factor": 2.0}}, "low_freq_factor=2.0: what is written means 1.0"),
        ({"rope_scaling": YARN}, "rope_type=yarn: what is written means default"),
        ({"rope_theta": 10000.5}, "rotary_base=10000.5: what is written means none"),
    ],
)
def test_what_no_argument_says_is_a_sentence(keys: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    _, said, _ = there_and_back(of_config(tmp_path, **keys), tmp_path)
    assert f"Megatron-LM cannot say arithmetic.{sentence}" in said


@pytest.mark.parametrize(
    "keys",
    [{"rope_theta": "x"}, {"rope_theta": -1}, {"rope_local_base_freq": 1e4}, {"rope_scaling": {"type": "another"}}, {"rope_theta": None}],
)
def test_what_is_not_one_known_table_is_to_be_added_by_hand(keys: dict[str, Any], tmp_path: Path) -> None:
    architecture = of_config(tmp_path, **keys)
    assert known(architecture) == {"norm_epsilon": 1e-5, "init_method_std": 0.02}
    _, said, _ = there_and_back(architecture, tmp_path)
    assert [one for one in said if "add by hand" in one and "--rotary-base (else 10000)" in one and "--norm-epsilon" not in one]


NUMBER = st.none() | st.floats(1e-9, 1e9)
SECTION = st.builds(
    Arithmetic,
    **dict.fromkeys(
        ("norm_epsilon", "init_method_std", "rope_scaling_factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "mscale",
         "mscale_all_dim", "moe_router_topk_scaling_factor", "activation_func_clamp_value", "glu_linear_offset"), NUMBER),
    rotary_base=NUMBER | st.integers(1, 10**9).map(float),
    rope_type=st.sampled_from([None, "default", "linear", "dynamic", "yarn", "longrope", "llama3"]),
    original_max_position_embeddings=st.none() | st.integers(1, 10**6),
    truncate=st.none() | st.booleans(),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(MODELS)), SECTION)
def test_each_number_comes_back_or_is_said(model: str, section: Arithmetic) -> None:
    architecture = MODELS[model].model_copy(update={"arithmetic": section})
    with tempfile.TemporaryDirectory() as directory:
        _, said, back = there_and_back(architecture, Path(directory))
        again = architecture.model_copy(update={"arithmetic": Arithmetic(**back)})
        assert there_and_back(again, Path(directory))[2] == back
    told = {one.split("arithmetic.")[1].split("=")[0] for one in said if "cannot say arithmetic." in one}
    other = {name for name, value in known(architecture).items() if back.get(name) != value}
    assert told <= other and (other <= told or "rope_type" in told or "rotary_base" in told)


def test_no_cost_follows_and_that_is_said(tmp_path: Path) -> None:
    architecture = of_config(tmp_path, rope_scaling=LLAMA3)
    plain = architecture.model_copy(update={"arithmetic": None})
    one, other = (symsim.derive(a, "tp=2,sp=true,dp=2", system="h100-sxm").to_json() for a in (architecture, plain))
    assert one == other
    ended = run("eval", str(tmp_path / "config.json"), "--set", "arithmetic.rotary_base=10000")
    assert "arithmetic.rotary_base has no effect" in ended.stderr
    ended = run("eval", str(tmp_path / "config.json"), "--set", "arithmetic.rotary_base=-1")
    assert ended.returncode == 2 and "arithmetic.rotary_base" in ended.stderr


def test_a_model_that_is_written_keeps_them(tmp_path: Path) -> None:
    architecture = of_config(tmp_path, rope_scaling=LLAMA3)
    ended = run("import", "hf", str(tmp_path / "config.json"), "-o", str(tmp_path / "kept"))
    assert ended.returncode == 0, ended.stderr
    assert known(symsim.load_model(str(tmp_path / "kept"))) == known(architecture) and len(known(architecture)) == 8


def test_numbers_of_a_flavor_that_are_not_the_models_are_said(tmp_path: Path) -> None:
    """torchtitan stretches the angles of every Llama 3 by 8, as Meta did from 3.1 on."""
    asked: list[tuple[str, list[str]]] = [
        ("llama3-8b", ["torchtitan cannot say arithmetic.rope_type=default: what is written means llama3"]),
        ("llama3.1-405b", []),
        ("qwen3-8b", []),
    ]
    for model, sentences in asked:
        _, said = export("torchtitan", Asked(symsim.load_model(model), load_strategy("dp=4,zero=3,fusion=eager")), tmp_path / "job.py")
        assert [one for one in said if "arithmetic" in one] == sentences
