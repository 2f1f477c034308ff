"""What Megatron-LM's own validation says of launch scripts, in a process of its own.

    python megatron_started.py TREE SCRIPT...

Arguments and variables are read from every script and go through parse_args, validate_args and the TransformerConfig of the checkout TREE, on
the CPU: what asks for a GPU is told of an H100, versions of packages are new enough, and kernels in Triton are stood in for.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import os
import re
import shlex
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from started import answered

_NEW_ENOUGH = ("is_te_min_version", "is_torch_min_version", "is_fa_min_version", "is_flashinfer_min_version")
_VARIABLES = ("CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_CUDA_ALLOC_CONF")


def read(text: str) -> tuple[dict[str, str], list[str], int]:
    """Variables, arguments and ranks of a script that symsim wrote."""
    variables = dict(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE))
    groups = re.findall(r"^\w+=\(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL)
    arguments = [word for group in groups for line in group.splitlines() for word in shlex.split(line, comments=True)]
    ranks = re.search(r"--nproc-per-node (\d+) --nnodes (\d+)", text)
    assert ranks is not None
    return variables, arguments, int(ranks[1]) * int(ranks[2])


def stand_in() -> None:
    """A machine with an H100, as far as arguments are checked."""
    torch = importlib.import_module("torch")
    device = types.SimpleNamespace(major=9, minor=0, total_memory=80 << 30, multi_processor_count=132, name="H100")
    torch.cuda.get_device_properties = lambda *given: device
    torch.cuda.get_device_capability = lambda *given: (9, 0)
    torch.cuda.get_device_name = lambda *given: "H100"
    torch.cuda.current_device = lambda: 0
    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]
    triton, original = MagicMock(name="triton", __version__="9.9"), builtins.__import__
    triton.jit = lambda function=None, **given: function if function is not None else lambda one: one

    def imported(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        of_megatron = isinstance(globals, Mapping) and str(globals.get("__name__", "")).startswith("megatron")
        if level or name.split(".")[0] != "triton" or not of_megatron:
            return original(name, globals, locals, fromlist, level)
        found: Any = triton
        for part in name.split(".")[1:] if fromlist else ():
            found = getattr(found, part)
        return found

    builtins.__import__ = imported  # type: ignore[assignment]


def started(path: Path) -> dict[str, Any]:
    """Raises what the validation raises."""
    variables, arguments, ranks = read(path.read_text())
    for name in _VARIABLES:
        os.environ.pop(name, None)
    os.environ.update({**variables, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks)})
    checks = importlib.import_module("megatron.training.arguments")
    rotary = importlib.import_module("megatron.core.models.common.embeddings.rope_utils")
    for name in ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"):
        setattr(rotary, name, MagicMock())
    for module in [module for name, module in sys.modules.items() if name.startswith("megatron")]:
        for name in _NEW_ENOUGH:
            if hasattr(module, name):
                setattr(module, name, lambda *given, **named: True)
        if hasattr(module, "get_device_arch_version"):
            module.get_device_arch_version = lambda: 9
        for name in ("HAVE_TE", "HAVE_DEEP_EP", "HAVE_HYBRIDEP"):
            if hasattr(module, name):
                setattr(module, name, True)
    sys.argv = ["pretrain_gpt.py", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            parsed = checks.parse_args()
        except SystemExit:
            raise ValueError(said.getvalue().strip().splitlines()[-1]) from None
        checks.validate_args(parsed, {})
        checks.core_transformer_config_from_args(parsed)
    return {}


def main() -> None:
    tree, *scripts = sys.argv[1:]
    # in place of this folder, whose megatron.py is another
    sys.path[0] = tree
    stand_in()
    answered(scripts, started)


if __name__ == "__main__":
    main()
