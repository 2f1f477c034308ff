"""Bytes that a dispatcher's kernels set aside for the whole run (moe_token_dispatcher_type=flex), outside PyTorch's allocator.

deepep    queues: n_e / 2 channels, to each of at most 8 peers over NVLink q tokens and, between nodes, to each node 128 twice
          (deep_ep/buffer.py get_dispatch_config, csrc/config.hpp get_nvl_buffer_size_hint, get_rdma_buffer_size_hint)
hybridep  what arrives where every token of the group goes to one rank, with weights for all of a node's experts and scales of blocks
          (csrc/hybrid_ep/buffer/intranode.cu; what it sets aside between nodes depends on their number and is not counted)
"""

from __future__ import annotations

from symsim.algebra.expr import ONE, ZERO, Expr, maximum, minimum, symbol
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS
from symsim.lowering.lowered import Lowered
from symsim.placement.sizes import tokens_per_rank

PEERS = 8
# with every token of a queue: 128 experts of 8 bytes, weights of 4 and scales of 4, and where it is from
BESIDE = 128 * (8 + 4 + 4) + 8
# tokens of a queue over NVLink by ranks of the group, from so many on
QUEUES = {2: 256, 16: 288, 96: 480, 128: 560, 144: 720}


def multiprocessors(strategy: Strategy, between: Expr) -> Expr:
    """Those that an exchange takes: as told, else DeepEP's own number (deep_ep/buffer.py) or HybridEP's (csrc/hybrid_ep/config.cuh).
    between: 1 where the group spans nodes."""
    if strategy.moe_flex_dispatcher_num_sms is not None:
        return ONE * strategy.moe_flex_dispatcher_num_sms
    return ONE * 20 if strategy.moe_flex_dispatcher_backend == "deepep" else 24 - 16 * between


def exchange_buffers(lowered: Lowered) -> Expr:
    """Bytes of one rank; 0 under another dispatcher."""
    strategy, moe = lowered.profile.strategy, lowered.profile.model.moe
    if moe is None or strategy.moe_token_dispatcher_type != "flex":
        return ZERO
    ranks, width = lowered.mesh.degree("ep"), symbol("ell" if moe.moe_latent_size else "h")
    row = width * max(2, WIDTHS[strategy.precision])
    if strategy.moe_flex_dispatcher_backend == "hybridep":
        return tokens_per_rank(strategy, lowered.mesh) * ranks * (row + 4 * symbol("E") + width / 32)
    channels = multiprocessors(strategy, ZERO) / 2
    queue, last = ZERO, 0
    for size, tokens in QUEUES.items():
        queue, last = queue + (tokens - last) * minimum(1, maximum(0, ranks - size + 1)), tokens
    nodes = ranks / PEERS * minimum(1, maximum(0, ranks - PEERS))
    return channels * (row + BESIDE) * (minimum(ranks, PEERS) * queue + 2 * 128 * nodes)
