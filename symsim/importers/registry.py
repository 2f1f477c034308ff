"""The systems whose configurations are read, and what each reader is given."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """inputs: what follows `symsim import KIND`. module: of symsim/importers, whose `read(inputs, options)` gives a Job. files: nothing but files."""

    inputs: str
    module: str
    title: str
    files: bool = False


KINDS: dict[str, Kind] = {
    "megatron": Kind("a launch script, YAML (of NeMo, Primus too), JSON, or arguments (--num-layers 8 ..)", "megatron.reader", "Megatron-LM"),
    "swift": Kind("a script with 'megatron sft' or 'swift sft', a YAML or JSON of arguments, or the command itself", "swift.reader", "ms-swift"),
    "merak": Kind("a training script (.py), .json, .yaml or .sh files, or arguments", "merak.reader", "Merak"),
    "deepspeed": Kind("DS.json [ARGUMENTS.json|yaml] [config.json], or a launch script", "deepspeed.reader", "DeepSpeed", files=True),
    "simumax": Kind("SYSTEM.json STRATEGY.json MODEL.json", "simumax.reader", "SimuMax", files=True),
    "calculon": Kind("APPLICATION.json EXECUTION.json SYSTEM.json", "calculon.reader", "Calculon", files=True),
    "torchtitan": Kind("one .toml file, a .yaml of Primus, or config_registry.py --config NAME", "torchtitan.reader", "torchtitan"),
    "axolotl": Kind("FILE.yaml [DS.json]", "axolotl.reader", "axolotl", files=True),
    "llama-factory": Kind("FILE.yaml, or a launch script, [DS.json]", "llama_factory", "LLaMA-Factory", files=True),
    "gpt-neox": Kind("FILE.yml ..", "gpt_neox.reader", "GPT-NeoX", files=True),
    "nanotron": Kind("one YAML", "nanotron.reader", "nanotron", files=True),
    "torchtune": Kind("one YAML", "torchtune.reader", "torchtune", files=True),
    "accelerate": Kind("CONFIG.yaml [ARGUMENTS.json|yaml] [DS.json], or a launch script", "accelerate.reader", "Accelerate", files=True),
    "verl": Kind("a launch script, a YAML, or overrides (actor_rollout_ref.model.path=..)", "verl.reader", "verl"),
    "slime": Kind("a launch script, or arguments (--actor-num-nodes 2 ..)", "slime.reader", "slime"),
    "nemo-rl": Kind("one YAML", "nemo_rl.reader", "NeMo-RL", files=True),
    "automodel": Kind("one YAML", "automodel.reader", "NeMo Automodel", files=True),
    "hf": Kind("one config.json", "huggingface", "Hugging Face", files=True),
}
