"""Losses with the output layer in them: what is multiplied, kept, moved and held, against the same written in torch."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from test_megatron_rules import model

from symsim.api.result import Result, derive
from symsim.cost.workspace import backward_moments, forward_moments
from symsim.errors import InputError
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system

MODEL = model(vocab_size=512)
TOKENS, HIDDEN, VOCABULARY = 128, 64, 512
HEAD = "lm_head.lm_head"
A100 = load_system("a100-sxm-80")


def made(loss: str, chunks: int | None = None, **given: Any) -> Result:
    return derive(MODEL, Strategy(fusion="eager", seq_length=TOKENS, cross_entropy_fusion=loss, cross_entropy_chunks=chunks, **given))


def kept(result: Result) -> int:
    """Bytes that the loss and the output layer keep."""
    saved = result.lowered.blocks["head"].saved
    return sum(int(s.bytes.evaluate(result.numbers)) for s in saved if any(by.operation.startswith(("lm_head", "loss")) for by in s.by))


def held(result: Result, *, backward: bool = False) -> int:
    """Bytes of activations while the loss runs."""
    block = result.lowered.blocks["head"]
    moments = backward_moments(block, keep_gathered=False) if backward else forward_moments(block)
    (found,) = [m for m in moments if m.kernel.partition(",")[0] == HEAD]
    return int((found.activations + (found.latest if backward else 0)).evaluate(result.numbers))


def test_flops_are_those_of_three_products_and_one_more_where_logits_are_made_again() -> None:
    once = 2 * TOKENS * HIDDEN * VOCABULARY
    for loss, backward in (("unfused", 2), ("liger", 2), ("chunked", 2), ("cut", 3), ("linear", 3)):
        result = made(loss)
        assert [result.value(name) for name in ("F_head", "G_head")] == [once, backward * once], loss


def test_logits_are_neither_kept_nor_held() -> None:
    hidden, weight, labels = 2 * TOKENS * HIDDEN, 2 * HIDDEN * VOCABULARY, 8 * TOKENS
    assert kept(made("liger")) == hidden + weight
    assert kept(made("chunked")) == hidden  # each chunk has added to the weight's gradient
    assert kept(made("cut")) == hidden + 4 * TOKENS + labels
    assert kept(made("linear")) == hidden + 8 * TOKENS + labels
    assert kept(made("unfused")) == 4 * TOKENS * VOCABULARY + hidden + labels + 4


def test_a_head_that_rests_has_no_weight_gradient() -> None:
    """Adapters on the layers: the output layer's own weight has no gradient to make, to keep or to add."""
    whole, adapted = made("liger"), made("liger", tuner_type="lora")
    assert kept(whole) - kept(adapted) == 2 * HIDDEN * VOCABULARY
    once = 2 * TOKENS * HIDDEN * VOCABULARY
    assert [adapted.value(name) for name in ("F_head", "G_head")] == [once, once]
    assert made("cut", tuner_type="lora").value("G_head") == 2 * once


def test_a_chunk_of_logits_is_held_in_forward() -> None:
    for chunks in (1, 4):
        fewer = held(made("liger", chunks)) - held(made("cut"))
        gradients = 2 * TOKENS * HIDDEN + 2 * HIDDEN * VOCABULARY
        assert fewer == gradients + 2 * TOKENS // chunks * VOCABULARY - 4 * TOKENS
    # the gradients that were kept are handed on; the cut loss has its input and two numbers a row beside them
    assert held(made("cut"), backward=True) - held(made("liger", 4), backward=True) == 2 * TOKENS * HIDDEN + 12 * TOKENS


def test_each_chunk_runs_backward_before_the_next() -> None:
    """Logits, fp32 logits, log-softmax and its gradient of a chunk, then the products of its backward beside its logits and those before; the
    weight's gradient where the step's first is made, or in fp32 the hidden states' at the end (torchtitan components/loss.py)."""
    result = made("chunked", 4)
    moments = {m.kernel.partition(", ")[2]: m for m in forward_moments(result.lowered.blocks["head"]) if m.kernel.startswith(HEAD)}
    hidden, weight, chunk = TOKENS * HIDDEN, 2 * HIDDEN * VOCABULARY, TOKENS // 4 * VOCABULARY
    numbers = {name: tuple(int(part.evaluate(result.numbers)) for part in (m.activations, m.gradients, m.latest)) for name, m in moments.items()}
    before = held(made("cut")) - 4 * TOKENS
    assert numbers[""] == (before + 4 * hidden + (2 + 3 * 4) * chunk, weight, 0)
    assert numbers["products"] == (before + 4 * hidden + 2 * 2 * chunk, 2 * weight, weight)


def test_chunks_of_the_vocabulary_are_held_in_backward() -> None:
    more = held(made("linear"), backward=True) - held(made("cut"), backward=True)
    assert more == 2 * TOKENS * 3072 + 4 * TOKENS * HIDDEN + 4 * TOKENS


def test_chunks_read_the_weight_and_add_to_its_gradient_again() -> None:
    moved = [int(made("liger", n).value(f"Q_head_{HEAD.replace('.', '_')}")) for n in (1, 2, 4)]
    # 2 bytes: the weight for the logits and for the hidden states' gradient, its own gradient read and written; one chunk only writes it
    each = 2 * HIDDEN * VOCABULARY
    assert moved[2] - moved[1] == 2 * 4 * each
    assert moved[1] - moved[0] == 4 * each + each


