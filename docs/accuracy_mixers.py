"""The part of docs/accuracy.md on mixers: every one beside transformers' module code on real tensors, and what differs, by how much and why."""

from __future__ import annotations

DIFFERS = (
    "**KDA**, FLOPs: torch's own code makes the scores of a chunk elementwise, of keys with keys and of queries with keys, which no counter counts: "
    "4 b s' H 64 D of a layer, with s' of s in whole chunks of 64.",
    "**KDA**, kept bytes: the eager profile has flash-linear-attention's kernel, which keeps what it reads (q, k, v, the decay, the strength), "
    "and all "
    "else as the module writes it, which is what is compared. torch's own code keeps `[64 64 D]` of every token's chunk many times over: "
    "10,166,624 bytes "
    "where 509,280 are counted, of two rows of 48 tokens and four heads of 16.",
    "**Llama 4's experts** (chunked attention): the module code runs every expert on every token: E / K of the FLOPs of experts, and 694,272 "
    "bytes kept "
    "where 401,104 are counted, of a layer of four experts of which each token has one.",
    "**Embeddings of layers**: `[b s L h_p]` is one tensor of all layers; a layer counts the L-th part of it.",
    "**Differential attention**: the norm of heads is torch.nn.RMSNorm, which is counted as the processor runs it, written out in fp32; on a GPU "
    "it is one kernel, which keeps what it reads and a number a row.",
    "**Compressed attention** of rows shorter than one entry keeps 2 b s h_kv bytes less than is counted, where h_kv is a head's width: no "
    "entry is made.",
    "**transformers 5.24** against 5.23, which all else here is of: routers hold their weights in fp32 in A.X-K1 and K2, Ling, Beam, DeepSeek-V2 "
    "to V3.2 and OCR 2, dots1, EXAONE MoE, Flint, GLM-4 MoE to GLM-5, HY V3 and V4, Kimi Linear, MiMo-V2, Mistral Large 4, Nemotron-H and Solar "
    "Open, and a layer of experts keeps 4 E h "
    "bytes less, no copy of them (the types that came with 5.24 are counted so); the softmax offsets of HY V4 and DeepSeek-V4 are fp32, and scores "
    "with them: 2 b a s (2 k + 1) bytes more, where k is s and the compressed entries of a row; the convolution of Ling's KDA and the parameters "
    "of its decay are fp32, as what it reads and makes is then: 6 b q (2 s + w - 1) + 2 a bytes more, of heads q wide together and w steps; "
    "Mistral Large 4 trains a factor of every rotary frequency, qk_rope_head_dim / 2 parameters in all, "
    "which are a buffer in 5.23 and are not counted, and tables with a gradient keep what they turn, the joined queries, and keys with their "
    "latent: 2 b s (r + d_r + a (d_n + d_r)) bytes more of a layer with RoPE, where r is kv_lora_rank, d_n qk_nope_head_dim and d_r "
    "qk_rope_head_dim.",
    "**Experts of DBRX and Step 3.5**, loops of their own, are counted as grouped products: of R = b s K rows the loop keeps 2 R h bytes more, and "
    "8 R + 4 E less.",
    "**Micro-batches of one** where attention is written out: what is transposed stays where it lies in memory, so that values that are a slice of "
    "a wider projection (latent attention, joined weights) keep the whole of it, and no copy.",
    "**Activations of delta rules and state spaces** (short convolutions, output gates) are SiLU, as in every published model, whatever "
    "`hidden_act` says.",
)


def section() -> str:
    """Cases of every mixer, of which the tests hold that they are equal, and what differs."""
    import mixer_cases

    lines = [
        "## Mixers",
        "",
        "Forward FLOPs of a small model, as torch's FlopCounterMode counts transformers' module code, and bytes that a layer keeps for backward: "
        "storages",
        "that are alive after its forward on real tensors. Equal to the FLOP and to the byte, but for what is listed below",
        "(`tests/mixer_cases.py`; `tests/draws/huggingface.py` and `tests/draws/kept_drawn.py` make more). Megatron-Core's Mamba mixer is in "
        "megatron.json.",
        "",
        "| mixer | model types | FLOPs equal | kept bytes equal |",
        "|---|---|---|---|",
    ]
    for mixer, has in mixer_cases.MIXERS.items():
        kept = [(a.modelling, found == ours()) for _, a, kind, found, ours in mixer_cases.kept_cases() if has(a, kind)]
        counted = [(a.modelling, found == ours()) for _, a, found, ours in mixer_cases.flop_cases() if any(has(a, k) for k in a.layer_kinds.values())]
        names = ", ".join(f"`{name}`" for name in sorted({name for name, _ in kept + counted}))
        said = [f"{sum(equal for _, equal in rows)} of {len(rows)}" for rows in (counted, kept)]
        lines.append(f"| {mixer} | {names} | {said[0]} | {said[1]} |")
    return "\n".join([*lines, "", *(f"- {line}" for line in DIFFERS), ""])
