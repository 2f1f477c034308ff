"""Arguments of the Hugging Face Trainer: every name is known, and those that act on a step become options."""

from __future__ import annotations

from typing import Any

import pytest
from import_names import of_vocabulary

from symsim.errors import InputError
from symsim.importers.keys import Keys
from symsim.importers.sections import of_sections
from symsim.importers.trainer import TRAINER, read_trainer, replicas
from symsim.inputs.reading import Document
from symsim.inputs.strategies import load_strategy

# of both versions; the rest of the 132 is asserted against ../shared/vocabulary.yaml
NAMES = """output_dir per_device_train_batch_size gradient_accumulation_steps bf16 fp16 tf32 optim optim_args max_grad_norm gradient_checkpointing
fsdp fsdp_config deepspeed use_liger_kernel torch_compile group_by_length save_steps eval_strategy dataloader_num_workers tp_size parallelism_config
activation_checkpointing liger_kernel_config train_sampling_strategy use_cache trackio_space_id hub_revision ddp_static_graph""".split()


def read(data: dict[str, Any], lenient: bool = False) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """Strategy, assumptions, and the ledger's rows by key."""
    keys = Keys("the Trainer's arguments", of_sections(Document(data, "args.yaml")), TRAINER, lenient)
    strategy: dict[str, Any] = {"dp": 8}
    assumptions: dict[str, str] = {}
    read_trainer(keys, strategy, assumptions)
    replicas(keys, strategy, assumptions)
    rows = {row.key: row for row in keys.finish()}
    load_strategy(strategy)
    return strategy, assumptions, rows


def test_every_name_of_the_list_has_a_row() -> None:
    for key in NAMES:
        assert read({key: None})[2][key].fate


def test_every_name_of_the_vocabulary_has_a_row() -> None:
    names = of_vocabulary("hf_trainer")
    assert len(names) == 132
    rows = read(dict.fromkeys(names))[2]
    assert {rows[name].fate for name in names} <= {"mapped", "derived", "no_cost_effect", "not_modelled"}


def test_defaults_are_the_trainers() -> None:
    strategy, assumptions, rows = read({})
    assert strategy["micro_batch_size"] == 8 and strategy["num_microbatches"] == 1 and strategy["precision"] == "fp32"
    assert strategy["zero"] == 0 and strategy["overlap_grad_reduce"] and strategy["fusion"] == "eager"
    # transformers training_args.py takes fused AdamW where PyTorch is 2.8 or later
    assert assumptions == {} and "adamw_torch with PyTorch before 2.8" in rows["optim"].why
    assert read({"optim": "adamw_torch"})[1] == {"optimizer_implementation": "foreach"}
    assert rows["bf16"].fate == rows["per_device_train_batch_size"].fate == "derived"


def test_checkpoints_and_how_far_they_run_again() -> None:
    strategy, assumptions, rows = read({"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}})
    assert strategy["recompute"] == "full" and assumptions["recompute_early_stop"] == "false"
    assert rows["gradient_checkpointing_kwargs.use_reentrant"].fate == "mapped"
    assert "recompute" not in read({"gradient_checkpointing": False})[0]


def test_fully_sharded() -> None:
    strategy, assumptions, _ = read({"bf16": True, "fsdp": "full_shard auto_wrap", "gradient_accumulation_steps": 4})
    assert strategy["zero"] == 3 and strategy["gradient_sync"] == "last_microbatch" and strategy["grad_reduce_in_fp32"] is False
    assert "reshard_after_forward" not in strategy and assumptions["fsdp_parameters"] == "main"
    kept = read({"bf16": True, "fsdp": ["shard_grad_op", "auto_wrap"], "fsdp_config": {"fsdp_backward_prefetch": "BACKWARD_PRE"}})
    assert kept[0]["reshard_after_forward"] is False and kept[2]["fsdp_config.fsdp_backward_prefetch"].fate == "no_cost_effect"
    assert read({"fsdp": True, "fsdp_config": {"version": 2, "reshard_after_forward": False}})[0]["reshard_after_forward"] is False
    offloaded = read({"bf16": True, "fsdp": "full_shard offload"})[0]
    assert offloaded["optimizer_cpu_offload"] and offloaded["use_precision_aware_optimizer"] and offloaded["offload_gradients"]
    assert read({"use_liger_kernel": True})[0]["cross_entropy_fusion"] == "liger"


def test_a_bound_of_the_norm_below_0_is_none() -> None:
    assert [read({"max_grad_norm": bound})[0]["clip_grad"] for bound in (-1, 0, 0.5)] == [0, 0, 0.5]


def test_optimizers() -> None:
    strategy, _, rows = read({"optim": "adamw_bnb_8bit"})
    assert strategy["optimizer_bits"] == 8 and strategy["fp32_embedding_moments"] and rows["optim"].fate == "mapped"
    assert read({"optim": "galore_adamw_layerwise"})[2]["optim"].fate == "not_modelled"
    assert read({"adafactor": True})[0]["optimizer"] == "adafactor"
    found = {"lion_8bit": ("lion", 8), "adamw_torch_4bit": ("adam", 4), "apollo_adamw": ("apollo", 32), "galore_adamw_8bit": ("galore", 8)}
    for name, expected in found.items():
        strategy, _, rows = read({"optim": name})
        assert (strategy["optimizer"], strategy.get("optimizer_bits", 32), rows["optim"].fate) == (*expected, "mapped"), name
    with pytest.raises(InputError, match=r"args.yaml: optim is adamw_tourch; .*did you mean 'adamw_torch'"):
        read({"optim": "adamw_tourch"})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"per_device_train_batch": 4}, "has no key 'per_device_train_batch': did you mean"),
        ({"per_device_train_batch_size": 0}, "it should be a whole number from 1 up"),
        ({"bf16": True, "fp16": True}, "left out beside bf16"),
        ({"fsdp": "full_shad"}, "did you mean 'full_shard'"),
        ({"auto_find_batch_size": True}, "give false, and the size that it found"),
    ],
)
def test_what_cannot_be(data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(data)


def test_lenient_keeps_going() -> None:
    rows = read({"auto_find_batch_size": True, "no_such_thing": 1}, lenient=True)[2]
    assert rows["auto_find_batch_size"].fate == rows["no_such_thing"].fate == "refused"
