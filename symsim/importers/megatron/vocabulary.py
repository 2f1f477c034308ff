"""How many rows the embedding of a job of Megatron-LM has: what its tokenizer says, with unused ones up to a multiple."""

from __future__ import annotations

import re

from symsim.errors import InputError
from symsim.importers.keys import Entry, Keys
from symsim.importers.rules import padded_vocabulary
from symsim.inputs.hub import shipped_model
from symsim.inputs.models import load_model
from symsim.inputs.shipped import list_models

# of a vocabulary that nothing tells, with --lenient
_TAKEN = 128_000
BPE = "GPT2BPETokenizer"
_TOKENIZERS = {BPE: 50257, "Llama2Tokenizer": 32000, "BertWordPieceLowerCase": 30522, "BertWordPieceCase": 28996, "TikTokenizer": 2**17}
# those of Pai-Megatron-Patch, to which extra_vocab_size is added (megatron_patch/tokenizer/__init__.py)
_PATCHED = {
    **dict.fromkeys(("Qwen2Tokenizer", "Qwen2VLTokenizer", "Qwen3Tokenizer"), 151643),
    **dict.fromkeys(("LLamaTokenizer", "LLama2Tokenizer", "MixtralTokenizer", "MistralTokenizer"), 32000),
    **{"QwenTokenizer": 151851, "LLama3Tokenizer": 128000, "FalconTokenizer": 65024, "YiTokenizer": 64000, "BaichuanTokenizer": 64000},
}
# those whose rows it sets, and those of any model, whose vocabulary --load names
_ROWS = {
    **{"BloomTokenizerFromHF": 250880, "ChatGLMTokenizerFromHF": 130528, "GLM10BZHTokenizerFromHF": 50048, "IcetkGLM130BTokenizer": 150528},
    **{"StarcoderTokenizerFromHF": 49152, "VicunaTokenizerFromHF": 32000},
}
_LOADED = frozenset("LLamaTokenizer MistralTokenizer BaichuanTokenizer DeepSeekV2Tokenizer OPTTokenizer".split())
_CONVERTED = re.compile(r"(-hf)?-to-(mcore|mg|megatron).*")
# tokenizers that are no model's of models/, by their name or the last part of it: the SentencePiece file of Llama 1 and 2, T5's, BLOOM's
_FILES = {
    "llama_tokenizer.model": 32000,
    "llama2_tokenizer.model": 32000,
    "t5-small": 32100,
    "google/mt5-small": 250100,
    "google/mt5-base": 250100,
    "bigscience/tokenizer": 250680,
    "byte-level-bpe-tokenizer-no-norm-250k-whitespace-and-eos-regex-alpha-v3-dedup-lines-articles": 250680,
}


def _named(tokenizer: str) -> str | None:
    """The shipped model that a tokenizer's path or name ends with."""
    known = shipped_model(tokenizer)
    if known is not None:
        return known.name
    told = re.sub(r"[^a-z0-9]", "", tokenizer.rstrip("/").rpartition("/")[2].lower())
    return next((name for name in list_models() if re.sub(r"[^a-z0-9]", "", name) == told), None)


def _patched_rows(keys: Keys, tokenizer: str) -> int | None:
    """The rows that Pai-Megatron-Patch gives a tokenizer: its own number, or those of the model that --load names; None where neither is."""
    rows, said = _ROWS.get(tokenizer), "its own rows for this tokenizer"
    if rows is None and tokenizer in _LOADED and keys.given.get("load") is not None:
        last = str(keys.given["load"].value).rstrip("/").rpartition("/")[2]
        named = _named(_CONVERTED.sub("", last))
        if named is not None:
            rows, said = load_model(named).architecture.vocab_size, f"the rows of {named}, which --load names, since no tokenizer is read"
    if rows is not None:
        keys.note("patch_tokenizer_type", "derived", "vocab_size", f"{rows}: {said}")
        if keys.has("extra_vocab_size"):
            keys.note("extra_vocab_size", "no_cost_effect", why="these rows have them")
    return rows


def vocabulary(keys: Keys, fields: bool, tp: int, where: str) -> int:
    """The rows of the embedding: the tokenizer's, with unused ones up to a multiple."""
    multiple = keys.integer("make_vocab_size_divisible_by", None, to="vocab_size", least=1)
    padded = keys.integer("padded_vocab_size", None, to="vocab_size", least=1)
    kept = [keys.flag(key, False, to="vocab_size") for key in ("no_pad_vocab_size", "disable_pad_vocab_size")]
    size = keys.integer("vocab_size", None, to="vocab_size", least=1)
    tokenizer = keys.text("tokenizer_type", None)
    if tokenizer is not None:
        keys.note("tokenizer_type", "no_cost_effect", why="the vocabulary's size decides")
    if padded is not None:
        if size is not None:
            keys.note("vocab_size", "no_cost_effect", why="padded_vocab_size decides")
        return int(padded)
    patched = str(keys.given["patch_tokenizer_type"].value) if keys.has("patch_tokenizer_type") else ""
    if size is None and (rows := _patched_rows(keys, patched)) is not None:
        return rows
    if size is None and patched in _PATCHED:
        more = keys.integer("extra_vocab_size", 0, to="vocab_size")
        keys.note("patch_tokenizer_type", "derived", "vocab_size", f"{_PATCHED[patched] + more}: {_PATCHED[patched]} entries and {more} more")
        return int(_PATCHED[patched] + more)
    model = keys.given.get("tokenizer_model")
    if size is None and model is not None and (shipped := _named(str(model.value))) is not None:
        size = load_model(shipped).architecture.vocab_size
        keys.note("tokenizer_model", "derived", "vocab_size", f"{size}: the rows of {shipped}, since no tokenizer is read")
    if size is None and model is not None and (entries := _FILES.get(str(model.value), _FILES.get(str(model.value).rpartition("/")[2]))) is not None:
        size = entries
        keys.note("tokenizer_model", "derived", "vocab_size", f"{size} entries")
    if size is None and tokenizer in _TOKENIZERS:
        size = _TOKENIZERS[tokenizer]
        keys.note("tokenizer_type", "derived", "vocab_size", f"{size} entries")
    if size is None and tokenizer is None and {"vocab_file", "merge_file"} <= keys.given.keys():
        size = _TOKENIZERS[BPE]
        keys.note("vocab_file", "derived", "vocab_size", f"{size} entries: pieces and merges, as those of GPT-2")
    if size is None and keys.lenient:
        size = _TAKEN
        keys.rows["vocab_size"] = Entry("vocab_size", "(default)", "refused", "vocab_size", f"not given, and no tokenizer is read: taken as {size}")
    if size is None:
        raise InputError(f"{where}: the size of the vocabulary is not given, and no tokenizer is read; add --vocab-size N, or --of MODEL")
    if any(kept) or (fields and multiple is None):
        return int(size)
    step = (multiple or 128) * tp
    rows = padded_vocabulary(int(size), step)
    said = f"{rows} rows: {size} up to a multiple of {multiple or 128} x {tp} tensor-parallel ranks"
    if multiple is None:
        keys.rows["make_vocab_size_divisible_by"] = Entry("make_vocab_size_divisible_by", "(default)", "derived", "vocab_size", said)
    else:
        keys.note("make_vocab_size_divisible_by", to="vocab_size", why=said)
    return rows
