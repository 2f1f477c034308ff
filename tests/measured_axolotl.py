"""Memory that Axolotl's examples print (examples/*/README.md at 067b021c8): adapters on one GPU, two rows of 2048 packed tokens.

Reserved memory, as examples/gpt-oss/README.md says of its own (`device_mem_reserved(gib)` from logs), of segments that grow page by page
(utils/__init__.py set_pytorch_cuda_alloc_conf: expandable_segments:True). GPUs are not named, so no row has a time. Settings are those of the file
beside each README when its number was written: Magistral's had no plugin for the loss then, its thinking variant's had, and adapters were fp32
(peft's default).
"""

from __future__ import annotations

from typing import Any

from measured_row import UNITS, Case, Rows, architecture, strategy

SECTION = "axolotl_examples"
_ADAPTED: dict[str, Any] = {
    **{"fusion": "eager", "micro_batch_size": 2, "seq_length": 2048, "zero": 0, "recompute": "full", "grad_reduce_in_fp32": False},
    **{"optimizer_bits": 8, "num_microbatches": 4},
    **{"tuner_type": "lora", "lora_rank": 32, "lora_dropout": 0.05},
}
_CUT = {**_ADAPTED, "cross_entropy_fusion": "cut"}
# functions of adapters were on by themselves where nothing is dropped (utils/schemas/config.py check_auto_enable_lora_kernels then)
_FUNCTIONS = {"lora_dropout": 0, "fused_adapters": ("qkv", "o", "mlp"), "fused_kernels": ("activation",)}
_RESERVED = {"memory": "reserved", "allocator": "expandable"}
# its file asks for Mxfp4Config(dequantize=True), of transformers 4.55.0 (requirements.txt at ba3dba3e4, where its number came)
_UNPACKED = {"axolotl/gpt-oss": {**_RESERVED, "checkpoint_unpacking": "mxfp4"}}
_QLORA = {**_CUT, "quantize_base": "nf4_double"}
_MAPS = ("mlp.gate_up", "moe.experts.fc1", "moe.shared_experts.gate_up", "down_proj", "q_proj", "v_proj", "k_proj", "o_proj")
_KIMI = {"lora_rank": 16, "quantize_base": "int8", "num_microbatches": 2, "target_modules": _MAPS}
_GPT_OSS = {"num_microbatches": 8, "micro_batch_size": 1, "seq_length": 4096, "lora_rank": 8, **_FUNCTIONS, "cpu_offloading_num_layers": 23}
# model, the example's folder, settings, what is printed
PRINTED: tuple[tuple[str, str, dict[str, Any], float, str], ...] = (
    ("apertus-8b", "apertus", _QLORA, 8.7, "GiB"),
    ("seed-oss-36b", "seed-oss", _QLORA, 27.7, "GiB"),
    ("olmo3-7b", "olmo3", {**_QLORA, "num_microbatches": 2}, 11.3, "GiB"),
    ("mistral-small-24b", "magistral", {**_ADAPTED, "quantize_base": "nf4_double"}, 24, "GB"),
    ("mistral-small-24b", "magistral/think", _QLORA, 19.1, "GiB"),
    ("mistral-small-24b", "devstral", {**_QLORA, **_FUNCTIONS, "optimizer_bits": 32}, 21, "GB"),
    ("kimi-linear-48b-a3b", "kimi-linear", {**_CUT, **_KIMI}, 98.7, "GiB"),
    ("gpt-oss-20b", "gpt-oss", {**_CUT, **_GPT_OSS}, 44, "GiB"),
)


def rows(_: dict[str, Any]) -> Rows:
    """The rows, in the order of PRINTED."""
    return [_row(*printed) for printed in PRINTED]


def _row(model: str, folder: str, settings: dict[str, Any], size: float, unit: str) -> Case:
    plan, unnamed = strategy(settings)
    assert not unnamed, unnamed
    name, note = f"axolotl/{folder}", f"memory as printed ({size:g} {unit}); of a GPU that is not named"
    assumed = _UNPACKED.get(name, _RESERVED)
    return Case(name, SECTION, architecture(model, {}), plan, assumed, "h200-sxm", None, size * UNITS[unit], note, ("reserved",))
