"""Merak's arguments as a job: what each becomes, how layers become stages, and the schedules that Merak's own generators were run for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from schedule_cases import equal_stages, merak_cases, merak_durations, sizes
from shared import SHARED

import symsim
from symsim.errors import InputError
from symsim.importers.merak import shards
from symsim.importers.merak.python_text import read_script
from symsim.importers.merak.reader import READ
from symsim.importers.merak.table import MERAK
from symsim.inputs.models import load_model
from symsim.inputs.strategies import load_strategy
from symsim.pipeline.orders import order, replay
from symsim.pipeline.schedules import SCHEDULES

IMPORTED = Path(__file__).parent / "imported" / "merak"
# MerakArguments, Merak.init, MerakTrainer and set_tp_layer_lists of the API document, and what the code of 1593043 has besides
DOCUMENTED = """
    dp tp pp sp train_schedule partition_method split_method custom_split_points trace_method trace_model init_method_std
    activation_checkpointing checkpoint_num_layers input_names num_layers seq_length hidden_size num_heads wall_clock_breakdown shard_count
    prescale_gradients gradient_predivide_factor cache_sharding cache_name return_logits zero_allow_untested_optimizer zero_stage
    zero_allgather_bucket_size zero_reduce_bucket_size save finetune no_save_rng no_save_optim no_load_rng no_load_optim split_inputs
    parallel_vocab sequence_parallel sequence_dim dealloc_pipeoutput activation_checkpoint_ratio tp_overlapping_level half_precision_backend
    loss_scale initial_scale_power loss_scale_window hysteresis min_loss_scale custom_partition no_tie_modules save_total_limit eval_iters
    text_generation out_seq_length temperature lora_config adapter_name leaf_modules loss_fn col_para_list row_para_list
    input_output_mapping weight_change_list tp_attr_list conv_para_list""".split()


def job(arguments: str = "", init: str = "pp=1, tp=1, dp=1", model: str | None = "gpt2-xl", **options: Any) -> symsim.Job:
    return symsim.load_job("merak", f"Merak.init({init}); MerakArguments({arguments})", model=model, **options)


def strategy(arguments: str = "", init: str = "pp=1, tp=1, dp=1", model: str | None = "gpt2-xl", **options: Any) -> Mapping[str, Any]:
    made = job(arguments, init, model, **options).strategy
    assert made is not None
    return made


def row(made: symsim.Job, key: str) -> Any:
    return next(one for one in made.rows if one.key == key)


def refused(*inputs: str, **options: Any) -> str:
    with pytest.raises(InputError) as raised:
        symsim.load_job("merak", *inputs, **options)
    return str(raised.value)


# Every argument has a row


def test_every_documented_argument_is_known() -> None:
    assert [name for name in DOCUMENTED if name not in MERAK and name not in READ] == []


def test_every_argument_of_the_vocabulary_is_known() -> None:
    path = SHARED / "vocabulary.yaml"
    if not path.exists():
        pytest.skip("../shared/vocabulary.yaml is not on this machine")
    data = YAML(typ="safe").load(path.read_text())
    aliases = [one for entry in data["canonical"].values() for one in entry["aliases"].get("merak", [])]
    names = {one["key"] for one in aliases} | set(data["no_cost_effect"]["merak"]["keys"])
    assert len(names) >= 63 and sorted(name for name in names if name not in MERAK and name not in READ) == []


@pytest.mark.parametrize("name", sorted({*DOCUMENTED} - {"lora_config"}))
def test_every_documented_argument_alone_has_a_row(name: str) -> None:
    values = {
        "train_schedule": '"ds_default"', "partition_method": '"uniform"', "split_method": '"layer_split"', "custom_split_points": '["a.1"]',
        "col_para_list": '["c_attn", "c_fc"]', "row_para_list": '["c_proj"]', "input_output_mapping": '[(1, 3, "col"), (1, 1, "row")]',
        "weight_change_list": '[("bias", 1)]', "tp_attr_list": '["num_heads"]', "custom_partition": "[0, 2]", "half_precision_backend": '"apex"',
        "activation_checkpoint_ratio": "[0.5]",
    }  # fmt: skip
    init = "pp=1, tp=1, dp=1" if name not in ("pp", "tp", "dp", "sp") else f"{name}=1"
    text = "" if name in ("pp", "tp", "dp", "sp") else f"{name}={values.get(name, '1')}"
    made = symsim.load_job("merak", f"Merak.init({init}); MerakArguments({text})", model="gpt2-xl", version="head")
    found = row(made, name)
    assert found.value != "(default)" and (found.to or found.why), found


# The schedules


def _id(case: Any) -> str:
    return "absent" if case is None else f"{case['schedule']}-p{case['p']}-m{case['m']}-f{case['f']}-b{case['b']}-r{case['r']}-c{case['p2p']}"


def _imported(case: Mapping[str, Any]) -> Any:
    """The case's schedule, stages and micro-batches as arguments of Merak, and the strategy that they become."""
    said = f'train_schedule="{case["schedule"]}", gradient_accumulation_steps={case["m"]}, bf16=True, activation_checkpoint_ratio=[1.0]'
    return load_strategy(strategy(said, f"{case['p']}, 1, 1", None))


