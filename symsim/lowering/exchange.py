"""The exchange of tokens with experts, as messages.

Tokens are sharded over ranks; experts over `ep`, their widths over `etp`. Moving one to the other is an all-to-all
over `ep` (alltoall dispatcher), or a gather of all tokens over both (allgather dispatcher). Gathers and reductions
over `etp` are ordinary redistributions. Metadata and dtypes: Megatron-Core transformer/moe/token_dispatcher.py.
"""

from __future__ import annotations

from symsim.algebra.expr import Expr
from symsim.ir.messages import Message
from symsim.ir.operations import Exchange
from symsim.lowering.communicate import Placed
from symsim.placement.mesh import local_elements


def token_messages(placed: Placed, index: int, phase: str, metadata: str) -> list[Message]:
    """Messages of one exchange operation, forward or transposed. metadata: the collective that carries counts, or ''."""
    block, mesh, op = placed.block, placed.mesh, placed.block.ops[index]
    layouts = placed.layouts

    def n(name: str) -> Expr:
        return local_elements(mesh, block, block.tensors[name], layouts[name])

    group = mesh.degree("etp") * mesh.degree("ep")
    counted_over = ("etp", "ep") if metadata == "all_gather" else ("ep",)
    made: list[Message] = []
    if op.kind in ("exchange", "exchange_back"):
        dropless = op.kind == "exchange" and "E_r" not in op.of(Exchange).sent
        if dropless and phase == "forward" and metadata and any(map(mesh.active, counted_over)):
            made.append(_counts(block.dims["E_r"].size, mesh.group(counted_over), "_".join(counted_over), metadata))
        if mesh.active("ep"):
            pairs = list(zip(op.inputs, op.outputs))
            for source, target in pairs if phase == "forward" else reversed(pairs):
                send, receive = (source, target) if phase == "forward" else (target, source)
                made.append(
                    Message(
                        phase,
                        "all_to_all",
                        "ep",
                        mesh.degree("ep"),
                        n(send),
                        n(receive),
                        block.tensors[target].dtype,
                        f"{'rows' if phase == 'forward' else 'gradient of rows'} in {op.name}",
                    )
                )
    elif op.kind in ("exchange_gather", "exchange_scatter") and (mesh.active("ep") or mesh.active("etp")):
        made += _gathered(placed, index, phase, group, metadata)
    return made


def _counts(experts: Expr, group: Expr, axis: str, metadata: str) -> Message:
    """Tokens per expert: Megatron-Core gathers every rank's counts over etp and ep, torchtitan exchanges them over ep."""
    received = experts * group if metadata == "all_gather" else experts
    return Message("forward", metadata, axis, group, experts, received, "int64", "tokens per expert")


def _gathered(placed: Placed, index: int, phase: str, group: Expr, metadata: str) -> list[Message]:
    block, op = placed.block, placed.block.ops[index]
    tokens = placed.block.tensors[op.inputs[0] if op.kind == "exchange_gather" else op.outputs[0]]
    held = local_elements(placed.mesh, block, tokens, placed.layouts[tokens.name])
    routes = held / block.dims[op.of(Exchange).width].size * block.dims["E_r"].size
    weights = block.tensors[op.outputs[1]].dtype if op.kind == "exchange_gather" else op.of(Exchange).dtype
    gather, scatter = ("all_gather", held, held * group), ("reduce_scatter", held * group, held)

    def message(kind: str, send: Expr, receive: Expr, dtype: str, what: str) -> Message:
        return Message(phase, kind, "etp_ep", group, send, receive, dtype, what)

    if op.kind == "exchange_scatter":
        return [message(*(scatter if phase == "forward" else gather), weights, "combined tokens")]
    if phase == "forward":
        made = [message("all_gather", routes, routes * group, "bool", "routing map")] if metadata else []
        return made + [message("all_gather", routes, routes * group, weights, "probabilities"), message(*gather, tokens.dtype, "tokens")]
    return [
        message(*scatter, tokens.dtype, "gradient of tokens"),
        message("reduce_scatter", routes * group, routes, weights, "gradient of probabilities"),
    ]
