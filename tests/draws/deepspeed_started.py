"""What DeepSpeed says of JSON files that symsim exports, in a process of its own.

    python deepspeed_started.py TREE FILE...

A file goes through deepspeed.initialize of the checkout TREE (0.16.4, and 0.19.5), with a small Llama, on the CPU: the ranks are of
the fake backend, and optimizers that run on a GPU are stood in for by those of PyTorch. What the engine made of a file is `means`.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from started import answered, stand_in


def on_a_machine() -> None:
    """One whose accelerator knows all types; kernels that are built for it are others'."""
    os.environ.update({"DS_ACCELERATOR": "cpu", "LOCAL_RANK": "0", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
    stand_in("cupy")
    torch = importlib.import_module("torch")
    importlib.import_module("deepspeed")
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    kind = type(importlib.import_module("deepspeed.accelerator").get_accelerator())
    kind.is_fp16_supported = kind.is_bf16_supported = lambda accelerator: True
    for place, names in {"adam": ("FusedAdam", "DeepSpeedCPUAdam"), "lamb": ("FusedLamb",), "lion": ("FusedLion", "DeepSpeedCPULion")}.items():
        module = importlib.import_module(f"deepspeed.ops.{place}")
        for name in names:
            # classes stay, which the engine asks for; their kernels are not called before the first step
            getattr(module, name).__init__ = lambda optimizer, parameters, lr, **given: torch.optim.Optimizer.__init__(
                optimizer, parameters, {"lr": lr, "betas": (0.9, 0.99)}
            )


def small() -> Any:
    models = importlib.import_module("transformers")
    sizes = {"hidden_size": 512, "intermediate_size": 512, "num_attention_heads": 64, "num_key_value_heads": 64}
    return models.LlamaForCausalLM(models.LlamaConfig(vocab_size=512, num_hidden_layers=1, **sizes))


def started(path: Path) -> dict[str, Any]:
    """What the engine made of a file. Raises what it raises."""
    torch, deepspeed = importlib.import_module("torch"), importlib.import_module("deepspeed")
    said = json.loads(path.read_text())
    # tensor ranks are replicas to it
    replicas = said["train_batch_size"] // (said["train_micro_batch_size_per_gpu"] * said["gradient_accumulation_steps"])
    ranks = replicas * said.get("sequence_parallel_size", 1)
    os.environ["WORLD_SIZE"] = str(ranks)
    torch.distributed.init_process_group("fake", rank=0, world_size=ranks)
    deepspeed.init_distributed(dist_backend="fake", auto_mpi_discovery=False)
    model, shared = small(), said.get("tensor_parallel", {}).get("autotp_size", 0)
    if shared > 1:
        # as transformers does (integrations/deepspeed.py)
        model = deepspeed.tp_model_init(model, tp_size=shared, dtype=torch.bfloat16)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=said)
    return {
        "micro_batches": engine.gradient_accumulation_steps(),
        "micro_batch_size": engine.train_micro_batch_size_per_gpu(),
        "stage": engine.zero_optimization_stage(),
        "data_parallel": torch.distributed.get_world_size() // (said.get("sequence_parallel_size", 1) * max(engine.autotp_size(), 1)),
        "optimizer": type(engine.basic_optimizer).__name__,
    }


def main() -> None:
    tree, *scripts = sys.argv[1:]
    # in place of this folder, whose files have other names
    sys.path[0] = tree
    logging.disable(logging.CRITICAL)
    on_a_machine()
    for script in scripts:
        # groups of ranks are kept by many modules
        child = os.fork()
        if not child:
            answered([script], started)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
