"""From a model's name on a hub, or the name of a directory of its weights, to a model that comes with symsim, or to a config.json that a
download left on this machine."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from symsim.inputs.alike import ALIKE
from symsim.inputs.shipped import list_models, models_directory

_SOURCE = re.compile(r"^source:.*https://huggingface\.co/([\w.-]+/[\w.-]+)", re.MULTILINE)
# words that say that the weights of a copy are stored in few bits
_STORED = frozenset("awq gptq int4 int8 gguf 4bit 8bit nf4 nvfp4 aqlm 2bit".split())
# words that say how a model was tuned or stored, not what shape it has
_TUNED = _STORED | frozenset(
    "base instruct chat it pt hf mcore megatron thinking think sft dpo fp8 fp16 bf16 meta preview deduped unsloth python bnb 1x16 linearized".split()
)
_DATED = re.compile(r"2[456][01]\d")


_ID = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_id(reference: str) -> bool:
    """Whether a name is spelt as ids of a hub are; a path of two parts may be, too."""
    return bool(_ID.fullmatch(reference)) and not reference.startswith(".")


def downloaded_config(reference: str) -> str | None:
    """The config.json of a hub id in the cache of huggingface_hub, the newest of several; None where there is none.

    Source: huggingface_hub's documented cache layout, models--OWNER--NAME/snapshots/REVISION/ below HF_HUB_CACHE, or hub/ of HF_HOME.
    """
    folder = cache_directory() / f"models--{reference.replace('/', '--')}"
    try:
        return max(map(str, folder.glob("snapshots/*/config.json")), key=os.path.getmtime, default=None)
    except OSError:
        return None


def downloaded_ids() -> list[str]:
    """Hub ids of the models that a download left there."""
    try:
        folders = [path.name for path in cache_directory().glob("models--*--*")]
    except OSError:
        return []
    return sorted(name.removeprefix("models--").replace("--", "/", 1) for name in folders)


def cache_directory() -> Path:
    """Where huggingface_hub keeps what it downloads: its documented HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))


@dataclass(frozen=True)
class Shipped:
    """A model of models/ and the id it was read from. exact: the id asked for is that one, not one of the same shape."""

    name: str
    source: str
    exact: bool


def in_few_bits(reference: str) -> bool:
    """Whether a hub id or a directory's name is that of a copy whose weights are stored in few bits (`Llama-3-8B-AWQ`)."""
    return bool(_STORED & set(reference.rstrip("/").rpartition("/")[2].casefold().split("-")))


def shipped_model(reference: str) -> Shipped | None:
    """The model that a hub id (`Qwen/Qwen2.5-14B-Instruct`) or a directory's name (`Qwen2.5-14B-mcore`) stands for; None where it is none
    or not one alone."""
    last = reference.rstrip("/").rpartition("/")[2]
    alike = []
    for name, source in sources().items():
        if reference == source:
            return Shipped(name, source, exact=True)
        known = source.rpartition("/")[2]
        if _shape(last) == _shape(known):
            alike.append(Shipped(name, source, exact=last.casefold() == known.casefold()))
    known_as = ALIKE.get("-".join(_shape(last)))
    if not alike and known_as is not None:
        return Shipped(known_as, sources()[known_as], exact=False)
    exact = [model for model in alike if model.exact]
    found = exact or alike
    return found[0] if len(found) == 1 else None


@cache
def sources() -> dict[str, str]:
    """Hub ids by the names of the models that were read from them."""
    found = {}
    directory = models_directory()
    for name in list_models():
        source = _SOURCE.search((directory / f"{name}.yaml").read_text(encoding="utf-8"))
        if source is not None:
            found[name] = source[1]
    return found


def _shape(name: str) -> tuple[str, ...]:
    return tuple(word for word in name.casefold().split("-") if word not in _TUNED and not _DATED.fullmatch(word))