@pytest.mark.parametrize("case", merak_cases("schedule_golden"), ids=_id)
def test_makespans_of_equal_stages(case: Any) -> None:
    if case is None:
        pytest.skip("../shared/measured/merak.yaml is not on this machine")
    placed = _imported(case)
    size = sizes(placed.pp, placed.microbatches)
    f, b, r, c = (Fraction(str(case[k])) for k in ("f", "b", "r", "p2p"))
    values = size | equal_stages(placed.pp, 1, f, b / 2, b / 2, r, c)
    assert float(SCHEDULES[placed.schedule].makespan.evaluate(values)) == pytest.approx(case["makespan"], abs=1e-9)


@pytest.mark.parametrize("case", merak_cases("schedule_golden") + merak_cases("schedule_golden_uneven"), ids=_id)
def test_makespans_of_replayed_orders(case: Any) -> None:
    if case is None:
        pytest.skip("../shared/measured/merak.yaml is not on this machine")
    placed, stages = _imported(case), merak_durations(case)
    entries = order(placed.schedule, placed.pp, placed.microbatches)
    assert max(t.end for t in replay(entries, lambda o: stages[o.stage][o.kind.lower()], exchange=case["p2p"])) == pytest.approx(
        case["makespan"], abs=1e-9
    )


def test_two_names_of_one_schedule() -> None:
    said = "gradient_accumulation_steps=8, activation_checkpoint_ratio=[0.5]"
    for name in ("shifted_critical_path", "full_critical_path_1f1b"):
        assert strategy(f'train_schedule="{name}", {said}', "pp=4, tp=1, dp=1", None)["schedule"] == "shifted_critical_path"
    asked = 'Merak.init(4, 1, 1); MerakArguments(train_schedule="shifted_critical_path", gradient_accumulation_steps=8)'
    assert "activation_checkpoint_ratio" in refused(asked)
    assert "schedule" not in strategy('train_schedule="ds_default"')


# Shards and stages


@pytest.mark.parametrize(
    ("items", "parts", "ceil", "held"),
    [
        (26, 4, True, [7, 8, 8, 3]), (26, 4, False, [6, 7, 7, 6]), (10, 4, True, [3, 4, 4, -1]), (10, 4, False, [2, 3, 3, 2]),
        (52, 8, True, [7, 8, 8, 8, 8, 7, 7, -1]), (52, 8, False, [6, 7, 7, 7, 7, 6, 6, 6]), (3, 4, True, [1, 1, 1, 0]),
    ],
)  # fmt: skip
def test_uniform_boundaries(items: int, parts: int, ceil: bool, held: list[int]) -> None:
    """As Merak's partition_uniform was run."""
    ends = shards.uniform(items, parts, ceil=ceil)
    assert [last - first for first, last in zip(ends, ends[1:])] == held


def test_balanced_boundaries() -> None:
    """As Merak's partition_balanced was run for 24 layers of two halves, h = 2048."""
    h, vocabulary = 2048, 50304
    weights = [vocabulary * h + 1024 * h, *[4 * h * h, 8 * h * h] * 24, vocabulary * h]
    assert shards.balanced(weights, 4) == [0, 11, 25, 39, 50]
    for parts in (2, 3, 5, 8):
        ends = shards.balanced(weights, parts)
        heaviest = max(sum(weights[a:b]) for a, b in zip(ends, ends[1:]))
        assert not any(
            max(sum(weights[a:b]) for a, b in zip([0, *cut, 50], [*cut, 50])) < heaviest for cut in ([e + d for e in ends[1:-1]] for d in (-1, 1))
        )


