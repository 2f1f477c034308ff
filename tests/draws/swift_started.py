"""What ms-swift says of YAML files that symsim exports, in a process of its own.

    python swift_started.py SWIFT:MEGATRON FILE...

A file is read as `megatron sft FILE` reads it, goes through MegatronSftArguments of the checkout SWIFT (3602360a5) and becomes mcore-bridge's
ModelConfig over the checkout MEGATRON, on the CPU: the ranks are of the fake backend, and configurations of models lie below hub/ beside the files.
What became of a file is `means`.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import types
from pathlib import Path
from typing import Any

from started import answered, stand_in

VARIABLES = ("NPROC_PER_NODE", "NNODES", "CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_CUDA_ALLOC_CONF", "NVTE_APPLY_QK_LAYER_SCALING")


def on_a_machine() -> None:
    """One with an H100, as far as arguments are checked."""
    torch = importlib.import_module("torch")
    stand_in("transformer_engine", "apex", "flash_attn")
    device = types.SimpleNamespace(major=9, minor=0, total_memory=80 << 30, multi_processor_count=132, name="H100")
    torch.cuda.get_device_properties = lambda *given: device
    torch.cuda.get_device_capability = lambda *given: (9, 0)
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.set_device = lambda *given: None
    torch.cuda.device_count = lambda: 8
    new_group = torch.distributed.new_group
    torch.distributed.new_group = lambda ranks=None, **given: new_group(ranks, backend="fake")


def started(path: Path) -> dict[str, Any]:
    """What became of a file. Raises what is raised."""
    torch = importlib.import_module("torch")
    for name in VARIABLES:
        os.environ.pop(name, None)
    words = [str(path)]
    importlib.import_module("swift.cli.main").parse_yaml_args(words)
    assert all(isinstance(word, str) for word in words), words
    ranks = int(os.environ["NPROC_PER_NODE"]) * int(os.environ["NNODES"])
    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": os.environ["NPROC_PER_NODE"]})
    # as swift.cli._megatron.sft does
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    if torch.distributed.is_initialized():
        importlib.import_module("megatron.core.parallel_state").destroy_model_parallel()
        torch.distributed.destroy_process_group()
    torch.distributed.init_process_group("fake", rank=0, world_size=ranks)
    found = importlib.import_module("swift.model.model_meta")
    found.safe_snapshot_download = lambda model, **given: str(path.parent / "hub" / model)
    kind = importlib.import_module("swift.megatron.arguments").MegatronSftArguments
    importlib.import_module("swift.megatron.utils.megatron_lm_utils").set_random_seed = lambda *given, **named: None
    arguments, left = importlib.import_module("swift.utils").parse_args(kind, words)
    if left:
        raise ValueError(f"arguments that are left over: {left}")
    hf = importlib.import_module("transformers").AutoConfig.from_pretrained(arguments.model_dir)
    config = importlib.import_module("swift.megatron.model.utils").get_mcore_model_config(arguments, hf)
    return {"micro_batches": arguments.num_microbatches, "layers": config.num_layers}


def main() -> None:
    trees, *scripts = sys.argv[1:]
    # in place of this folder, whose megatron.py is another
    sys.path[0:1] = trees.split(":")
    logging.disable(logging.CRITICAL)
    on_a_machine()
    answered(scripts, started)


if __name__ == "__main__":
    main()
