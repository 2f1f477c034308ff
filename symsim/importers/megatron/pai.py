"""Pai-Megatron-Patch's arguments in Megatron-LM's words (megatron_patch/arguments.py, and its models' transformer.py; read 2025-11)."""

from __future__ import annotations

from symsim.importers.keys import Silent, natural, shown, silent
from symsim.importers.megatron.source import Source

_NAMES = {
    "intermediate_size": "ffn_hidden_size",
    "qk_nope_head_dim": "qk_head_dim",
    "qk_rope_head_dim": "qk_pos_emb_head_dim",
    "shared_moe_ffn_hidden_size": "moe_shared_expert_intermediate_size",
    "use_llama2_rotary_position_embeddings": "use_rotary_position_embeddings",
    "use_mistral_rotary_position_embeddings": "use_rotary_position_embeddings",
}
# linear maps without biases, all but that of queries, keys and values (qwen/transformer.py)
_UNBIASED = ("disable_bias_linear_fc", "disable_bias_attn_fc")
TABLE: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        "of Pai-Megatron-Patch, and of BigCode: names the tokenizer and the data",
        """
        tokenizer_file patch_tokenizer_type extra_vocab_size max_padding_length dataset train_mode train_data valid_data data_dir keep_last
        image_folder image_aspect_ratio cvcuda_image_processing source_seq_len target_seq_len
        train_weighted_split_paths valid_weighted_split_paths test_weighted_split_paths
        """,
    ),
    **silent("no_cost_effect", "of the run: its length", "epochs"),
    **silent("no_cost_effect", "of generation, and no step trains so", "generation_length text_generate_input_file text_generate_output_file"),
    **silent("no_cost_effect", "a number in the arithmetic of positions", "rotary_scale_factor"),
    **silent("no_cost_effect", "shared experts are there where they have a size", "enable_shared_expert"),
}


def in_megatrons_words(source: Source) -> None:
    """Put its arguments into Megatron-LM's names and values."""
    for own, name in _NAMES.items():
        source.rename(own, name)
    if all(name in source.given for name in _UNBIASED):
        source.rename(_UNBIASED[0], "disable_bias_linear", True)
        source.rename(_UNBIASED[1], "add_qkv_bias", True)
    if "use_alibi_mask" in source.given:
        source.given.pop("position_embedding_type", None)
        source.rename("use_alibi_mask", "position_embedding_type", "alibi")
    window = source.given.get("sliding_window")
    if window is not None and (tokens := natural(shown(window.value))):
        source.rename("sliding_window", "window_size", [tokens - 1, 0])