def _gpt(layers: int, h: int, vocabulary: int) -> tuple[Any, shards.Sizes]:
    data = load_model("gpt2-xl").architecture.model_dump()
    model = symsim.Architecture.model_validate({**data, "layers": layers, "tie_word_embeddings": False})
    return model, shards.Sizes(vocabulary * h, 64 * h, ((4 * h * h, 8 * h * h),) * layers, vocabulary * h)


@pytest.mark.parametrize(
    ("count", "found"),
    [
        (20, ["E", "p", *["t"] * 8, "L"]), (16, ["E", "p", *["t"] * 8, "L"]), (5, ["E", "p", *["tt"] * 4, "L"]),
        (3, ["E", "p", "ttt", "ttt", "ttL"]), (30, ["E", "p", *["a", "f"] * 8, "L"]), (60, ["E", "p", *["a", "f"] * 8, "L"]),
    ],
)  # fmt: skip
def test_shards_by_parameters(count: int, found: list[str]) -> None:
    """What Merak's farthest_deps_mapping made of a traced GPT of 8 layers (h = 32, 100 words) for so many shards."""
    model, counted = _gpt(8, 32, 100)
    assert shards.by_parameters(model, counted, count) == found


def test_layer_split_and_its_stages() -> None:
    said = 'gradient_accumulation_steps=8, split_method="layer_split"'
    # 48 layers, one shard before and one behind: 50 of them, 12 13 13 12
    assert strategy(said, "4, 1, 1")["pipeline_model_parallel_layout"] == "Et*11|t*13|t*13|t*11L"
    # 32 layers and one shard before, the head with the last: 33 of them, 8 9 8 8
    assert strategy(said, "4, 1, 1", "llama3-8b")["pipeline_model_parallel_layout"] == "Et*7|t*9|t*8|t*8L"
    assert strategy(said + ', partition_method="uniform"', "5, 1, 1")["pipeline_model_parallel_layout"] == "Et*9|t*10|t*10|t*10|t*9L"
    said += ', partition_method="custom", custom_partition=["0,10,25,38,50"]'
    assert strategy(said, "4, 1, 1")["pipeline_model_parallel_layout"] == "Et*9|t*15|t*13|t*11L"


def test_stages_that_end_inside_a_layer() -> None:
    """gpt2-xl in 99 shards (two of tables, 96 halves of layers, the head) on four stages: 24 25 25 25 of them."""
    said = 'gradient_accumulation_steps=8, split_method="farthest_min_deps", shard_count=200'
    made = job(said, "4, 1, 1")
    assert made.architecture is not None and made.architecture.num_layers == 96
    assert (made.strategy or {})["pipeline_model_parallel_layout"] == "Et*22|t*25|t*25|t*24L"
    assert row(made, "shard_count").to == "layer_kinds, pipeline_model_parallel_layout"
    symsim.derive(made.architecture, made.placed(), made.assumptions, system="a100-sxm-80")
    assert job(said.replace("200", "100"), "4, 1, 1").architecture == load_model("gpt2-xl").architecture


def test_halves_of_layers_cut_by_their_parameters() -> None:
    made = job('gradient_accumulation_steps=8, split_method="farthest_min_deps", shard_count=200, partition_method="parameters"', "4, 1, 1")
    assert made.architecture is not None and made.architecture.num_layers == 96
    found = [part.strip("EL") for part in (made.strategy or {})["pipeline_model_parallel_layout"].split("|")]
    assert sum(int(part.removeprefix("t*")) for part in found) == 96 and len(found) == 4


def test_points_of_the_user() -> None:
    said = f'gradient_accumulation_steps=8, split_method="layer_split", custom_split_points={[f"transformer.h.{i}" for i in range(0, 48, 4)]}'
    assert strategy(said, "4, 1, 1")["pipeline_model_parallel_layout"] == "Et*8|t*16|t*12|t*12L"


def test_a_stage_without_shards_is_no_partition() -> None:
    # 50 shards on 12 stages: 5 a stage, of which ten are all
    said = 'gradient_accumulation_steps=8, split_method="layer_split", partition_method="uniform"'
    assert row(job(said, "4, 1, 1"), "partition_method").fate == "mapped"
    made = job(said, "12, 1, 1")
    assert row(made, "partition_method").fate == "derived" and "taken as uniform_floor" in row(made, "partition_method").why
    assert "leaves a stage of 12 without" in refused(f"Merak.init(12, 1, 1); MerakArguments({said})", model="gpt2-xl", faithful=True)