def test_messages_of_chunks_carry_their_rows() -> None:
    found = {}
    for loss in ("liger", "cut"):
        result = made(loss, 4 if loss == "liger" else None, tp=2)
        sent = result.lowered.blocks["head"].differentiated.forward_messages
        sizes = [(m.count, m.send_elements) for _, m in sent if m.op == "all_reduce"]
        found[loss] = [(int(n.evaluate(result.numbers)), int(rows.evaluate(result.numbers))) for n, rows in sizes]
    assert found == {"liger": [(4, TOKENS // 4)] * 3, "cut": [(1, TOKENS)] * 3}


def test_what_runs_at_once_is_timed_in_forward() -> None:
    times = {n: derive(MODEL, Strategy(fusion="eager", seq_length=TOKENS, cross_entropy_fusion=n), system=A100) for n in ("liger", "cut")}
    forward = {n: float(r.value("t_f_head_lm_head_lm_head")) for n, r in times.items()}
    backward = {n: float(r.value("t_b_head_lm_head_lm_head_backward")) for n, r in times.items()}
    assert forward["liger"] > backward["liger"] and forward["cut"] < backward["cut"]


def test_the_published_head_of_gemma_2() -> None:
    """Wijmans et al., arXiv:2411.09009, abstract: on an A100 the head of Gemma 2 (2B) takes 28 GB for 8,192 tokens, and 1 GB cut."""
    gemma = load_model("gemma-2-2b").architecture
    bytes_held = {}
    for loss in ("unfused", "cut"):
        strategy = Strategy(fusion="eager", seq_length=8192, cross_entropy_fusion=loss, fused_kernels=("norm",))
        result = derive(gemma, strategy, system=A100)
        bytes_held[loss] = max(float(result.value(f"W_{phase}_head")) for phase in ("fwd", "bwd"))
    assert bytes_held["unfused"] == pytest.approx(28e9, rel=0.06)
    # the final norm is in it: what it reads, what it makes and a gradient, of the size of the hidden states
    assert bytes_held["cut"] - 3 * 2 * 8192 * 2304 == pytest.approx(1.16e9, rel=0.06)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"cross_entropy_fusion": "cut", "cross_entropy_chunks": 4},
            "cross_entropy_chunks=4 needs cross_entropy_fusion=output_chunks or liger or chunked",
        ),
        (
            {"cross_entropy_fusion": "linear", "defer_embedding_wgrad_compute": True, "pp": 2, "num_microbatches": 2},
            "defer_embedding_wgrad_compute moves a product that cross_entropy_fusion=linear runs inside the loss; give one of them",
        ),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        derive(load_model("smollm2-135m").architecture, Strategy(**given))
    assert str(caught.value) == says


def test_whole_logits_are_not_gathered() -> None:
    with pytest.raises(InputError, match="assume.loss_parallel=false gathers whole logits, which cross_entropy_fusion=cut never has"):
        derive(MODEL, Strategy(tp=2, cross_entropy_fusion="cut"), {"loss_parallel": "false"})


class _Alive:
    """The most bytes of tensors that were alive at once, and those that autograd keeps."""

    def __init__(self, torch: Any, *given: Any):
        self.torch, self.most, self.kept, self.seen = torch, 0, 0, []
        self.given = {t.untyped_storage().data_ptr() for t in given}

    def run(self, function: Any) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        alive = self

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = call(*args, **(kwargs or {}))
                for t in result if isinstance(result, tuple | list) else [result]:
                    if isinstance(t, alive.torch.Tensor):
                        alive.seen.append(weakref.ref(t))
                storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for r in alive.seen if (t := r()) is not None}
                alive.most = max(alive.most, sum(n for at, n in storages.items() if n >= 16 * TOKENS and at not in alive.given))
                return result

        saved: dict[int, int] = {}

        def keep(t: Any) -> Any:
            saved[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with Mode(), self.torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            self.loss = function()
        self.kept = sum(saved.values())


def test_the_same_written_in_torch() -> None:
    """Gradients at once in chunks, and logits once more in backward: what autograd keeps and forward holds, tensors of a number a row aside."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(VOCABULARY, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(0, VOCABULARY, (TOKENS,))

    class AtOnce(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, chunks: int) -> Any:
            of_x, of_w, total, size = torch.zeros_like(x), torch.zeros_like(w), 0.0, TOKENS // chunks
            logits = torch.empty(size, VOCABULARY, dtype=x.dtype)
            for at in range(0, TOKENS, size):
                torch.mm(x[at : at + size], w.t(), out=logits)
                rows, target = torch.arange(size), labels[at : at + size]
                lse = torch.logsumexp(logits, -1, keepdim=True)
                total = total + float((lse[:, 0] - logits[rows, target]).sum())
                logits.sub_(lse).exp_()
                logits[rows, target] -= 1
                of_x[at : at + size] = torch.mm(logits, w, out=of_x[at : at + size])
                torch.addmm(of_w, logits.t(), x[at : at + size], out=of_w)
            ctx.save_for_backward(of_x, of_w)
            return torch.tensor(total)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            of_x, of_w = ctx.saved_tensors
            return of_x.mul_(gradient), of_w.mul_(gradient), None

    for chunks in (2, 4):
        run = _Alive(torch, x, w)
        run.run(lambda chunks=chunks: AtOnce.apply(x, w, chunks))
        symbolic = made("liger", chunks)
        assert run.kept == kept(symbolic)
        assert run.most == 2 * (TOKENS * HIDDEN + HIDDEN * VOCABULARY + TOKENS // chunks * VOCABULARY)
        # of the whole block there are the hidden states too, the losses, and what the norm keeps
        assert run.most == held(symbolic) - held(made("cut")) + 4 * TOKENS
    run.loss.backward()
    plain = torch.nn.functional.cross_entropy((x.detach().float() @ w.detach().float().t()), labels, reduction="sum")
    assert float(run.loss) == pytest.approx(float(plain), rel=0.02)
