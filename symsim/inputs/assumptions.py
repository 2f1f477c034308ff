"""Conventions as data: every choice that does not follow from the einsums and placements.

Each has a default, its choices, a meaning and a source. `--set assume.NAME=VALUE` overrides one, and every
report prints those in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symsim.errors import InputError, nearest


@dataclass(frozen=True)
class Assumption:
    default: str
    choices: tuple[str, ...]
    meaning: str
    source: str


ASSUMPTIONS: dict[str, Assumption] = {
    "causal": Assumption(
        "full",
        ("full", "half", "exact"),
        "keys a query is charged for: full: all s; half: s/2; exact: (s+1)/2, or the exact mean inside a window",
        "full: torch FlopCounterMode, PaLM App. B, Narayanan et al. 2021; half: Megatron-LM training.py; exact: counting",
    ),
    "linear_attention_flops": Assumption(
        "chunked",
        ("chunked", "recurrence"),
        "products of mixers that pass states on, and of their convolutions: chunked: as they run: delta rules in chunks of 64 tokens, the last one "
        "and both ends of the convolution padded, triangular solves not counted; lightning attention and Mamba-2 in chunks of their own; of Mamba-1 "
        "what reads its states; recurrence: products of the state, four a head and token of a delta rule, two of the others",
        "chunked: torch FlopCounterMode of transformers' torch_chunk_gated_delta_rule and F.conv1d (models/qwen3_next), mamba2_chunk_scan "
        "(models/bamba), mamba_selective_scan (models/mamba), models/minimax; mamba_ssm ops/triton/ssd_combined.py (te); recurrence, of delta rules: "
        "Megatron-LM training.py gdn_layer_flops",
    ),
    "attention_kernel": Assumption(
        "flash",
        ("flash", "efficient", "math", "eager"),
        "flash: fused, keeps q, k, v, out and log-sum-exp, recomputes scores in backward (5 products for 2); efficient: "
        "the same with keys and values repeated to every query head; math: two products each way, scores kept; eager: the "
        "same written out in the modules (fusion=eager)",
        "Dao 2023 (FlashAttention-2) sec. 3; torch.utils.flop_counter; TransformerEngine FusedAttention",
    ),
    "dsa_stage": Assumption(
        "sparse",
        ("sparse", "warm_up"),
        "attention with an indexer works through the keys that it chose (sparse; kernels other than flash have a mask, and work through all), or "
        "through all keys, while the indexer alone is trained (warm_up)",
        "arXiv 2512.02556 sec. 2.1; transformers models/deepseek_v32: flash-mla takes the indices, eager and sdpa a mask",
    ),
    "dsa_index_scores": Assumption(
        "compute",
        ("compute", "fp8"),
        "products of an indexer's queries and keys run in the type of the computation (compute) or in FP8 (fp8)",
        "DeepSeek-V3.2 inference/kernel.py fp8_index; megatron.core transformer/experimental_attention_variant/dsa.py and transformers "
        "models/deepseek_v32: no FP8",
    ),
    "fp8_layouts": Assumption(
        "transposed",
        ("transposed", "any"),
        "recipes with one scale a tensor: tensor cores multiply FP8 in one layout, so that inputs, gradients and weights have transposed "
        "copies (transposed), or in any, from one copy (any: Blackwell)",
        "TransformerEngine pytorch/utils.py is_non_tn_fp8_gemm_supported: compute capability 10.0 and up, but 12.x",
    ),
    "recompute_early_stop": Assumption(
        "profile",
        ("profile", "true", "false"),
        "recomputation stops at the last tensor backward needs (true), or runs the whole region (false); profile: true under eager, false under te",
        "torch.utils.checkpoint early_stop; megatron.core.tensor_parallel.random.CheckpointFunction runs the whole region",
    ),
    "layernorm_linear_fusion": Assumption(
        "separate",
        ("separate", "fused"),
        "separate: a norm before a GEMM is a module of its own, so recompute_modules=layernorm drops its output; fused: "
        "LayerNormLinear keeps the output, and layernorm recompute has no effect on dense layers",
        "megatron.core local spec; TransformerEngine module/layernorm_linear.py",
    ),
    "moe_permute_fusion": Assumption(
        "false",
        ("false", "true"),
        "saved index tensors of token permutation: unfused int64 sort indices, or one fused int32 row map [T, 2E+1]",
        "megatron.core transformer/moe/moe_utils.py permute; TransformerEngine permutation.py",
    ),
    "moe_probabilities": Assumption(
        "experts",
        ("experts", "combine"),
        "where routing probabilities multiply: inside the experts, on the activation, so that they travel with the tokens; or "
        "as tokens are combined, which keeps every expert's output (alltoall dispatcher)",
        "experts: Megatron-Core since 0.13, moe/experts.py; combine: 0.12, moe/moe_utils.py unpermute",
    ),
    "mla_k_pe_gradient": Assumption(
        "omitted",
        ("omitted", "reduced"),
        "without sequence parallelism the rotary key's gradient is a partial sum over TP; Megatron-Core 0.20 issues no "
        "all-reduce for it (omitted), the placement rule asks for one (reduced)",
        "megatron.core transformer/multi_latent_attention.py, trace of mla_tp2_nosp",
    ),
    "expert_bias_gradient": Assumption(
        "summed",
        ("summed", "own"),
        "under sequence parallelism, gradients of the biases of experts' second product: summed over TP at the end of the step, as "
        "Megatron-Core's row-parallel layer marks its bias whatever etp is (summed), or over the experts' own ranks only (own)",
        "summed: megatron.core tensor_parallel/layers.py RowParallelLinear; own: TransformerEngine module/grouped_linear.py",
    ),
    "shared_redistribution": Assumption(
        "true",
        ("true", "false"),
        "projections that read one tensor share its gather and sum their gradients before one reduction (true), or each "
        "reduces its own (false: DTensor ColwiseParallel without PrepareModuleInput)",
        "torch.distributed.tensor.parallel; Megatron-Core runs them as one GEMM",
    ),
    "loss_parallel": Assumption(
        "true",
        ("true", "false"),
        "cross entropy on vocabulary-sharded logits (true), or logits gathered to every rank first (false)",
        "megatron.core vocab_parallel_cross_entropy; torch.distributed.tensor.parallel.loss_parallel",
    ),
    "save_gathered": Assumption(
        "profile",
        ("profile", "true", "false"),
        "an input gathered over TP or CP is kept as its shard and gathered again for the weight gradient (false), or kept "
        "gathered (true); profile: true under eager, false under te",
        "megatron.core tensor_parallel/layers.py LinearWithGradAccumulationAndAsyncCommunication; torch DTensor",
    ),
    "expert_load": Assumption(
        "balanced",
        ("balanced", "random", "in_turn"),
        "rows an expert-parallel rank receives: the mean (balanced), the busiest rank's where every token takes K of E experts at random (random), "
        "or the mean with a token's K in a row, on few ranks (in_turn); times the load imbalance (symbol lam, 1 unless set)",
        "balanced: set lam for a measured imbalance; random: Megatron-Core moe_router_force_load_balancing draws its logits so; the largest of e "
        "normal numbers, within 4 per cent for 2 to 256; in_turn: NeMo Automodel FakeBalancedGate",
    ),
    "lora_scaling": Assumption(
        "output",
        ("output", "rank"),
        "what the scale of an adapter multiplies: what its second product made (output), or its first (rank), which is as wide as the rank; of "
        "experts, and with magnitudes (use_dora), output",
        "output: peft tuners/lora/layer.py, torchtune modules/peft/lora.py, Megatron-Bridge peft/utils.py; rank: NeMo Automodel _peft/lora.py",
    ),
    "dispatcher_metadata": Assumption(
        "counted",
        ("counted", "omitted"),
        "token counts (int64) and routing maps that dispatchers exchange besides tokens",
        "megatron.core transformer/moe/token_dispatcher.py",
    ),
    "pipeline_scatter_gather": Assumption(
        "false",
        ("false", "true"),
        "without sequence parallelism every tensor-parallel rank sends the whole boundary tensor to the next stage (false), "
        "or its share, which the next stage gathers over tensor-parallel ranks on arrival (true)",
        "false: Megatron-Core p2p_communication.py; true: Narayanan et al., arXiv:2104.04473, sec. 4.1 (Megatron-LM until 2022)",
    ),
    "tp_async_backward": Assumption(
        "false",
        ("false", "true"),
        "without tp_comm_overlap, backward runs its gathers and reductions over TP before or after their products (false), "
        "or the gather of the saved input beside the input gradient's product and the reduction of the input gradient "
        "beside the weight gradient's, at full speed each (true)",
        "false: the A100-PCIe and B200 steps of SimuMax v1.2, where tensor-parallel time adds up; true: what "
        "TransformerEngine module/layernorm_linear.py (async_op=True) and Megatron-Core tensor_parallel/layers.py issue",
    ),
    "moe_exchange": Assumption(
        "per_expert",
        ("per_expert", "once_per_node"),
        "what crosses between nodes in the exchange of tokens: a copy for every expert a token goes to, or one for every "
        "node that has any of them (at most as many as there are nodes)",
        "per_expert: Megatron-Core token_dispatcher.py MoEAlltoAllTokenDispatcher; once_per_node: DeepEP and HybridEP (deepseek-ai/DeepEP README)",
    ),
    "moe_grouped_gemm": Assumption(
        "true",
        ("true", "false"),
        "the experts of a rank run as one grouped product (true), or one after the other (false)",
        "true: TransformerEngine GroupedLinear, torch._grouped_mm; false: transformers before 5, Megatron-Core SequentialMLP",
    ),
    "gemm_tiles": Assumption(
        "counted",
        ("counted", "ignored"),
        "a matrix product computes whole tiles of 128 x 128, on all multiprocessors at once (counted), or its rows and columns and no others "
        "(ignored: an ideal machine, as closed forms of papers have it)",
        "counted: NVIDIA, Matrix Multiplication Background, sec. 3-4",
    ),
    "host_launch": Assumption(
        "counted",
        ("counted", "hidden"),
        "a block takes at least as long as the host needs to launch its kernels, those of CUDA graphs (cuda_graph_impl) as one (counted), or "
        "launches cost nothing (hidden)",
        "counted: kernels are launched one by one from Python, 40 us each (host: launch of a system) - measured on a800-sxm; Megatron-Bridge "
        "profiles 463,348 kernels in a step of 20.99 s (skills/nemo-mbridge-perf-moe-comm-overlap), at most 45 us each",
    ),
    "fsdp_unit": Assumption(
        "layer",
        ("layer", "module"),
        "what sharded parameters are gathered by: a layer at once, or every module by itself, which costs the host a gather each",
        "layer: torch.distributed.fsdp fully_shard as torchtitan applies it; module: DeepSpeed ZeRO-3 (runtime/zero/parameter_offload.py)",
    ),
    "fsdp_prefetch": Assumption(
        "true",
        ("true", "gathers", "false"),
        "sharded parameters arrive, and their gradients leave, while another unit computes (true), parameters alone do (gathers: DeepSpeed's "
        "ZeRO-3 of 2021 with overlap_comm off), or computation waits for them (false: later, with overlap_comm off)",
        "torch.distributed.fsdp fully_shard (implicit prefetching); DeepSpeed runtime/zero/partitioned_param_coordinator.py; v0.3.13 "
        "runtime/zero/stage3.py: a stream of its own for gathers, one for gradients with overlap_comm",
    ),
    "unit_ranks": Assumption(
        "even",
        ("even", "full"),
        "ranks used of a node or NVLink domain: as many as hold groups evenly (64 of 72), or all",
        "even: Slurm sbatch --segment, 16 of an NVL72's 18 nodes (NVIDIA's blog); full: Megatron-Core RankGenerator",
    ),
    "fsdp_rings": Assumption(
        "all",
        ("all", "one"),
        "what zero=3 gathers and scatters crosses nodes in as many rings as a node has members, each over its own link (all), or in one, which "
        "reaches three quarters of what a link does",
        "all: NCCL; one: DeepSpeed of 2021, whose 15.7 to 17.3 GB/s a rank (Narayanan et al., arXiv:2104.04473, table 2) are of one link's 25",
    ),
    "zero_reduction": Assumption(
        "reduce_scatter",
        ("reduce_scatter", "all_reduce"),
        "how gradients come to the ranks that own them: zero=1 once a step, zero=2 every micro-batch",
        "reduce_scatter: ZeRO, arXiv:1910.02054, sec. 5; all_reduce: DeepSpeed runtime/zero/stage_1_and_2.py with "
        "use_multi_rank_bucket_allreduce, its default",
    ),
    "gradient_scaling": Assumption(
        "all",
        ("all", "owned", "both", "collective"),
        "gradients are divided by the number of ranks that share them in a pass over all that a rank holds, before they are reduced (all), or "
        "over the share that it owns, after (owned), by a part of it in each (both), or by the collective itself (collective)",
        "all: Megatron-Core distributed/param_and_grad_buffer.py; owned: DeepSpeed and Merak without prescale_gradients (zero/stage1.py); both: "
        "DeepSpeed runtime/zero/stage_1_and_2.py with gradient_predivide_factor; collective: Megatron-Core average_in_collective",
    ),
    "deterministic_attention": Assumption(
        "false",
        ("false", "true"),
        "flash attention's backward adds the gradient of queries up in any order (false), or in a fixed one, which takes 1/(1 - 0.379) of its "
        "seconds: the largest loss measured (true)",
        "Qiang et al., DASH, arXiv:2601.21824, abstract: up to 37.9 % less throughput of FlashAttention-3's deterministic backward",
    ),
    "stragglers": Assumption(
        "none",
        ("none", "nodes"),
        "all ranks are equally fast (none), or the pipeline waits for the slowest of n groups: a share 0.09 sqrt(x) x / (x + 1) of it longer, "
        "with x = log2 n rounded up and n the least of the units of the last tier but one, dp and the experts' dp (nodes)",
        "none: steps are means of equal ranks; nodes: SimuMax v1.2 (enable_straggler_model), which gives no measurement for it",
    ),
    "row_balance": Assumption(
        "drawn",
        ("drawn", "balanced"),
        "rows of documents of several lengths: drawn, so that the step waits for the longest of its micro-batches and data ranks: the "
        "expected maximum of so many sums of rows that hold such documents, at whose lengths all kernels are timed again (drawn), or chosen so "
        "that all have as much work (balanced)",
        "drawn: Tippett, Biometrika 17, 1925 (expected extremes of normal samples), and Cornish and Fisher, Rev. Inst. Int. Stat. 5, 1938 "
        "(those of others by powers of these); balanced: Megatron-Core's sequence packing scheduler "
        "and hybrid context parallelism (datasets/data_schedule.py)",
    ),
    "reduction_buffers": Assumption(
        "none",
        ("none", "one", "two"),
        "gradients are reduced where they lie (none), or copied into a buffer of a bucket first, or two of them in turn: while backward "
        "runs, under zero=3 always, in place of a unit's gradients",
        "none: Megatron-Core distributed/param_and_grad_buffer.py; one: DeepSpeed runtime/zero/stage_1_and_2.py, stage3.py with "
        "contiguous_gradients; two: the same with overlap_comm",
    ),
    "mfu_flops": Assumption(
        "model",
        ("model", "executed"),
        "model FLOPs of MFU: three times forward (model), or forward and backward as executed, with attention scores "
        "computed again (executed); HFU adds recomputation",
        "PaLM, arXiv:2204.02311, App. B; Korthikanti et al., arXiv:2205.05198, sec. 5",
    ),
    "mfu_windows": Assumption(
        "computed",
        ("computed", "counted"),
        "attention that MFU and HFU count in layers with a window or chunks: the keys inside them (computed), or what causal "
        "says, with full every key (counted: as torch FlopCounterMode counts)",
        "computed: FlashAttention-2 window_size, which skips blocks outside; counted: PaLM, arXiv:2204.02311, App. B, as written for full attention",
    ),
    "apply_rope_fusion": Assumption(
        "false",
        ("false", "true", "apart"),
        "rotary embeddings keep their cosines and sines in every layer (false), or one table of angles serves all (true); apart: they keep them, and "
        "each product, sum and copy is a kernel, as it is wherever YaRN scales them (attention.rotary_scaled), which the fused kernel does not",
        "megatron.core models/common/embeddings/rope_utils.py apply_rotary_pos_emb; TransformerEngine attention/rope.py; Megatron-LM enables the "
        "fusion by default",
    ),
    "te_dummy_wgrad": Assumption(
        "true",
        ("true", "false"),
        "fused weight gradients: TransformerEngine keeps one placeholder gradient for every shape of weight (true, from 2.3), "
        "or makes one for each weight as its gradient is done (false)",
        "TransformerEngine module/base.py get_dummy_wgrad; SimuMax v1.2 (te_version)",
    ),
    "library_workspace": Assumption(
        "none",
        ("none", "ampere", "hopper"),
        "cuBLAS workspaces inside PyTorch's allocator: PyTorch's and TransformerEngine's, 8.125 + 4 MiB before Hopper, 32 + 32 MiB since",
        "PyTorch aten/src/ATen/cuda/CublasHandlePool.cpp; TransformerEngine module/base.py get_cublas_workspace_size_bytes",
    ),
    "device_context": Assumption(
        "none",
        ("none", "cuda"),
        "memory outside PyTorch's allocator: none, or about 500 MiB of CUDA context and modules (NCCL channels not included)",
        "an order of magnitude, not a measurement; off by default",
    ),
    "device_reserve": Assumption(
        "counted",
        ("counted", "none"),
        "kept free beside a peak that fits: 911 MiB of the driver's, and 500 MiB of CUDA context and modules unless device_context counts them "
        "(counted), or nothing (none)",
        "of 80 GiB an H100 shows PyTorch 79.11 (NVIDIA-NeMo/RL issue 2814); context: an order of magnitude",
    ),
    "communicator_buffers": Assumption(
        "counted",
        ("counted", "none"),
        "kept free beside a peak that fits, for every group in which a rank exchanges messages: NCCL's buffers, 544 MiB of two ranks and 688 of "
        "more (counted), or nothing (none)",
        "NVIDIA/nccl issue 964, measured on A100 over NVLink with PyTorch",
    ),
    "allocator": Assumption(
        "caching",
        ("caching", "expandable"),
        "what PyTorch's allocator holds unused in fragments and by rounding, kept free beside a peak that fits: 6 % of what it reserves (caching), "
        "or nothing, where segments grow page by page (expandable)",
        "caching: SimuMax v1.2 (mem_factor 0.94); expandable: PyTorch CUDACachingAllocator.cpp (expandable_segments:True)",
    ),
    "memory": Assumption(
        "allocated",
        ("allocated", "reserved"),
        "what a peak means: bytes in use (torch max_memory_allocated), or what the allocator reserved for them, of which 94 % is in use "
        "(all of it with allocator=expandable)",
        "SimuMax v1.2 (mem_factor)",
    ),
    "fsdp_parameters": Assumption(
        "both",
        ("both", "main"),
        "zero=3 keeps a shard of the parameters in the compute type beside the shard that the optimizer updates (both), or only "
        "the latter, cast as it is gathered (main)",
        "both: DeepSpeed stage3.py, Megatron-FSDP; main: torch.distributed.fsdp fully_shard with MixedPrecisionPolicy",
    ),
    "fsdp_initialization": Assumption(
        "meta",
        ("meta", "device"),
        "zero=3: parameters come into being as shards (meta), or whole on every rank before they are cut (device), a moment that counts too",
        "meta: torch.distributed.fsdp fully_shard of a model on the meta device; device: Megatron-LM without init_model_with_meta_device",
    ),
    "checkpoint_unpacking": Assumption(
        "none",
        ("none", "mxfp4"),
        "a load that leaves nothing behind (none), or experts that every rank unpacks from MXFP4 on its device as it loads what it trains, a moment "
        "that counts too (mxfp4): 11.65625 bytes an element of the largest projection (of 2^30 elements; 2.65625 of more), beside all else",
        "mxfp4: transformers 4.55 integrations/mxfp4.py (Mxfp4Config(dequantize=True)), whose indices of nibbles are int64",
    ),
    "step_barrier": Assumption(
        "true",
        ("true", "false"),
        "the next step starts when the last rank of the pipeline has ended (true), or on every rank as soon as its own work of the step "
        "is done (false: the optimizer steps at once, and is checked after), which shortens zb_h1, zb_h2 and zbv",
        "true: Megatron-Core optimizer (gradient norm over all ranks); false: Zero Bubble Pipeline Parallelism, arXiv:2401.10241, sec. 4",
    ),
    "optimizer_implementation": Assumption(
        "fused",
        ("fused", "foreach", "for_loop", "compiled"),
        "temporaries of Adam's update, and what it moves besides (13 numbers a parameter but for fused): none (fused), one more moment of every "
        "parameter (foreach), two of a parameter and one of the last (for_loop); of moments in blocks what the largest parameter's kernel writes on "
        "its way, and copies as it is tuned in the first step (compiled: torchao)",
        "torch.optim.adamw _fused_adamw, _multi_tensor_adamw, _single_tensor_adamw; Megatron-Core uses a fused Adam; "
        "torchao prototype/low_bit_optim/adam.py",
    ),
    "padding": Assumption(
        "none",
        ("none",),
        "vocabulary and expert rows are not padded; give the padded vocab_size where a system pads",
        "megatron.core pads the vocabulary in its tokenizer, outside the model",
    ),
}


class Remembered(dict[str, str]):
    """Assumptions that remember which of them were read as `[name]`; those resolved of them remember together."""

    def __init__(self, given: Mapping[str, str], read: set[str] | None = None):
        super().__init__(given)
        self.read: set[str] = set() if read is None else read

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return super().__getitem__(name)


def resolve(given: Mapping[str, str]) -> Remembered:
    """All assumptions with the given overrides, which remember what is read of them; InputError for an unknown name or choice."""
    for name, value in given.items():
        if name not in ASSUMPTIONS:
            raise InputError(f"assume.{name} is not an assumption: {nearest(name, list(ASSUMPTIONS))}")
        choices = ASSUMPTIONS[name].choices
        if str(value).lower() not in choices:
            only = f"'{choices[0]}' is the only one" if len(choices) == 1 else None
            raise InputError(f"assume.{name}={value} is not a choice: {nearest(str(value), choices, only)}")
    resolved = {name: str(given.get(name, a.default)).lower() for name, a in ASSUMPTIONS.items()}
    return Remembered(resolved, given.read if isinstance(given, Remembered) else None)
