"""Where the one rule does not hold: every place in which a layout or a message follows from something else, with its source.

What a framework does otherwise is in `frameworks/choices.py`, what holds for some operations alone in `ir/exceptions.py`, and what
cannot follow at all in `assumptions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exceptional:
    """where: module and function. rule: what would follow. instead: what holds."""

    where: str
    rule: str
    instead: str
    source: str


TABLE = (
    Exceptional(
        "symsim.layers.notation:whole",
        "a layer does not say where a tensor lies",
        "the rotary key of latent attention and the merged streams of multi-token prediction are asked for whole",
        "Megatron-Core transformer/multi_latent_attention.py, multi_token_prediction.py",
    ),
    Exceptional(
        "symsim.layers.mla:packed",
        "a layer names no copy, its kernels do",
        "values of latent attention are copied inside the part that mla_up_proj runs again",
        "Megatron-Core transformer/multi_latent_attention.py",
    ),
    Exceptional(
        "symsim.placement.sizes:dimensions",
        "a dimension has the size of the whole model, and its axes divide it",
        "R, the rows of a rank's experts, is what one rank has to compute: no placement of tokens gives their number (assumption expert_load)",
        "Megatron-Core transformer/moe/token_dispatcher.py",
    ),
    Exceptional(
        "symsim.placement.mesh:divisor",
        "an axis divides the dimension that lies on it",
        "dp does not divide b, which is one rank's micro-batch already",
        "Megatron-Core num_microbatches_calculator.py: micro_batch_size is a rank's",
    ),
    Exceptional(
        "symsim.placement.names:placement_of",
        "one name is one dimension",
        "h_o is h where the streams of multi-token prediction are merged, so that it may lie on tp",
        "Megatron-Core transformer/multi_token_prediction.py: eh_proj is a column-parallel linear",
    ),
    Exceptional(
        "symsim.lowering.communicate:communicate",
        "an input is brought to where the dimensions of its operation lie",
        "keys and values stay where they were made on the axes of a ring",
        "TransformerEngine attention/dot_product_attention/context_parallel.py",
    ),
    Exceptional(
        "symsim.lowering.communicate:_expand_groups",
        "a dimension is split evenly over its axis",
        "fewer key/value heads than tensor ranks: their projection is gathered, and every rank takes the head of its queries",
        "Megatron-Core transformer/attention.py get_query_key_value_tensors",
    ),
    Exceptional(
        "symsim.lowering.exchange:token_messages",
        "a tensor that moves from tokens to experts is one all-to-all",
        "the collective that its dispatcher has (a row of ir/operations.py each), with what tells ranks how many rows come",
        "Megatron-Core transformer/moe/token_dispatcher.py",
    ),
    Exceptional(
        "symsim.lowering.differentiate:differentiate",
        "a partial gradient is reduced where it is needed",
        "over dp and ep it stays partial until the parameter it leads to, and is summed at the end of the step",
        "Megatron-Core distributed/param_and_grad_buffer.py; torch.distributed.fsdp",
    ),
    Exceptional(
        "symsim.lowering.differentiate:_reduction",
        "a weight's gradient is summed over the axes that split its operation and not itself",
        "experts': over edp, the ranks that hold the same experts, in place of those that tokens came from",
        "Megatron-Core parallel_state.py expert data-parallel groups",
    ),
    Exceptional(
        "symsim.lowering.differentiate:_of_bias",
        "a parameter sees what its operation runs over",
        "a bias sees what is there after the reduction of its product, where it is added",
        "Megatron-Core tensor_parallel/layers.py RowParallelLinear",
    ),
    Exceptional(
        "symsim.lowering.differentiate:_balance_messages",
        "what is counted is summed over the axes that split it",
        "tokens per expert are summed over tp and cp (and dp), whether tp splits tokens or not",
        "Megatron-Core transformer/moe/router.py",
    ),
    Exceptional(
        "symsim.lowering.differentiate:ring_messages",
        "keys and values are gathered over cp where attention reads them whole",
        "a ring passes them on step by step, and their gradients after them",
        "TransformerEngine attention/dot_product_attention/context_parallel.py",
    ),
    Exceptional(
        "symsim.lowering.remember:kept_as",
        "what a framework gathers again in backward is kept as its shard",
        "what was gathered over etp stays gathered: the dispatcher gathers there, and not the product",
        "Megatron-Core transformer/moe/token_dispatcher.py",
    ),
    Exceptional(
        "symsim.cost.held:held_output_layer",
        "a stage holds the parameters of what it runs",
        "of a tied head the table is that of the embedding, where the stage has it",
        "Megatron-Core models/gpt/gpt_model.py",
    ),
    Exceptional(
        "symsim.cost.reduce:_expert_biases",
        "a bias that every tensor rank has whole is summed over tp where tokens were split",
        "biases of experts' second product are, whatever etp is (assumption expert_bias_gradient)",
        "Megatron-Core distributed/finalize_model_grads.py",
    ),
    Exceptional(
        "symsim.cost.reduce:_copied_table",
        "one stage holds a parameter",
        "every stage that looks up tokens, or multiplies with a tied table, has a copy, and their gradients are summed",
        "Megatron-Core distributed/finalize_model_grads.py",
    ),
    Exceptional(
        "symsim.cost.reduce:_shared_weights",
        "one stage holds a parameter",
        "every stage with a layer that has a weight from another one has a copy, and their gradients are summed",
        "Megatron-Core distributed/finalize_model_grads.py, of its tied table",
    ),
    Exceptional(
        "symsim.cost.reduce:_router_bias",
        "what is counted is summed over the axes that split it",
        "tokens per expert of the selection bias are summed over tp too, whether it splits tokens or not",
        "Megatron-Core transformer/moe/moe_utils.py get_updated_expert_bias",
    ),
    Exceptional(
        "symsim.cost.hbm:_loss_bytes",
        "a kernel reads its operands and writes its results once",
        "the unfused loss is ten kernels forward and three backward: 38 and 14 bytes a logit",
        "Megatron-Core tensor_parallel/cross_entropy.py",
    ),
    Exceptional(
        "symsim.cost.kernel_time:launches",
        "a host launches an operation once",
        "a grouped product once for every expert",
        "TransformerEngine pytorch/cpp_extensions/gemm.py general_grouped_gemm",
    ),
    Exceptional(
        "symsim.cost.block_time:_exposed",
        "a message over tp hides beside the product that it feeds or follows",
        "not in the embedding and the output layer, whose products are not TransformerEngine's",
        "Megatron-Core tensor_parallel/layers.py; TransformerEngine pytorch/module/base.py",
    ),
    Exceptional(
        "symsim.cost.workspace:_Backward",
        "a gradient is new memory",
        "that of the loss lies where its saved softmax lies",
        "Megatron-Core tensor_parallel/cross_entropy.py",
    ),
    Exceptional(
        "symsim.cost.workspace:_node",
        "a weight gradient follows the input gradient of its operation",
        "delayed ones come after those of a part of a layer: the feed-forward network or the experts, and all before them",
        "Megatron-Core models/common/model_chunk_schedule_plan.py",
    ),
    Exceptional(
        "symsim.cost.memory_gathered:gathered_parameters",
        "FSDP gathers what runs, while it runs",
        "embedding, head and final norm are one unit, which stays gathered",
        "torch distributed/fsdp/_fully_shard",
    ),
    Exceptional(
        "symsim.evaluation.buffers:_of_block",
        "a gradient buffer has parameters in the order of their use",
        "in that in which modules register them",
        "Megatron-Core transformer/attention.py, multi_latent_attention.py, moe/moe_layer.py, moe/shared_experts.py",
    ),
)
