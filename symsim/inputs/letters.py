"""What symbols are called in print: symsim's own names, Megatron-Core's arguments, the letters of Korthikanti et al., or a file's."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any

from symsim.algebra.vocabulary import SYMBOLS
from symsim.errors import InputError, cut, nearest
from symsim.inputs.reading import read_json, read_yaml

_LETTER = re.compile(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
_LONGEST = 60
_GREEK = frozenset("alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi omega".split())

MEGATRON = {
    "b": "micro_batch_size",
    "s": "seq_length",
    "m": "num_microbatches",
    "h": "hidden_size",
    "L": "num_layers",
    "V": "padded_vocab_size",
    "P": "max_position_embeddings",
    "a": "num_attention_heads",
    "g": "num_query_groups",
    "d": "kv_channels",
    "f": "ffn_hidden_size",
    "w": "window_size",
    "E": "num_experts",
    "K": "moe_router_topk",
    "f_e": "moe_ffn_hidden_size",
    "f_s": "moe_shared_expert_intermediate_size",
    "r_q": "q_lora_rank",
    "r_k": "kv_lora_rank",
    "d_k": "qk_head_dim",
    "d_r": "qk_pos_emb_head_dim",
    "d_v": "v_head_dim",
    "D": "mtp_num_layers",
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "dp": "data_parallel_size",
    "inst": "num_distributed_optimizer_instances",
}
# arXiv:2205.05198, Table 1, in the order of its products, and its m of sec. 4.2.3: the interleaving stages of a device; micro-batches have
# no letter there
KORTHIKANTI = {"a": "a", "s": "s", "b": "b", "h": "h", "L": "L", "V": "v", "tp": "t", "pp": "p", "vpp": "m", "m": "n_mb"}
STYLES: dict[str, Mapping[str, str]] = {"symsim": {}, "megatron": MEGATRON, "korthikanti": KORTHIKANTI}


def letters(asked: str | Mapping[str, str]) -> Mapping[str, str]:
    """What symbols are called, of a style's name, a YAML or JSON file of `symbol: letter`, or such a mapping. InputError for another."""
    if isinstance(asked, Mapping):
        return _checked(asked, "symbols")
    if asked in STYLES:
        return STYLES[asked]
    if not asked.endswith((".yaml", ".yml", ".json")):
        raise InputError(f"--symbols {cut(asked)}: {nearest(asked, list(STYLES))}, or a .yaml or .json file of 'symbol: letter'")
    return _checked((read_json if asked.endswith(".json") else read_yaml)(asked).data, asked)


def _checked(data: Mapping[str, Any], where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, letter in data.items():
        if not isinstance(name, str) or not _LETTER.fullmatch(name):
            raise InputError(f"{where}: there is no symbol '{cut(str(name))}': {nearest(str(name), list(SYMBOLS))}")
        if not isinstance(letter, str) or len(letter) > _LONGEST or not _LETTER.fullmatch(letter) or keyword.iskeyword(letter):
            raise InputError(f"{where}: {name} cannot be called '{cut(str(letter))}': letters, digits and single underscores, such as d_h")
        found[name] = letter
    return found


def latex_of(letter: str) -> str:
    """A letter, with what follows the first underscore below it; a word stands upright."""
    head, _, rest = letter.partition("_")
    if len(head) == 1 or head.lower() in _GREEK:
        first = head if len(head) == 1 else rf"\{head}"
        below = rest if len(rest) == 1 or rest.isdigit() else rf"\mathrm{{{rest.replace('_', chr(92) + '_')}}}"
        return f"{first}_{{{below}}}" if rest else first
    return rf"\mathrm{{{letter.replace('_', chr(92) + '_')}}}"
