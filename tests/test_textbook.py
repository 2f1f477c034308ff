"""Quantities as their authors print them: what symsim derives, under a claim's facts and less what its source leaves out, printed in the
source's letters, is the source's LaTeX (`latex` of a claim in derivations/), character for character.

Both sides are normalised in what is no matter of mathematics: blanks, sizes of brackets, dots of products, braces around one token, a
number before a fraction or in it, a/b as a fraction.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from symsim.algebra.expr import ONE, Expr, expr, symbol
from symsim.algebra.formula import Formula
from symsim.algebra.grammar import parse
from symsim.algebra.key import Key
from symsim.algebra.quantity import NONE, Definition
from symsim.algebra.quotient import cancelled
from symsim.algebra.reading import Reading
from symsim.algebra.typeset import latex
from symsim.audit.claims import Claim, read_claims, shipped_sources
from symsim.audit.proving import sides_of
from symsim.audit.subjects import Derivations
from symsim.inputs.letters import latex_of
from symsim.report.formula import printed

# of a claim its letters, in the order in which the source writes a product, a letter of one's own as LETTER=SYMBOL, and the factor that
# the source takes out of the sum
TEXTBOOK: dict[str, tuple[str, str]] = {
    "korthikanti.attn": ("a=a s=s b=b h=h", ""),
    "korthikanti.mlp": ("s=s b=b h=h", ""),
    "korthikanti.ln": ("s=s b=b h=h", ""),
    "korthikanti.eq1": ("a=a s=s b=b h=h", "s*b*h"),
    "korthikanti.eq2": ("a=a s=s b=b h=h t=tp", "s*b*h"),
    "korthikanti.eq4": ("a=a s=s b=b h=h t=tp", "s*b*h/tp"),
    "korthikanti.eq5": ("a=a s=s b=b h=h L=L t=tp", "s*b*h*L/tp"),
    "korthikanti.eq6": ("s=s b=b h=h L=L t=tp", ""),
    "korthikanti.t2.tp_selective": ("s=s b=b h=h t=tp", "s*b*h"),
    "korthikanti.t2.full": ("s=s b=b h=h", ""),
    "korthikanti.embed_dropout": ("s=s b=b h=h p=pp t=tp", ""),
    "korthikanti.appB": ("s=s b=b h=h p=pp", ""),
    "korthikanti.5as_h": ("a=a s=s h=h", ""),
    "narayanan.params": ("l=L h=h V=V s=s", "12*L*h**2"),
    "narayanan.flops": ("B s=s l=L h=h V=V", "96*b*s*L*h**2"),
    "narayanan.layer_fwd": ("B s=s h=h", ""),
    "narayanan.bubble": ("p=pp m=m", ""),
    "narayanan.p2p": ("b=b s=s h=h", ""),
    "narayanan.p2p_scatter_gather": ("b=b s=s h=h t=tp", ""),
    "narayanan.tp_volume": ("b=b s=s h=h t=tp", ""),
    "narayanan.dp_factor": ("d=dp", ""),
    "chinchilla.f.final_logits": ("seq_len=s d_model=h vocab_size=V", ""),
    "kaplan.params": ("d_model=h n_layer=L d_attn d_ff=f", ""),
    "kaplan.params12": ("n_layer=L d_model=h", ""),
    "kaplan.t1.mask_flops": ("n_layer=L n_ctx=s d_attn", ""),
    "kaplan.t1.project_params": ("n_layer=L d_attn d_model=h", ""),
    "kaplan.t1.deembed_flops": ("d_model=h n_vocab=V", ""),
    "scaling.mlp_flops": ("B=b T=s D=h F=f", ""),
    "scaling.mlp_params": ("D=h F=f", ""),
    "scaling.attn_flops": ("B=b T=s D=h N=a H=d", ""),
    "scaling.attn_params": ("D=h N=a H=d", ""),
    "scaling.unembed_flops": ("B=b T=s D=h V=V", ""),
    "scaling.attention_fraction": ("T=s D=h", ""),
    "scaling.table_dp": ("D=h F=f", ""),
    "scaling.kv_cache": ("S=s L=L K=g H=d", ""),
    "zero.comm12": ("Psi=P_stage", ""),
    "zero.comm3": ("Psi=P_stage", ""),
    "zb.F_flops": ("s=s b=b h=h", "s*b*h"),
    "zb.B_flops": ("s=s b=b h=h", "s*b*h"),
    "zb.B_mem": ("a=a s=s b=b h=h", "s*b"),
    "zb.W_mem": ("s=s b=b h=h", ""),
    "zb.1f1b_bubble": ("p=pp T_F=tf T_B=ti T_W=tw", ""),
    "zb.h1_bubble": ("p=pp T_F=tf T_B=ti T_W=tw", ""),
    "zb.h2_bubble": ("p=pp T_F=tf T_B=ti T_W=tw", ""),
    "zb.1f1b_mem": ("p=pp M_B=A_stage", ""),
    "zb.h2_mem": ("p=pp M_B=A_stage", ""),
    "dsv2.kv_gqa": ("n_g=g d_h=d l=L", ""),
    "dsv2.kv_mha": ("n_h=a d_h=d l=L", ""),
    "dsv2.kv_mqa": ("d_h=d l=L", ""),
    "gpipe.bubble": ("M=m K=pp", ""),
    "palm.per_token": ("N=N L=L H=a Q=d T=s", ""),
    "kaplan.train_per_token": ("N=N_attention+N_mlp", ""),
    "gpt3.train_total": ("N=N T", ""),
    "deepspeed.zero3_states": ("P=P_stage n=dp", ""),
    "deepspeed.zero3_shards": ("P=P_stage n=dp", ""),
    "deepspeed.embedding_largest": ("V=V h=h", ""),
    "playbook.afab_bubble": ("p=pp m=m", ""),
    "scaling.tp_tmath": ("B_s D=h F=f Y=tp C=Phi", ""),
    "ulysses.volume": ("N=s h=h P=cp", ""),
    "ulysses.megatron_sp": ("N=s h=h", ""),
    "ring.t1.blockwise": ("b=b s=s h=h", ""),
    "ring.t1.vanilla_attn": ("b=b n=a s=s", ""),
}
# letters that stand for a product: one symbol of it takes the letter, what the others are is put in
COMPOSITE = {"B": ("b", {"m": 1, "dp": 1}), "d_attn": ("a", {"d": 1}), "T": ("b", {"s": 1, "m": 1, "dp": 1}), "B_s": ("b", {"s": 1})}
# what a paper has as a letter, which is a number here: ZeRO's K of Adam with fp32 copies
STATES = {"M_stage_weights": r"2\Psi", "M_stage_gradients": r"2\Psi", "M_stage_optimizer": r"\frac{K\Psi}{N_d}"}


@cache
def claims() -> dict[str, Claim]:
    sources = "korthikanti narayanan shoeybi chinchilla kaplan palm gpt3 zero deepspeed playbook scaling_book zero_bubble deepseek_v2 gpipe"
    shipped = shipped_sources()
    return {c.id: c for source in f"{sources} sequence_parallel ring_attention".split() for c in read_claims(shipped[source])}


DERIVATIONS = Derivations()


def as_symsim_prints(name: str) -> str:
    """The claim's quantity in its source's letters."""
    claim, (words, per) = claims()[name], TEXTBOOK[name]
    assert claim.subject is not None
    sides = sides_of(claim, DERIVATIONS.of(claim.subject))
    left_out = sum(sides.neglected, expr(0))
    amount = cancelled(sides.formula(sides.says - left_out).given(sides.facts).expand())
    letters: dict[str, str] = {}
    for letter, _, own in (word.partition("=") for word in words.split()):
        if not own:
            own, ones = COMPOSITE[letter]
            amount = amount.substitute(ones)
        elif own not in claim.keep and parse(own).symbols() <= sides.derived.result.further.definitions.keys():
            closed = cancelled(sides.formula(parse(own)).given(()).expand())
            amount, own = _named(amount, closed, letter), letter
        letters[own] = letter.partition("_s")[0] if letter == "B_s" else letter
    made = Definition(Key("amount", "pipeline"), amount / (parse(per) if per else ONE), NONE, "")
    formula = Formula((made,))
    text = printed(Reading(formula, made, parse(per) if per else ONE), "tex", letters)
    body = re.search(r"&= (.*)", text)[1]
    if not per:
        return body
    front = latex(parse(per), {n: latex_of(x) for n, x in letters.items()}, sequence=tuple(letters))
    return f"{front}({body})" if " + " in body or " - " in body else front + body


def _named(amount: Expr, closed: Expr, name: str) -> Expr:
    """Multiples of a closed form as multiples of its name; what is none stays."""
    monomial, coefficient = next(iter(closed.terms.items()))
    for own, number in list(amount.terms.items()):
        by = Expr({own: number}) / Expr({monomial: coefficient})
        if all(amount.terms.get(m) == c for m, c in (by * closed).terms.items()):
            amount = amount + by * (symbol(name) - closed)
    return amount


def test_states_of_zero() -> None:
    """2 Psi + 2 Psi + K Psi / N_d, each of them, of Adam's K of 12."""
    claim = claims()["zero.stage1"]
    result = DERIVATIONS.of(claim.subject).result
    for name, print_ in STATES.items():
        amount = _named(result.formula(name).expand(), result.formula("P_stage").expand(), "Psi")
        made = Definition(Key("amount", "pipeline"), amount, NONE, "")
        text = printed(Reading(Formula((made,)), made), "tex", {"Psi": "Psi", "dp": "N_d"})
        assert normal(re.search(r"&= (.*)", text)[1]) == normal(print_.replace("K", "12"))


def normal(text: str) -> str:
    text = re.sub(r"^.*(?:\\approx|(?<!\\)=)", "", text)
    text = (
        text.replace(r"\left", "")
        .replace(r"\right", "")
        .replace(r"\biggl", "")
        .replace(r"\biggr", "")
        .replace(r"\bigl", "")
        .replace(r"\bigr", "")
        .replace(r"\cdot", "")
        .replace(r"\tfrac", r"\frac")
    )
    text = re.sub(r"^O\((.*)\)$", r"\1", re.sub(r"\\,|\s", "", text))
    text = re.sub(r"_\{([A-Za-z]|\\mathrm\{[^{}]*\})\}", r"_\1", text)
    text = re.sub(r"\^\{(\d)\}", r"^\1", text)
    text = re.sub(r"\(\\frac\{(\w+-1)\}\{(\w)\}\)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"(\w+)/(\w)", r"\\frac{\1}{\2}", text)
    return re.sub(r"(?<![\w}])(\d+)\\frac\{(\D[^{}]*)\}", r"\\frac{\1\2}", text)


@pytest.mark.parametrize("name", TEXTBOOK)
def test_as_its_authors_print_it(name: str) -> None:
    assert normal(as_symsim_prints(name)) == normal(claims()[name].latex)