def test_shards_of_single_operations_are_said_to_be_approximate() -> None:
    made = job("gradient_accumulation_steps=8", "4, 1, 1")
    assert "pipeline_model_parallel_layout" not in (made.strategy or {}) and "6% of its 12 layers" in row(made, "split_method").why
    # scores of 25 heads over 1,024 keys, values and the stream, where the stream is 1,600 wide
    assert "sends up to 18 times the stream" in row(made, "split_method").why
    assert row(job('split_method="nearest_min_deps", gradient_accumulation_steps=8', "4, 1, 1"), "split_method").fate == "not_modelled"


# Recomputation


@pytest.mark.parametrize(("stages", "layers"), [(1, 1), (2, 3), (4, 3), (8, 3), (12, 4)])
def test_checkpoints_of_single_operations_span_layers(stages: int, layers: int) -> None:
    """partition_balanced makes n // pp parts of all n shards, none smaller than the largest (GPT-2 XL's tables: 82 M parameters, a layer 30.7 M),
    and a stage reads their ends as numbers of its own shards."""
    made = job(f"gradient_accumulation_steps={2 * stages}", f"{stages}, 1, 1")
    assert (made.strategy or {}).get("recompute_num_layers", 1) == layers
    assert layers == 1 or f"of {layers} layers" in row(made, "checkpoint_num_layers").why


LAYERS = 'gradient_accumulation_steps=8, split_method="layer_split"'


def test_checkpoints_of_shards() -> None:
    """The chunk with the embedding, and the last of the last stage, keep what they need."""
    made = strategy(LAYERS, "4, 1, 1", "llama3-8b")
    assert made["recompute"] == "full" and made["recompute_layers_per_stage"] == [7, 9, 8, 7]
    made = strategy(LAYERS + ", checkpoint_num_layers=3", "4, 1, 1", "llama3-8b")
    # stage 0 is (E t t)(t t t)(t t), the last (t t t)(t t t)(t tL)
    assert (made["recompute_num_layers"], made["recompute_layers_per_stage"]) == (3, [5, 9, 8, 6])
    assert "recompute" not in strategy(LAYERS + ", activation_checkpointing=False", "4, 1, 1")
    assert "recompute" not in strategy(LAYERS + ", checkpoint_num_layers=0", "4, 1, 1")
    assert "recompute_layers_per_stage" not in strategy(LAYERS, "4, 1, 1")


def test_a_ratio_of_the_first_stage() -> None:
    """0.8 of the first of four stages is 0.7 of the second, 0.4 of the third and nothing of the last."""
    assert shards.stage_ratios([0.8], 4) == pytest.approx([0.8, 0.7, 0.4, 0])
    assert shards.stage_ratios([0.5, 0.25], 4) == [0.5, 0.25, 0.25, 0.25]
    made = strategy(LAYERS + ", activation_checkpoint_ratio=[0.8]", "4, 1, 1", "llama3-8b")
    # of 8, 9, 8 and 8 shards: 6, 6, 3, 0, in one checkpoint each
    assert (made["recompute_layers_per_stage"], made["recompute_num_layers"]) == ([6, 6, 3, 0], 6)
    shifted = f'{LAYERS}, activation_checkpoint_ratio=[0.8], train_schedule="shifted_critical_path"'
    assert strategy(shifted, "4, 1, 1", "llama3-8b")["recompute_layers_per_stage"] == [6, 6, 5, 0]
    last = f'{LAYERS}, train_schedule="last_no_recompute_1f1b"'
    assert strategy(last, "4, 1, 1", "llama3-8b")["recompute_layers_per_stage"] == [7, 9, 8, 0]


def test_the_double_forward_of_a_ratio_is_a_defect_that_is_off() -> None:
    said = LAYERS + ", activation_checkpoint_ratio=[0.8]"
    assert "double forward" not in {one.key for one in job(said, "4, 1, 1").rows}
    assert row(job(said, "4, 1, 1", faithful=True), "double forward").fate == "not_modelled"


# Tensor, sequence and data parallelism

WHOLE = ["embedding.V=none", "lm_head.V=none", "loss.V=none"]


def test_the_vocabulary_is_whole_by_default() -> None:
    assert strategy("", "1, 2, 1", "llama3-8b")["placement"] == WHOLE
    assert "placement" not in strategy("parallel_vocab=True", "1, 2, 1", "llama3-8b")
    assert "placement" not in strategy("", "2, 1, 1", "llama3-8b")
    made = job("", "1, 2, 1", "llama3-8b")
    assert made.assumptions["shared_redistribution"] == "false"


