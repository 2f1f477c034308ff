"""What torchtitan says of files that symsim exports, in a process of its own.

    python torchtitan_started.py TREE FILE...

A file goes through torchtitan's ConfigManager and its Trainer, both of the checkout TREE, on the CPU: the ranks are of the fake backend, parameters
have no memory, and there is neither a tokenizer nor data. What the Trainer made of a file is `means`. TREE is b5bcd76c6 for files in Python, the
parent of 9810191bb for TOML; all files are of one kind.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from started import answered, stand_in

MODELS = ("deepseek_v3", "gpt_oss", "kimi_k2_7", "llama3", "qwen3", "qwen3_5")
OLDER = ("deepseek_v3", "gpt_oss", "llama3", "llama4", "qwen3")


def on_a_machine(older: bool) -> None:
    """One with B200s, as far as the Trainer asks before the first step."""
    torch = importlib.import_module("torch")
    stand_in("fla", "deep_ep", "flash_attn")
    data = importlib.import_module("datasets")
    data.load_dataset = lambda *given, **named: data.Dataset.from_list([{"text": "a"}]).to_iterable_dataset()
    tools = importlib.import_module("torchtitan.tools.utils")
    tools.device_type, tools.device_module = "cpu", torch.cpu
    tools.get_local_device = lambda: torch.device("cpu")
    for name in ("train", *(f"models.{model}" for model in (OLDER if older else MODELS))):
        importlib.import_module(f"torchtitan.{name}")
    for module in [module for name, module in sys.modules.items() if name.startswith("torchtitan")]:
        if hasattr(module, "has_cuda_capability"):
            module.has_cuda_capability = lambda *given: given <= (10, 0)
        if hasattr(module, "device_type"):
            module.device_type = "cpu"
    memory = MagicMock(device_name="B200")
    memory.get_peak_stats.return_value = MagicMock(max_reserved_gib=0.0, max_reserved_pct=0.0)
    importlib.import_module("torchtitan.components.metrics").build_device_memory_monitor = lambda *given: memory
    # parameters stay without memory, and without values
    torch.nn.Module.to_empty = lambda module, **given: module
    importlib.import_module("torchtitan.components.tokenizer").HuggingFaceTokenizer.__init__ = lambda tokenizer, *given, **named: None
    if older:
        for model in OLDER:
            importlib.import_module("torchtitan.protocols.train_spec").get_train_spec(model).model_cls.init_weights = lambda model, **given: None
    else:
        importlib.import_module("torchtitan.protocols.model").BaseModel.init_weights = lambda model, **given: None
        # torch's releases do not know its newest way of sharding
        importlib.import_module("torchtitan.distributed.fsdp").fully_shard = fully_shard


def fully_shard(modules: Any, **given: Any) -> None:
    for module in modules if isinstance(modules, list) else [modules]:
        module.set_modules_to_forward_prefetch = module.set_modules_to_backward_prefetch = lambda modules: None


def started(path: Path) -> dict[str, Any]:
    """What the Trainer made of a file. Raises what it raises."""
    torch = importlib.import_module("torch")
    ranks = re.search(r"on (\d+) ranks", path.read_text())
    assert ranks is not None
    os.environ.update({"NGPU": ranks[1], "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": ranks[1]})
    older = path.suffix == ".toml"
    if not older:
        sys.path.insert(0, str(path.parent))
    arguments = ["--job.config_file", str(path)] if older else ["--module", path.stem, "--config", "train"]
    config = importlib.import_module("torchtitan.config").ConfigManager().parse_args(arguments)
    config.comm.mode = "fake_backend"
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    trainer = importlib.import_module("torchtitan.train").Trainer(config)
    dims, parts = trainer.parallel_dims, trainer.model_parts
    with torch.device("meta"):
        whole = trainer.train_spec.model_cls(trainer.model_args) if older else config.model_spec.model.build()
    # a head that is the embedding is made so when weights are given values
    tied = getattr(getattr(config, "model_spec", None) and config.model_spec.model, "enable_weight_tying", False)
    own = [(name, one.numel()) for name, one in whole.named_parameters() if not name.startswith("vision")]
    return {
        "accumulated": trainer.gradient_accumulation_steps,
        "micro_batches": (trainer.pp_schedule._n_microbatches if dims.pp > 1 else 1),
        "degrees": [dims.dp_replicate, dims.dp_shard, dims.cp, dims.tp, dims.pp, dims.ep],
        "parameters": sum(size for name, size in own if not (tied and name == "lm_head.weight")),
        "layers": [sorted(map(int, part.layers.keys())) for part in parts],
    }


def main() -> None:
    tree, *scripts = sys.argv[1:]
    # in place of this folder, whose files have other names
    sys.path[0] = tree
    logging.disable(logging.CRITICAL)
    on_a_machine(older=scripts[0].endswith(".toml"))
    answered(scripts, started)


if __name__ == "__main__":
    main()
