"""What waits on the host: the shards of parameters, and their way over its link."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from symsim.api.result import derive
from symsim.errors import InputError
from symsim.importers.reading import load_job
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

MODEL, SYSTEM = load_model("llama3-8b").architecture, load_system("h100-sxm")
PARAMETERS, RANKS, MICROBATCHES = 8_030_261_248, 8, 3
SHARD = 2 * PARAMETERS // RANKS


def stage(assumptions: dict[str, str] | None = None, link: int = 64, **strategy: Any) -> dict[str, float]:
    given = {"dp": RANKS, "zero": 3, "num_microbatches": MICROBATCHES, **strategy}
    result = derive(MODEL, Strategy(**given), assumptions or {}, {"B_host": f"{link} GB/s"}, SYSTEM)
    values = {**result.values, **result.stage_numbers(result.stages[0])}
    return {name: float(value) for name, value in values.items()}


def test_shards_of_parameters_leave_the_ranks() -> None:
    plain, away = stage(), stage(offload_parameters=True)
    assert (plain["M_stage_weights"], away["M_stage_weights"], away["H_stage_host"]) == (SHARD, 0, SHARD)
    assert plain["M_at_optimizer"] - away["M_at_optimizer"] == SHARD
    small = stage(offload_parameters=True, param_persistence_threshold=4096)
    assert small["M_stage_weights"] == 2 * 64 * 4096 * (RANKS - 1) / RANKS


@pytest.mark.parametrize(
    ("given", "gathers"),
    [
        ({}, 2 * MICROBATCHES),
        ({"reshard_after_forward": False}, MICROBATCHES),
        ({"reshard_after_forward": False, "reshard_after_backward": False}, 1),
        ({"reshard_after_forward": 4}, MICROBATCHES),
    ],
)
def test_a_gather_brings_them_over_the_link(given: dict[str, Any], gathers: int) -> None:
    assert stage(offload_parameters=True, **given)["H_stage_link_parameters"] == gathers * SHARD


@pytest.mark.parametrize(("freed", "gathers"), [(False, 2), (True, 2 + 6)])
def test_what_is_kept_over_a_flush_comes_once_in_it(freed: bool, gathers: int) -> None:
    emptied = {"pp": 2, "num_microbatches": 6, "pipeline_flushes": 2, "gradient_sync": "every_flush"}
    found = stage(offload_parameters=True, reshard_after_backward=False, reshard_after_forward=freed, **emptied)
    assert found["H_stage_link_parameters"] == gathers * found["H_stage_host"] > 0


def test_what_of_it_hides() -> None:
    long = {"seq_length": 8192}
    states = {"use_precision_aware_optimizer": True, "optimizer_cpu_offload": True, "store_param_remainders": False}
    link = 2 * MICROBATCHES * SHARD / stage(**long)["B_host"]
    back = SHARD / stage(**long)["B_host"]
    assert stage(offload_parameters=True, **long)["e_offload_stage"] == pytest.approx(back)
    slow = stage(offload_parameters=True, link=1, **long)
    assert slow["e_offload_stage"] == pytest.approx(64 * (back + link) - MICROBATCHES * slow["t_stage"])
    waits = stage({"fsdp_prefetch": "false"}, offload_parameters=True, **long)
    assert waits["e_offload_stage"] == pytest.approx(back + link)
    # updated on the host, they stay there: gradients alone leave, in 4 bytes
    both = stage(offload_parameters=True, **states, **long)
    assert both["H_stage_link_optimizer"] == 2 * SHARD and stage(**states, **long)["H_stage_link_optimizer"] == 4 * SHARD


def test_whole_parameters_do_not() -> None:
    with pytest.raises(InputError, match="needs zero=3"):
        derive(MODEL, Strategy(dp=RANKS, offload_parameters=True))


@pytest.mark.parametrize("stage_of_zero", [2, 3])
def test_deepspeed_reads_it_at_stage_3(tmp_path: Path, stage_of_zero: int) -> None:
    file = tmp_path / "ds.json"
    zero = {"stage": stage_of_zero, "offload_param": {"device": "cpu"}}
    file.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}))
    made = load_job("deepspeed", str(file), model="llama3-8b")
    assert dict(made.strategy or {}).get("offload_parameters") == (True if stage_of_zero == 3 else None)
    (row,) = (row for row in made.rows if row.key == "zero_optimization.offload_param.device")
    assert row.fate == ("mapped" if stage_of_zero == 3 else "no_cost_effect")


@pytest.mark.parametrize(("pp", "alive"), [(1, 1), (2, 2)])
def test_saved_tensors_of_named_operations_wait_there(pp: int, alive: int) -> None:
    """Of the feed-forward network its input, gate and up, and what the down-projection reads: of every layer but those at work."""
    around = {"zero": 1, "dp": 2, "tp": 2, "sp": True, "pp": pp, "seq_length": 512}
    plain, away = stage(**around), stage(offload_operations=("mlp",), **around)
    each, held = 2 * 512 * (3 * 14336 + 4096) // 2, 32 // pp
    assert away["A_host_dense"] == each
    assert plain["M_stage_activations"] - away["M_stage_activations"] == alive * held * each == away["H_stage_host"]
    assert away["H_stage_link_activations"] == 2 * MICROBATCHES * held * each
    for moment in ("M_at_forward_dense", "M_at_backward_dense"):
        assert plain[moment] - away[moment] == (alive * held - 2) * each
    assert away["A_dense"] == plain["A_dense"]


@pytest.mark.parametrize("options", ["offload_operations=attention.core", "recompute=selective,recompute_operations=attention.core"])
def test_operations_are_named_in_layers_whose_kinds_are_two_words(options: str) -> None:
    model = load_model("beam-501b-a23b").architecture
    assert any("_" in kind for kind in model.layer_kinds)
    plain, named = derive(model, Strategy()), derive(model, load_strategy(options))
    assert plain.stage_numbers(plain.stages[0])["M_stage_activations"] != named.stage_numbers(named.stages[0])["M_stage_activations"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"offload_operations": ("mpl",)}, "did you mean 'mlp'"),
        ({"offload_operations": ("mlp",), "recompute": "full"}, "does not work with recompute=full"),
        ({"offload_operations": ("mlp",), "cpu_offloading_num_layers": 2}, "takes whole layers"),
    ],
)
def test_saved_tensors_that_cannot_wait(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        derive(MODEL, Strategy(**given))


def test_importers_name_them(tmp_path: Path) -> None:
    words = "--micro-batch-size 1 --fine-grained-activation-offloading --offload-modules core_attn attn_proj".split()
    assert dict(load_job("megatron", *words, model="llama3-8b").strategy or {})["offload_operations"] == ["attention.core", "attention.o_proj"]
    settings = {"seq_len": 512, "world_size": 8, "micro_batch_size": 1, "micro_batch_num": 1, "offload_groupgemm_col_inputs": True}
    (tmp_path / "strategy.json").write_text(json.dumps(settings))
    for model, expected in (("mixtral-8x7b", ["moe.experts.fc1"]), ("llama3-8b", None)):
        assert dict(load_job("simumax", str(tmp_path / "strategy.json"), model=model).strategy or {}).get("offload_operations") == expected


# on a drive ------------------------------------------------------------------------------------------------------------------

AWARE: dict[str, Any] = {"zero": 1, "use_precision_aware_optimizer": True, "store_param_remainders": False, "optimizer_cpu_offload": True}


def on_a_drive(overrides: dict[str, Any], **more: Any) -> dict[str, float]:
    result = derive(MODEL, Strategy(dp=RANKS, **AWARE, **more), {}, overrides, SYSTEM)
    return {n: float(v) for n, v in {**result.values, **result.step_numbers, **result.stage_numbers(result.stages[0])}.items()}


def test_states_on_a_drive_are_read_and_written_in_every_step() -> None:
    link = {"B_host": "64 GB/s"}
    memory, drive = on_a_drive(link), on_a_drive({**link, "B_drive": "6 GB/s"}, optimizer_offload_device="nvme")
    states = 12 * PARAMETERS / RANKS
    assert drive["H_stage_link_drive"] == 2 * states
    assert memory["H_stage_host"] - drive["H_stage_host"] == states and drive["H_stage_host"] == 4 * PARAMETERS / RANKS
    assert drive["H_stage_link_step"] == memory["H_stage_link_step"] and drive["M_stage_peak"] == memory["M_stage_peak"]
    assert drive["t_step"] - memory["t_step"] == pytest.approx(2 * states / 6e9)
    half = on_a_drive({**link, "B_drive": "6 GB/s"}, optimizer_offload_device="nvme", optimizer_offload_fraction=0.5)
    assert half["H_stage_link_drive"] == states
    with pytest.raises(InputError, match=r"gives no bandwidth of a drive, host.drive, .*--set host.drive='6 GB/s'"):
        on_a_drive(link, optimizer_offload_device="nvme")


def test_a_drive_of_deepspeed(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        json.dumps(
            {
                "bf16": {"enabled": True},
                "train_micro_batch_size_per_gpu": 1,
                "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}},
            }
        )
    )
    job = load_job("deepspeed", str(tmp_path / "ds.json"), model="llama3-8b")
    row = next(row for row in job.rows if row.key.endswith("offload_optimizer.device"))
    assert row.fate == "mapped" and job.strategy is not None and job.strategy["optimizer_offload_device"] == "nvme"


def test_weights_that_megatron_offloads_stay_where_they_are(tmp_path: Path) -> None:
    fields = {"num_layers": 8, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 64, "vocab_size": 256}
    offload = {"cpu_offloading": True, "cpu_offloading_num_layers": 4, "cpu_offloading_weights": True, "cpu_offloading_double_buffering": True}
    (tmp_path / "c.json").write_text(json.dumps(fields | offload))
    job = load_job("megatron", str(tmp_path / "c.json"))
    told = {row.key: row.fate for row in job.rows}
    assert told["cpu_offloading_weights"] == told["cpu_offloading_double_buffering"] == "no_cost_effect"
    assert job.strategy is not None and job.strategy["cpu_offloading_num_layers"] == 4