def test_reductions_of_a_block() -> None:
    """Two forward; backward one for each of five column-parallel linear maps (Merak mpu/layers.py), and two that run again."""
    for run_again, expected in ((False, 5), (True, 7)):
        made = job(f"bf16=True, parallel_vocab=True, activation_checkpointing={run_again}", "1, 2, 1", "llama3-8b")
        found = symsim.derive(made.architecture, made.placed(), made.assumptions).to_json()["messages"]
        counts = {p: sum(m["count"] for m in found if m["phase"] == p and m["op"] == "all_reduce") for p in ("forward", "backward")}
        assert counts["forward"] // 32 == 2 and counts["backward"] // 32 == expected


def test_overlapping_levels() -> None:
    even = "per_device_train_batch_size=4, tp_overlapping_level="
    levels = {level: strategy(f"{even}{level}", "1, 5, 1").get("tp_comm_halves") for level in range(4)}
    assert levels == {0: None, 1: "linear", 2: "layer", 3: "model"}
    assert strategy(f"{even}3", "1, 2, 1", "llama3-8b")["tp_comm_halves"] == "linear"
    made = job("per_device_train_batch_size=3, tp_overlapping_level=1", "1, 2, 1", "llama3-8b")
    assert "tp_comm_halves" not in (made.strategy or {}) and row(made, "tp_overlapping_level").fate == "not_modelled"
    assert row(job(f"{even}1", "1, 1, 1"), "tp_overlapping_level").fate == "no_cost_effect"


def test_sequence_parallelism_meant_two_things() -> None:
    seed = strategy("sequence_parallel=True", "1, 2, 1", "llama3-8b")
    assert seed["sp"] is True and "cp" not in seed and seed["placement"] == [*WHOLE, "lm_head.s=cp", "loss.s=cp"]
    assert strategy("sequence_parallel=True", "1, 2, 1", "llama3-8b", version="head").get("sp") is None
    head = strategy("sequence_parallel=True", "1, 2, 1, 4", "llama3-8b")
    assert (head["cp"], head["cp_comm_type"]) == (4, "a2a") and "sp" not in head
    assert "since 2025-06" not in row(job("sequence_parallel=True", "1, 2, 1", "llama3-8b"), "sequence_parallel").why
    assert "--version head" in refused("Merak.init(1, 2, 1, 4)", version="seed")
    assert strategy("sequence_parallel=True", "1, 1, 1", "llama3-8b").get("sp") is None


def test_lists_of_linear_maps() -> None:
    column, every = '["q_proj", "k_proj", "v_proj"]', '["self_attn", "gate_proj", "up_proj"]'

    def placed(text: str) -> Any:
        text = f"Merak.init(1, 2, 1); MerakArguments(parallel_vocab=True); set_tp_layer_lists({text})"
        return (symsim.load_job("merak", text, model="llama3-8b").strategy or {}).get("placement")

    assert placed(f'col_para_list={column}, row_para_list=["o_proj"]') == ["mlp.f=none"]
    assert placed('col_para_list=["gate_proj", "up_proj"], row_para_list=["down_proj"]') == ["attention.a=none", "attention.g=none"]
    assert placed(f'col_para_list={every}, row_para_list=["o_proj", "down_proj"]') is None
    assert placed('input_output_mapping=[(1, 1, "col"), (1, 1, "row"), (1, 3.5, "col"), (3.5, 1, "row")]') is None
    assert placed('input_output_mapping=[(1, 1, "col"), (1, 1, "row")]') == ["mlp.f=none"]
    assert placed('weight_change_list=[("q_proj", 0), ("k_proj", 0), ("v_proj", 0), ("o_proj", 1)]') == ["mlp.f=none"]
    with pytest.raises(InputError, match="attention is split on one side only"):
        placed(f"col_para_list={column}")


@pytest.mark.parametrize(("name", "fate"), [("relative_attention_bias", "no_cost_effect"), ("wte", "not_modelled"), ("c_attn", "mapped")])
def test_other_weights_that_are_divided(name: str, fate: str) -> None:
    text = f'Merak.init(1, 2, 1); set_tp_layer_lists(row_para_list=["c_proj"], col_para_list=["c_fc", "c_attn"], weight_change_list=[("{name}", 0)])'
    assert row(symsim.load_job("merak", text, model="gpt2"), "weight_change_list").fate == fate


