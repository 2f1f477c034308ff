import Merak
from Merak import MerakArguments, MerakTrainer
from Merak.core.tensor_parallel.mp_attrs import set_tp_layer_lists
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM

pp, tp, dp = 2, 2, 1
Merak.init(pp, tp, dp)
(training_args,) = HfArgumentParser(MerakArguments).parse_args_into_dataclasses()
set_tp_layer_lists(
    col_para_list=["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "gate_proj", "up_proj"],
    row_para_list=["self_attn.o_proj", "down_proj"],
    tp_attr_list=["num_heads", "num_key_value_heads"],
)
config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4, vocab_size=32000)
MerakTrainer(model=LlamaForCausalLM(config), args=training_args, train_dataset=...).train()
