"""The machine and the models on which the numeric peers are asked, in their own files: H100s, every efficiency one and every latency nothing."""

from __future__ import annotations

from typing import Any

# facts of Llama 3 70B; of an H100 SXM, its links one way, in FLOP/s, bytes, bytes/s
LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCABULARY, SEQUENCE = 80, 8192, 64, 8, 28672, 128256, 4096
PEAK, PEAK_VECTOR, MEMORY, MEMORY_BANDWIDTH = 989e12, 134e12, 80 * 2**30, 3.35e12
NODE, NVLINK, NIC = 8, 450e9, 400e9 / 8


def simumax_system() -> dict[str, Any]:
    """SYSTEM.json of SimuMax."""
    matrix = {"tflops": PEAK / 1e12, "efficient_factor": 1.0}
    ring = {"all_reduce": (2, -1), "all_gather": (1, -1), "reduce_scatter": (1, -1), "p2p": (1, 0), "all2all": (1, -1)}

    def link(rate: float) -> dict[str, Any]:  # its GB/s are GiB/s
        bandwidth = {"gbps": rate / 2**30, "efficient_factor": 1.0, "latency_us": 0}
        return {"processor_usage": 0.0, "bandwidth": bandwidth, "op": {name: {"scale": s, "offset": o} for name, (s, o) in ring.items()}}

    return {
        "sys_name": "h100-sxm",
        "num_per_node": NODE,
        "accelerator": {
            "backend": "cuda",
            "mem_gbs": MEMORY / 2**30,
            "mode": "roofline",
            "op": {name: matrix for name in ("default", "matmul", "sdp_fwd", "sdp_bwd")},
            "bandwidth": {"default": {"gbps": MEMORY_BANDWIDTH / 2**30, "efficient_factor": 1.0, "latency_us": 0}},
        },
        # between nodes it wants the rate of a node
        "networks": {"low_intra_node": link(NVLINK), "high_intra_node": link(NVLINK), "inter_node": link(NODE * NIC)},
    }


def simumax_model() -> dict[str, Any]:
    """MODEL.json of SimuMax: Llama 3 70B."""
    return {
        "model_type": "dense",
        "model_name": "llama3-70b",
        "hidden_size": HIDDEN,
        "head_num": HEADS,
        "kv_head_num": KV_HEADS,
        "head_size": HIDDEN // HEADS,
        "intermediate_size": FFN,
        "layer_num": LAYERS,
        "vocab_size": VOCABULARY,
        "use_swiglu": True,
    }


def calculon_system() -> dict[str, Any]:
    """SYSTEM.json of Calculon."""
    ring = {"p2p": [1.0, None], "reduce_scatter": [1.0, -1], "all_gather": [1.0, -1], "all_reduce": [2.0, -1]}

    def link(rate: float, ranks: int) -> dict[str, Any]:
        of_ring = {"efficiency": 1.0, "latency": 0.0, "ops": ring, "must_be_filled": False, "processor_usage": 0.0}
        return {"bandwidth": rate / 1e9, "size": ranks, **of_ring}

    def memory(size: float) -> dict[str, Any]:
        return {"GiB": size / 2**30, "GBps": MEMORY_BANDWIDTH / 1e9, "MB_efficiency": [[0, 1.0]]}

    return {
        "matrix": {"bfloat16": {"tflops": PEAK / 1e12, "gflops_efficiency": [[0, 1.0]]}},
        "vector": {"bfloat16": {"tflops": PEAK_VECTOR / 1e12, "gflops_efficiency": [[0, 1.0]]}},
        "mem1": memory(MEMORY),
        "mem2": memory(0),
        "processing_mode": "roofline",
        "networks": [link(NVLINK, NODE), link(NIC, 2**16)],
    }


def calculon_application() -> dict[str, Any]:
    """APPLICATION.json of Calculon: GPT-3 13B, the multi-head attention and ungated MLP that its blocks have."""
    return {"hidden": 5120, "feedforward": 4 * 5120, "seq_size": 2048, "attn_heads": 40, "attn_size": 128, "num_blocks": 40}