def test_states_and_gradients() -> None:
    """Bytes of weights, gradients and states a parameter: fp32 16, fp16 16, bf16 8 without an fp32 copy, with ZeRO 4 + 12 / dp."""
    for said, dp, each in (("", 1, 16), ("fp16=True", 1, 16), ("bf16=True", 1, 8), ("bf16=True, zero_stage=1", 4, 4 + 12 / 4)):
        made = job(f"{said}{', ' if said else ''}gradient_accumulation_steps=2", f"1, 1, {dp}", "gpt2-xl")
        result = symsim.derive(made.architecture, made.placed(), made.assumptions)
        own = result.stage_numbers(result.stages[0])
        held = own["M_stage_weights"] + own["M_stage_gradients"] + own["M_stage_optimizer"]
        assert float(held) / float(own["P_stage"]) == pytest.approx(each, rel=1e-3), said
    assert "with a permission alone; give zero_allow_untested_optimizer=True" in refused("MerakArguments(fp16=True, zero_stage=1)")
    assert "1, or left out" in refused("Merak.init(1, 1, 2); MerakArguments(zero_stage=2)")


def test_gradients_that_no_rank_sums_are_a_defect_that_is_off() -> None:
    made, faithful = (job("bf16=True", "1, 1, 8", faithful=on) for on in (False, True))
    assert any("replicas drift apart" in note for note in made.notes) and "bf16 gradients" not in {one.key for one in made.rows}
    assert row(faithful, "bf16 gradients").value == "(defect)"
    assert not any("drift" in note for note in job("bf16=True, zero_stage=1", "1, 1, 8").notes)


def test_what_gradients_are_divided_over() -> None:
    """Without prescale_gradients the share of ZeRO-1 is divided, after the reduction."""
    said = "fp16=True, zero_stage=1, zero_allow_untested_optimizer=True"
    assert job(said, "1, 1, 8").assumptions["gradient_scaling"] == "owned"
    assert "gradient_scaling" not in job(f"{said}, prescale_gradients=True", "1, 1, 8").assumptions
    assert row(job("prescale_gradients=True", "1, 1, 8"), "prescale_gradients").fate == "no_cost_effect"
    made = job(said, "1, 1, 8")
    times = [
        symsim.derive(made.architecture, made.placed(), {**made.assumptions, "gradient_scaling": over}, system="a100-sxm-80")
        for over in ("all", "owned")
    ]
    parameters = float(times[0].stage_numbers(times[0].stages[0])["P_stage"])
    slower = float(times[0].value("time.step")) - float(times[1].value("time.step"))
    # fp16 gradients read and written for seven of eight parameters, at the bandwidth of HBM or a share of it
    assert 0.5 < parameters * 7 / 8 * 4 / 2.039e12 / slower <= 1


def test_timers_wait_where_a_part_begins_or_ends() -> None:
    """Of forward at any value; of backward and boundary tensors where there are any."""
    every = "wall_clock_breakdown=True"
    assert [strategy(more, "pp=2, tp=1, dp=1")["host_waits"] for more in ("", every)] == [2, 4]
    assert strategy(every)["host_waits"] == 2 and row(job(every), "wall_clock_breakdown").fate == "no_cost_effect"


def test_untied_tables() -> None:
    tied, untied = job("", "1, 1, 1"), job("no_tie_modules=True", "1, 1, 1")
    assert tied.architecture is not None and untied.architecture is not None
    assert tied.architecture.tie_word_embeddings and not untied.architecture.tie_word_embeddings


# Where arguments come from


def test_degrees_by_position_and_by_name() -> None:
    assert {k: strategy("", "2, 4, 8", "llama3-8b")[k] for k in ("pp", "tp", "dp")} == {"pp": 2, "tp": 4, "dp": 8}
    text = "dp = 8\ntp = 4\npp = 2\nMerak.init(dp, tp, pp)\nMerakArguments(gradient_accumulation_steps=8)"
    made = symsim.load_job("merak", text)
    assert (made.strategy or {})["pp"] == 2 and any("another order" in note for note in made.notes)
    assert (symsim.load_job("merak", text, faithful=True).strategy or {})["pp"] == 8


