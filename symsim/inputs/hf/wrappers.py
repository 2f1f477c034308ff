"""Multimodal wrappers: the text tower of each, and whose `tie_word_embeddings` decides.

Source: transformers 5.23, models/<model_type>/configuration_*.py and _tied_weights_keys of modeling_*.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Wrapper:
    """tower: model_type of the text tower where text_config omits it; fixed: whatever text_config says.

    tied: whose key decides: the wrapper's (with its default), text_config's, either (tied when one says so), or nobody's
    (never tied). defaults: the tower's where text_config omits a key, in place of its own family's.
    """

    tower: str
    tied: Literal["wrapper", "text", "either", "never"] = "wrapper"
    default: bool = False
    fixed: bool = False
    defaults: Mapping[str, int] = field(default_factory=dict)


_TIED_BY_DEFAULT = {
    "deepseek_vl": "llama",
    "deepseek_vl_hybrid": "llama",
    "got_ocr2": "qwen2",
    "granite_speech": "granite",
    "granite_speech_plus": "granite",
    "internvl": "qwen2",
    "janus": "llama",
    "kimi_k25": "deepseek_v3",
    "lighton_ocr": "qwen3",
    "mistral3": "mistral",
    "moss_transcribe_diarize": "qwen3",
    "paligemma": "gemma",
    "qwen3_asr": "qwen3",
}


WRAPPERS: dict[str, Wrapper] = {
    "gemma3": Wrapper("gemma3_text", default=True, fixed=True),
    "llama4": Wrapper("llama4_text", "text", fixed=True),
    **{name: Wrapper(tower, default=True) for name, tower in _TIED_BY_DEFAULT.items()},
    **{name: Wrapper(tower) for name, tower in {"idefics2": "mistral", "idefics3": "llama", "llava_next": "llama", "qianfan_ocr": "qwen3",
                                                "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
                                                "smolvlm": "llama", "video_llava": "llama", "vipllava": "llama"}.items()},
    **{name: Wrapper("opt", "text") for name in ("blip-2", "instructblip", "instructblipvideo")},
    # their __post_init__ takes text_config's true over the wrapper's false
    **{name: Wrapper(tower, "either") for name, tower in {"llava": "llama", "llava_next_video": "llama", "llava_onevision": "qwen2",
                                                          "video_llama_3": "qwen2"}.items()},
    "qwen2_audio": Wrapper("qwen2", "never"),
    # these two alone put their defaults into a text_config that is given; the others only where there is none
    "voxtral": Wrapper("llama", "never", defaults={"vocab_size": 131072, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 30,
                                                   "num_key_value_heads": 8, "head_dim": 128}),
    "glmasr": Wrapper("llama", default=True, defaults={"vocab_size": 59264, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
                                                       "num_attention_heads": 16, "num_key_value_heads": 4}),
}  # fmt: skip


def tied(wrapper: str | None, config: Mapping[str, Any], text: Mapping[str, Any]) -> Any:
    """The `tie_word_embeddings` that counts, or None when only the text tower's own (or its default) does.

    A wrapper that is not in the table is taken as most are: its key decides where it has one.
    """
    known = WRAPPERS.get(str(wrapper))
    if known is None:
        return config.get("tie_word_embeddings")
    own, inner = config.get("tie_word_embeddings", known.default), text.get("tie_word_embeddings")
    if known.tied == "wrapper":
        return own if own is not None else False
    return {"text": inner, "either": own if own else inner, "never": False}[known.tied]
