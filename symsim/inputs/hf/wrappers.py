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
    (never tied). default: of the wrapper's own key; None: then text_config's decides. inside: the key of the config that has the text_config, of
    that model_type `tower` then is. defaults: the tower's where text_config omits a key, in place of its own family's. flat: configs on the hub
    have the tower's keys beside the wrapper's. of_prompts: keys of the text_config that say how what stands before the text is attended to.
    projects: a key of another tower and its default, which is to be the text's hidden_size.
    """

    tower: str
    tied: Literal["wrapper", "text", "either", "never"] = "wrapper"
    default: bool | None = False
    fixed: bool = False
    flat: bool = False
    inside: str = ""
    defaults: Mapping[str, int] = field(default_factory=dict)
    of_prompts: tuple[str, ...] = ()
    projects: tuple[str, str, int] | None = None


_TIED_BY_DEFAULT = {
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "fun_asr_nano": "qwen3",
    "hyperclovax_vision_v2": "hyperclovax",
    "minicpm_ocr": "qwen3_5_text",
    "pp_chart2table": "qwen2",
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
    "qwen3_asr": "qwen3",
}


_UNTIED_BY_DEFAULT = {
    "aria": "aria_text",
    "deepseek_ocr2": "deepseek_ocr2_text",
    "exaone4_5": "exaone4",
    "fast_vlm": "qwen2",
    "fuyu": "persimmon",
    "glm46v": "glm4v_text",
    "glmga": "glm4v_text",
    "granite4_vision": "granite4_vision_text",
    "hy_v4_vl": "hy_v4_vl_text",
    "idefics2": "mistral",
    "idefics3": "llama",
    "llava_next": "llama",
    "minicpmv4_6": "qwen3_5_text",
    "mistral_large4": "mistral_large4_text",
    "muse_glimmer": "muse_glimmer_text",
    "minicpmv4_7": "qwen3_5_text",
    "qianfan_ocr": "qwen3",
    "qwen2_5_omni_thinker": "qwen2_5_omni_text",
    "qwen3_omni_moe_thinker": "qwen3_omni_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "smolvlm": "llama",
    "video_llava": "llama",
    "vipllava": "llama",
}


WRAPPERS: dict[str, Wrapper] = {
    "gemma3": Wrapper("gemma3_text", default=True, fixed=True),
    "paligemma": Wrapper("gemma", default=True, of_prompts=("use_bidirectional_attention",)),
    "gemma3n": Wrapper("gemma3n_text", default=True, fixed=True),
    "granite_docling": Wrapper("granite_docling_text", default=True, projects=("vision_config", "out_hidden_size", 1024)),
    "gemma4": Wrapper("gemma4_text", default=True, fixed=True),
    "gemma4_unified": Wrapper("gemma4_unified_text", default=True, fixed=True),
    "lfm2_vl": Wrapper("lfm2", default=True),
    "qwen2_5_omni": Wrapper("qwen2_5_omni_thinker", inside="thinker_config"),
    "qwen3_omni_moe": Wrapper("qwen3_omni_moe_thinker", inside="thinker_config"),
    "perception_lm": Wrapper("llama", default=None),
    "nemotron_h_omni": Wrapper("nemotron_h", "text"),
    "vibevoice": Wrapper("qwen2", "text"),
    "apertus1p5": Wrapper("apertus1p5_text"),
    "emu3": Wrapper("emu3_text_model"),
    "cohere_compass": Wrapper("cohere_compass_text"),
    "cosmos3_omni": Wrapper("qwen3_vl_text"),
    "lfm3_vl": Wrapper("lfm3", default=True),
    "step3p7": Wrapper("step3p5"),
    "qwen3_5": Wrapper("qwen3_5_text", fixed=True),
    "qwen3_5_moe": Wrapper("qwen3_5_moe_text", fixed=True),
    "llama4": Wrapper("llama4_text", "text", fixed=True),
    **{name: Wrapper(tower, default=True) for name, tower in _TIED_BY_DEFAULT.items()},
    **{name: Wrapper(tower) for name, tower in _UNTIED_BY_DEFAULT.items()},
    **{name: Wrapper("opt", "text") for name in ("blip-2", "instructblip", "instructblipvideo")},
    # their __post_init__ takes text_config's true over the wrapper's false
    **{name: Wrapper(tower, "either") for name, tower in {"llava": "llama", "llava_next_video": "llama", "llava_onevision": "qwen2",
                                                          "video_llama_3": "qwen2"}.items()},
    **{name: Wrapper(tower, "either") for name, tower in {"glm4v": "glm4v_text", "glm4v_moe": "glm4v_moe_text", "glm_ocr": "glm_ocr_text",
                                                          "shieldgemma2": "gemma3_text",
                                                          "minimax_m3_vl": "minimax_m3_vl_text"}.items()},
    **{name: Wrapper(tower, "either", flat=True) for name, tower in {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text"}.items()},
    **{name: Wrapper(tower, "either", default=True) for name, tower in {"hunyuan_vl": "hunyuan_vl_text", "kosmos-2": "kosmos_2_text_model",
                                                                        "paddleocr_vl": "paddleocr_vl_text"}.items()},
    **{name: Wrapper(tower, "never") for name, tower in {"qwen2_audio": "qwen2", "audioflamingo3": "qwen2", "musicflamingo": "qwen2",
                                                         "molmo2": "molmo2_text", "nemo_speechlm": "nemotron_h", "vibevoice_asr": "qwen2",
                                                         "cosmos3_edge": "cosmos3_edge_text"}.items()},
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
    if known.tied == "wrapper" and known.default is None:
        return inner if own is None else own
    if known.tied == "wrapper":
        return own if own is not None else False
    return {"text": inner, "either": own if own else inner, "never": False}[known.tied]