def test_a_script_is_read_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nos.system('touch RAN')\nA = 2\nB = A * 4\nMerak.init(pp=A, tp=1, dp=1)\n"
        "MerakArguments(gradient_accumulation_steps=B, output_dir=open('RAN', 'w').name, seq_length=__import__('os').system('touch RAN') or 5)\n"
    )
    said = refused(str(script))
    assert "train.py:6" in said and "nothing of it is run" in said and "seq_length" in said
    script.write_text(script.read_text().replace("__import__('os').system('touch RAN') or 5", "args.length"))
    assert "--var args.length=VALUE gives it" in refused(str(script))
    made = symsim.load_job("merak", str(script), variables={"args.length": "512"})
    assert (made.strategy or {})["seq_length"] == 512 and (made.strategy or {})["num_microbatches"] == 8
    assert not (tmp_path / "RAN").exists()


def test_names_that_are_set_twice_are_not_known() -> None:
    values = {c.name: [a.value for a in c.positional] for c in read_script("a = 1\na = 2\nb = [1, -2.5]\nb = [1, -2.5]\nf(a)\ng(b)\n", "x").calls}
    assert str(values["f"][0]) == "a" and not isinstance(values["f"][0], int) and values["g"] == [[1, -2.5]]
    (call,) = read_script("for a in range(3):\n    pass\nd = {'x': 1}\nf(a, 2 ** 99999, 10 ** 9, 6 // 4, **d)\n", "x").calls[1:]
    assert [str(one.value) for one in call.positional] == ["a", "2 ** 99999", "10 ** 9", "1"] and call.keywords[0].value == 1


def test_lists_of_lists_do_not_grow() -> None:
    text = "a0 = [1, 1]\n" + "".join(f"a{i} = [a{i - 1}, a{i - 1}]\n" for i in range(1, 60)) + "f(a59)\n"
    (call,) = read_script(text, "x").calls
    assert str(call.positional[0].value) == "a59"


def test_a_launch_script_beside_its_python() -> None:
    folder = IMPORTED / "launch"
    made = symsim.load_job("merak", str(folder / "run_llama.py"), str(folder / "run.sh"))
    assert made.architecture is not None and made.architecture.num_layers == 22
    assert row(made, "input_names").value == "input_ids attention_mask"
    assert (made.strategy or {})["recompute_layers_per_stage"] == [10, 10]


def test_arguments_and_fields() -> None:
    folder = IMPORTED / "fields"
    made = symsim.load_job("merak", str(folder / "merak.json"), str(folder / "config.json"))
    given = json.loads((folder / "merak.json").read_text())
    words = [w for key, value in {**given["init"], **given["args"]}.items() for w in (f"--{key}", str(value))]
    again = symsim.load_job("merak", str(folder / "config.json"), *words)
    assert again.strategy == made.strategy
    assert (symsim.load_job("merak", "--no_activation_checkpointing", "--pp", "1", model="gpt2-xl").strategy or {}).get("recompute") is None
    assert "one job has one value" in refused(str(folder / "merak.json"), "--seq_length", "4096")


def test_degrees_of_a_script_that_a_command_line_gives() -> None:
    script = "Merak.init(args.pp, args.tp, args.dp); MerakArguments(gradient_accumulation_steps=4)"
    made = strategy_of(symsim.load_job("merak", script, "--pp", "2", "--tp", "1", "--dp", "4", "--model_name_or_path", "gpt2-xl"))
    assert (made["pp"], made["dp"]) == (2, 4)
    assert "args.pp" in refused(script)


def strategy_of(made: symsim.Job) -> Mapping[str, Any]:
    assert made.strategy is not None
    return made.strategy


BAD = [
    (("MerakArguments(train_shedule='1f1b')",), "has no key 'train_shedule': did you mean 'train_schedule'?"),
    (("MerakArguments(train_schedule='2f2b')",), "train_schedule is 2f2b; it should be one of 1f1b"),
    (("Merak.init(pp=0)",), "pp is 0; it should be a whole number from 1 up"),
    (("Merak.init(1, 2, 3, 4, 5, 6)",), "takes pp, tp, dp and sp"),
    (("Merak.init(5000, 1, 1); MerakArguments(bf16=True)",), "pp is 5000; it should be at most 4096 stages"),
    (("Merak.init(1, 2, 3, ranks=4)",), "has no parameter 'ranks'"),
    (("MerakArguments(lora_config='lora.json')",), "this file of adapters is not beside the script; put the JSON there"),
    (("Merak.init(1, 2, 1); MerakArguments(lora_config={'r': 8})",), "without tensor parallelism alone (core/pipeline/module.py); give tp=1, not 2"),
    (("MerakArguments(tp_overlapping_level=4)",), "should be one of 0, 1, 2, 3"),
    (("MerakArguments(bf16=True, fp16=True)",), "runs in one of them"),
    (("MerakArguments(activation_checkpoint_ratio=[1.5])",), "shares from 0 to 1"),
    (("Merak.init(1, 2, 1); MerakArguments(input_output_mapping=[(1, 2)])",), "a list of (input, output, 'col' or 'row')"),
    (("print('hello')",), "no call of MerakArguments"),
    (("MerakArguments(",), "not Python"),
    (("job.txt",), "'symsim import merak' reads .py"),
    (("no.py",), "no such file"),
    (("--", "1"), "an option is --NAME VALUE"),
]


