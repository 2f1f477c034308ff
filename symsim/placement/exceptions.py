"""Where the one rule does not hold: every place in which a layout or a message follows from something else, with its source.

What a framework does otherwise is in `frameworks/choices.py`, what holds for some operations alone in `operations.EXCEPTIONS`, and what
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
        "symsim.placement.mesh:local_size",
        "an axis divides the dimension that lies on it",
        "dp does not divide b, which is one rank's micro-batch already",
        "Megatron-Core num_microbatches_calculator.py: micro_batch_size is a rank's",
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
        "symsim.lowering.differentiate:ring_messages",
        "keys and values are gathered over cp where attention reads them whole",
        "a ring passes them on step by step, and their gradients after them",
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
        "the dispatcher's collectives, with what tells ranks how many rows come",
        "Megatron-Core transformer/moe/token_dispatcher.py",
    ),
    Exceptional(
        "symsim.cost.reduce:_expert_biases",
        "a bias that every tensor rank has whole is summed over tp where tokens were split",
        "biases of experts' second product are, whatever etp is (assumption expert_bias_gradient)",
        "Megatron-Core distributed/finalize_model_grads.py",
    ),
    Exceptional(
        "symsim.placement.names:placement_of",
        "one name is one dimension",
        "h_o is h where the streams of multi-token prediction are merged, so that it may lie on tp",
        "Megatron-Core transformer/multi_token_prediction.py: eh_proj is a column-parallel linear",
    ),
)
