"""The cases of ../shared/oracle/comm.json as symsim derivations: messages by (phase, operation, dtype).

Each function gives (expected, computed): dictionaries of (phase, op, dtype) -> (count, bytes in, bytes out).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from symsim.algebra.expr import ONE, expr, symbol
from symsim.api.result import Result, derive
from symsim.evaluation.buffers import buckets
from symsim.inputs.architecture import Architecture, Attention, Mlp
from symsim.inputs.hf import read_config
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.ir.block import Block, Dim, Op, Tensor
from symsim.ir.messages import Message
from symsim.lowering.communicate import PARTIAL, Placed, State, redistribute
from symsim.lowering.differentiate import differentiate
from symsim.placement.mesh import Mesh

Table = dict[tuple[str, str, str], tuple[int, int, int]]
OPS = {"AR": "all_reduce", "AG": "all_gather", "RS": "reduce_scatter", "A2A": "all_to_all"}
NAMES = {
    "llama-3-8b": "llama3-8b",
    "llama-2-7b": "llama2-7b",
    "llama-3-70b": "llama3-70b",
    "llama-1-65b": "llama1-65b",
    "qwen2.5-72b": "qwen2.5-72b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
}


def expected(case: dict[str, Any], ring: bool = False) -> Table:
    found: Table = {}
    for key, row in case["summary"].items():
        phase, rest = key.split(":", 1)
        op, dtype = rest.split("@")[0], key.rsplit(":", 1)[1]
        name = "p2p" if ring and op == "A2A" else OPS[op]  # PyTorch's ring realises a step as an all-to-all
        found[({"fwd": "forward", "bwd": "backward"}[phase], name, {"bfloat16": "bf16", "float32": "fp32"}.get(dtype, dtype))] = (
            row["count"],
            row["bytes_in"],
            row["bytes_out"],
        )
    return found


def table(messages: Iterable[Message], values: dict[str, Any], microsteps: int = 1) -> Table:
    count: Counter[tuple[str, str, str]] = Counter()
    sent: Counter[tuple[str, str, str]] = Counter()
    received: Counter[tuple[str, str, str]] = Counter()
    for m in messages:
        key, n = (m.phase, m.op, m.dtype), int(m.count.evaluate(values)) * (microsteps if m.per == "microbatch" else 1)
        if m.group == ONE:
            continue
        count[key] += n
        sent[key] += n * int(m.send_bytes.evaluate(values))
        received[key] += n * int(m.receive_bytes.evaluate(values))
    return {k: (count[k], sent[k], received[k]) for k in count}


def block_messages(result: Result, *names: str) -> list[Message]:
    both = [m for n in names for _, m in (*result.lowered.blocks[n].differentiated.forward_messages, *result.lowered.blocks[n].backward_messages)]
    return both


def model(case: dict[str, Any], layers: int) -> Architecture:
    name = NAMES[case["name"]]
    architecture = load_model(name).architecture
    return architecture.model_copy(update={"layers": (architecture.layers[0].model_copy(update={"repeat": layers}),)})


def tensor_parallel(case: dict[str, Any]) -> tuple[Table, Table]:
    """One decoder layer under DTensor TP, with or without sequence parallelism; naive: every projection reduces for itself."""
    naive = case["kind"] == "TP-naive"
    strategy = Strategy(tp=case["tp"], sp=case["kind"] == "TP+SP", fusion="eager", micro_batch_size=case["b"], seq_length=case["s"])
    architecture = model(case, 1)
    if architecture.query_groups % case["tp"]:  # PyTorch splits the width of k and v, inside heads; counts do not depend on heads
        architecture = architecture.model_copy(update={"attention": architecture.attention.model_copy(update={"num_query_groups": None})})
    result = derive(architecture, strategy, {"shared_redistribution": "false"} if naive else {})
    return expected(case), table(block_messages(result, "dense"), result.numbers)


def embedding_and_head(case: dict[str, Any]) -> tuple[Table, Table]:
    """Vocabulary-parallel embedding, a norm and the head; loss on sharded or on gathered logits."""
    architecture = Architecture(
        name="head",
        hidden_size=case["hidden"],
        vocab_size=case["V"],
        layers=1,
        normalization="LayerNorm",
        attention=Attention(num_attention_heads=case["tp"], kv_channels=64),
        mlp=Mlp(ffn_hidden_size=64 * case["tp"]),
    )
    strategy = Strategy(tp=case["tp"], sp="_SP" in case["name"], fusion="eager", micro_batch_size=case["b"], seq_length=case["s"])
    loss_parallel = "true" if case["name"].endswith("lossparallel") else "false"
    result = derive(architecture, strategy, {"loss_parallel": loss_parallel})
    return expected(case), table(block_messages(result, "embedding", "head"), result.numbers)


def fsdp(case: dict[str, Any]) -> tuple[Table, Table]:
    """FSDP2 and HSDP over decoder layers and a root unit; with TP, only the layers are tensor parallel."""
    mesh, tp = case["mesh"], case["tp"]
    reduce = case["reduce_dtype"]
    common: dict[str, Any] = dict(
        dp=mesh[-1] * (mesh[0] if len(mesh) == 2 else 1),
        zero=3,
        fusion="eager",
        seq_length=512,
        grad_reduce_in_fp32=reduce == "float32",
        num_distributed_optimizer_instances=mesh[0] if len(mesh) == 2 else 1,
        reshard_after_forward=case["reshard_after_forward"],
        reshard_after_backward=case["reshard_after_backward"],
        gradient_sync="last_microbatch" if case["sync_last_only"] else "every_microbatch",
        recompute="full" if case["activation_checkpointing"] else "none",
    )
    architecture = model(case, case["layers"])
    result = derive(architecture, Strategy(tp=tp, **common))
    layers = [m for m in result.stage_messages(result.stages[0]) if m.axis != "tp" and m.what != "root"]
    plain = derive(architecture, Strategy(**common))
    root = [m for m in plain.stage_messages(plain.stages[0]) if m.what == "root"]
    kind = architecture.kind_names()[0]
    kind = architecture.kind_names()[0]
    steps = case["microsteps"]
    tables = [table(layers, stage_numbers(result), steps), table(root, stage_numbers(plain), steps)]
    tables += [table(block_messages(result, kind), result.numbers)] * case["layers"]
    return expected(case), together(tables)


def stage_numbers(result: Result) -> dict[str, Any]:
    return result.stage_numbers(result.stages[0])


def together(tables: Iterable[Table]) -> Table:
    total: Table = {}
    for one in tables:
        for key, row in one.items():
            count, sent, received = total.get(key, (0, 0, 0))
            total[key] = (count + row[0], sent + row[1], received + row[2])
    return total


def ring(case: dict[str, Any]) -> tuple[Table, Table]:
    """Ring attention of one attention layer; causal balance changes FLOPs, not messages."""
    architecture = Architecture(
        name="ring",
        hidden_size=case["H"] * case["d"],
        vocab_size=1024,
        layers=1,
        mlp=Mlp(ffn_hidden_size=1024),
        attention=Attention(num_attention_heads=case["H"], num_query_groups=case["KV"], kv_channels=case["d"]),
    )
    kind = "all_gather" if case["name"].startswith("allgather") else "p2p"
    result = derive(architecture, Strategy(cp=case["cp"], cp_comm_type=kind, fusion="eager", micro_batch_size=case["b"], seq_length=case["s"]))
    return expected(case, ring=True), table(block_messages(result, "dense"), result.numbers)


def experts(case: dict[str, Any]) -> tuple[Table, Table]:
    """Token dispatch of one MoE layer (torchtitan), balanced routing."""
    config = {
        "model_type": "qwen3_moe",
        "vocab_size": 1024,
        "hidden_size": case["D"],
        "intermediate_size": case["F"],
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "moe_intermediate_size": case["F"],
        "num_experts": case["E"],
        "num_experts_per_tok": case["top_k"],
    }
    architecture, _ = read_config(config, "experts", "experts")
    result = derive(architecture, Strategy(ep=case["ep"], dp=case["ep"], fusion="eager", seq_length=case["T_per_rank"]))
    return expected(case), table(block_messages(result, architecture.kind_names()[0]), result.numbers)


def data_parallel(case: dict[str, Any]) -> tuple[Table, Table]:
    """DistributedDataParallel of equal fp32 linear layers `w<width>x<layers>_bucket<cap>MB`: one all-reduce a bucket."""
    width, layers, cap = (int(n) for n in re.fullmatch(r"w(\d+)x(\d+)_bucket(\d+)MB", case["name"]).groups())  # type: ignore[union-attr]
    cut = buckets([(width * width, False)] * layers, 1, cap * 2**20 // 4, False, False)
    messages = [Message("backward", "all_reduce", "dp_cp", symbol("dp"), expr(n), expr(n), "fp32", "gradients") for n in cut]
    return expected(case), table(messages, {"dp": case["n"]})


def redistribution(case: dict[str, Any]) -> tuple[Table, Table]:
    """One change of layout and its transpose, by the rule alone: a tensor of global_bytes over n ranks."""
    source, target = case["name"].split("->")
    where = {"S0": "s", "S1": "h", "R": None, "P": PARTIAL}
    mesh = Mesh({"tp": case["n"]}, False, (), (), ())
    n = Dim(symbol("n"))
    tensors = {"x": Tensor("x", ("s", "h"), "bf16"), "y": Tensor("y", ("s", "h"), "bf16")}
    layout = {d: ("tp",) if where[source] == d else () for d in ("s", "h")}
    wanted = {d: ("tp",) if where[target] == d else () for d in ("s", "h")}
    state = State({"x": tensors["x"]}, {"x": layout}, {"x": ("tp",) if source == "P" else ()})
    made = redistribute(state, mesh, Op("use", "use", "", (), ()), "x", wanted, True)
    block = Block("block", {"s": n, "h": Dim(ONE)}, state.tensors, tuple(state.ops), ("x",), (made,))
    result = differentiate(Placed(block, mesh, state.layouts, state.partial, tuple(state.iteration)))
    both = [m for _, m in (*result.forward_messages, *result.backward_messages)]
    return expected(case), table(both, {"n": case["global_bytes"] // 2, "tp": case["n"]})


KINDS: dict[str, Callable[[dict[str, Any]], tuple[Table, Table]]] = {
    "TP": tensor_parallel,
    "TP+SP": tensor_parallel,
    "TP-naive": tensor_parallel,
    "TP-embed+head": embedding_and_head,
    "FSDP": fsdp,
    "HSDP": fsdp,
    "FSDP+TP": fsdp,
    "CP-ring": ring,
    "EP-a2a": experts,
    "DDP": data_parallel,
    "redistribute": redistribution,
}