@pytest.mark.parametrize(("inputs", "said"), BAD, ids=[one[0][0] for one in BAD])
def test_what_cannot_be_is_one_sentence(inputs: tuple[str, ...], said: str) -> None:
    assert said in refused(*inputs)


def test_adapters_of_a_file_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("Merak.init(2, 1, 2)\nMerakArguments(lora_config='lora.json')")
    config = {"r": 16, "lora_alpha": 32, "target_modules": ["c_attn", "c_proj"], "bias": "lora_only", "lora_dropout": 0.1, "peft_type": "LORA"}
    (tmp_path / "lora.json").write_text(json.dumps(config))
    made = symsim.load_job("merak", str(tmp_path / "train.py"), model="gpt2-xl")
    placed = strategy_of(made)
    assert (placed["tuner_type"], placed["lora_rank"], placed["lora_dropout"]) == ("lora", 16, 0.1)
    assert placed["target_modules"] == ["linear_qkv", "o_proj", "down_proj"]
    ends = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj", "mlp.down_proj")
    assert placed["modules_to_save"] == [f"{name}.bias" for name in ends]
    assert {one.key: one.fate for one in made.rows}["lora_config.lora_alpha"] == "no_cost_effect"
    # peft's default for a config that names nothing: c_attn; 48 layers of (1600 + 4800) r, and nothing else
    (tmp_path / "lora.json").write_text('{"r": 4}')
    plain = symsim.load_job("merak", str(tmp_path / "train.py"), model="gpt2-xl")
    assert symsim.derive(plain.architecture, plain.placed()).value("params.trained") == 48 * 6400 * 4
    (tmp_path / "lora.json").write_text(
        '{"r": 4, "layers_to_transform": [0, 1, 47], "target_modules": ["c_attn", "c_proj"], "exclude_modules": ["c_attn"]}'
    )
    some = symsim.load_job("merak", str(tmp_path / "train.py"), model="gpt2-xl")
    fates = {one.key: one.fate for one in some.rows}
    assert (fates["lora_config.layers_to_transform"], fates["lora_config.exclude_modules"]) == ("mapped", "mapped")
    # o_proj and down_proj of three layers
    assert symsim.derive(some.architecture, some.placed()).value("params.trained") == 3 * 4 * (1600 + 1600 + 6400 + 1600)


def test_a_config_that_names_no_linear_maps_has_pefts_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("Merak.init(1, 1, 1)\nMerakArguments(lora_config='lora.json')")
    every = {"r": 4, "lora_bias": False, "rank_pattern": {}, "target_parameters": None, "layer_replication": None, "qalora_group_size": 16}
    (tmp_path / "lora.json").write_text(json.dumps(every))
    for model, names, fate in (
        ("phi-2", ["q_proj", "v_proj", "up_proj", "down_proj"], ""),
        ("llama3-8b", ["q_proj", "v_proj"], ""),
        ("olmo2-7b", ["q_proj", "v_proj"], "not_modelled"),
    ):
        made = symsim.load_job("merak", str(tmp_path / "train.py"), model=model)
        assert strategy_of(made)["target_modules"] == names
        assert next((one.fate for one in made.rows if one.key == "lora_config.target_modules"), "") == fate


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from symsim.api.cli import main

    with pytest.raises(SystemExit) as left:
        main(["import", "merak", str(IMPORTED / "script" / "train.py"), "-o", str(tmp_path / "job")])
    assert left.value.code == 0 and "recompute_layers_per_stage" in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        main(["eval", str(tmp_path / "job"), "-y", "a100-sxm-80", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert left.value.code == 0 and found["time"]["step"] > 0
