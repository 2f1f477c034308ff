"""Every symbol that a formula may use: its LaTeX, unit, meaning and domain. One name for one thing, everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    latex: str
    unit: str
    meaning: str


def _table(text: str) -> dict[str, Entry]:
    rows = (line.split("|") for line in text.strip().splitlines())
    return {name.strip(): Entry(latex.strip(), unit.strip(), meaning.strip()) for name, latex, unit, meaning in rows}


# Terms of how far the longest of many rows is above the mean: the power of the same of normal numbers, and of one over the root of how many rows
# are added up (symsim/inputs/longest_rows.py)
LONGEST_TERMS = ((1, 1), (2, 1), *((k, i) for i in (2, 3, 4) for k in range(1, 6)))

SYMBOLS: dict[str, Entry] = _table(r"""
b       | b             | 1    | sequences in a micro-batch, per data-parallel rank
s       | s             | 1    | sequence length in tokens
s_max   | s_{\max}      | 1    | tokens of the longest row there may be, where rows have their documents' own lengths
u       | u             | 1    | mean length of a document in a row
q_u     | q_u           | 1    | variance of the documents' lengths, over their mean squared
k_u     | k_u           | 1    | variance of a row's attention work, over its mean squared, of rows as long as a document is on average
u_w     | u_w           | 1    | mean of a document's tokens, at most w of each
u_ww    | u_w^{(2)}     | 1    | mean square of a document's tokens, at most w of each
u_r     | u_r           | 1    | mean of a document's tokens behind its last whole chunk
u_rr    | u_r^{(2)}     | 1    | mean square of a document's tokens behind its last whole chunk
h       | h             | 1    | hidden size
L       | L             | 1    | layers of the model
V       | V             | 1    | vocabulary size
P       | P             | 1    | learned position embeddings
T_v     | T_v           | 1    | token types
V_t     | V_t           | 1    | rows of the table of words
h_e     | h_e           | 1    | width of the table of words, when not the model's
h_y     | h_y           | 1    | width of what the output layer reads, when not the model's
a       | a             | 1    | query heads
g       | g             | 1    | key/value heads (query groups)
d       | d             | 1    | head dimension
n_z     | n_z           | 1    | mean number of keys a query attends to
n_b     | n_b           | 1    | mean number of keys a query attends to where attention is not causal
n_w     | n_w           | 1    | mean number of keys a query attends to inside an attention window
n_c     | n_c           | 1    | mean number of keys a query attends to inside a chunk of attention
n_v     | n_v           | 1    | mean number of keys a query attends to inside a window to either side
n_k     | n_k           | 1    | mean number of keys a query attends to of those that an indexer chose
n_j     | n_j           | 1    | mean number of keys a query attends to in a window and among entries of several tokens each
n_p     | n_p           | 1    | mean number of keys a query attends to in a window and among the entries of several tokens that an indexer chose
n_e     | n_e           | 1    | mean number of complete entries before a query
m_x     | m_x           | 1    | tokens of an entry
G_o     | G_o           | 1    | groups of heads that are projected each by itself
r_o     | r_o           | 1    | width of what a group of heads is projected to
k_x     | k_x           | 1    | keys that an indexer chooses for a query
c_x     | c_x           | 1    | keys of a block, where an indexer chooses blocks
a_x     | a_x           | 1    | heads of an indexer
d_x     | d_x           | 1    | head dimension of an indexer
w       | w             | 1    | attention window, or chunk, in tokens
f       | f             | 1    | dense feed-forward width
E       | E             | 1    | routed experts
K       | K             | 1    | experts a token is routed to
C       | C             | 1    | expert capacity: rows an expert takes from one rank
f_e     | f_e           | 1    | expert feed-forward width
f_s     | f_s           | 1    | total width of the shared experts
ell     | \ell          | 1    | latent width of the experts
lam     | \lambda       | 1    | expert load imbalance: rows of the busiest rank over the mean
r_q     | r_q           | 1    | MLA query latent rank
r_k     | r_k           | 1    | MLA key/value latent rank
d_k     | d_k           | 1    | MLA head dimension without position
d_r     | d_r           | 1    | MLA head dimension with rotary position
d_v     | d_v           | 1    | MLA value head dimension
H_k     | H_k           | 1    | linear-attention key heads
H_v     | H_v           | 1    | linear-attention value heads
D_k     | D_k           | 1    | linear-attention key head dimension
D_v     | D_v           | 1    | linear-attention value head dimension
W_c     | W_c           | 1    | linear-attention convolution kernel width
C_l     | C_l           | 1    | tokens of a block of lightning attention
W_l     | W_l           | 1    | short-convolution kernel width
H_m     | H_m           | 1    | heads of a state-space mixer (Mamba-2)
D_m     | D_m           | 1    | head dimension of a state-space mixer
G_m     | G_m           | 1    | groups of a state-space mixer's heads that share B and C
N_m     | N_m           | 1    | state dimension of a state-space mixer
W_m     | W_m           | 1    | convolution width of a state-space mixer
Q_m     | Q_m           | 1    | tokens of a chunk of a state-space mixer's scan
D_i     | D_i           | 1    | channels of a selective scan (Mamba-1)
N_i     | N_i           | 1    | state dimension of a channel of a selective scan
r_i     | r_i           | 1    | rank of the steps of a selective scan
W_i     | W_i           | 1    | convolution width of a selective scan
n_r     | n_r           | 1    | residual streams
r_u     | r_u           | 1    | rank of a branch beside attention
h_p     | h_p           | 1    | width of a layer's own embeddings
V_p     | V_p           | 1    | rows of the table of a layer's own embeddings
r_n     | r_n           | 1    | rank of the products that gate norms
r_b     | r_b           | 1    | rank of a layer's own adapters of a block that layers share
r       | r             | 1    | rank of the adapters
r_e     | r_e           | 1    | rank of the adapters of experts
o       | o             | 1    | inputs of a linear map that an adapter rotates together
D       | D             | 1    | multi-token prediction depths
tp      | t             | 1    | tensor-parallel degree
cp      | c             | 1    | context-parallel degree
cp_a2a  | c_1           | 1    | context-parallel degree of the all-to-all level
cp_p2p  | c_2           | 1    | context-parallel degree of the ring level
pp      | p             | 1    | pipeline stages
vpp     | v             | 1    | virtual stages a rank
ep      | e             | 1    | expert-parallel degree
etp     | \tau          | 1    | tensor-parallel degree inside an expert
dp      | d_p           | 1    | data-parallel degree
edp     | d_e           | 1    | expert data-parallel degree
inst    | I             | 1    | distributed-optimizer instances (replicas of the sharding group)
m       | m             | 1    | micro-batches a step
i       | i             | 1    | pipeline stage index, from zero
j       | j             | 1    | model chunk of a pipeline rank, from zero
group   | \gamma        | 1    | micro-batches that run through one model chunk in a row
tf      | t_f           | s    | forward of one micro-batch on the slowest pipeline rank
ti      | t_i           | s    | input gradients of one micro-batch on the slowest pipeline rank
tw      | t_w           | s    | weight gradients of one micro-batch on the slowest pipeline rank
tr      | t_r           | s    | recompute of one micro-batch on the slowest pipeline rank
tfb     | t_{fb}        | s    | a forward and a backward of two micro-batches, overlapped
tc      | t_c           | s    | one message between neighbouring stages that nothing hides
t_slow  | t_{\mathrm{slow}}  | s | a micro-batch, forward and backward, on the slowest pipeline rank
sum_t   | \Sigma t_{\mathrm{stage}} | s | a micro-batch, forward and backward, on all pipeline ranks
t_tail  | t_{\mathrm{tail}} | s | what follows the pipeline, on the rank where it takes longest
t_place | t_{\mathrm{place}} | s | what the place of the slowest stage saves in 1f1b
t_uneven | t_{\mathrm{uneven}} | s | what stages that differ save in zb_h1
t_late  | t_{\mathrm{late}} | s | what stages that differ save in zb_h1 of its messages
sum_tf  | \Sigma t_f    | s    | forwards of one micro-batch on all pipeline ranks
sum_ti  | \Sigma t_i    | s    | input gradients of one micro-batch on all pipeline ranks
sum_tw  | \Sigma t_w    | s    | weight gradients of one micro-batch on all pipeline ranks
sum_tr  | \Sigma t_r    | s    | recompute of one micro-batch on all pipeline ranks
eta_gemm    | \eta_G       | 1    | share of the peak rate that a matrix product reaches on whole tiles
phi_gemm    | \varphi_G    | 1    | share of the shorter of compute and HBM time that a matrix product does not hide
t_gemm      | t_G          | s    | start and tail of a matrix product on the device
t_tile      | t_T          | s    | start and end of a tile of a matrix product, beside which its multiprocessor multiplies nothing
eta_group   | \eta_E       | 1    | share of the peak rate that a grouped matrix product reaches on whole tiles
phi_group   | \varphi_E    | 1    | share of the shorter of compute and HBM time that a grouped matrix product does not hide
eta_fa      | \eta_F       | 1    | share of the peak rate that flash attention reaches forward
eta_fab     | \eta_{FB}     | 1    | share of the peak rate that flash attention reaches backward
zeta_fa     | \zeta_F      | 1    | further attention work where the head sizes of keys and values differ, over (larger / smaller - 1)
tau_fa      | \tau_F       | s    | one key further along a row of flash attention, forward
tau_fab     | \tau_{FB}     | s    | one query further along a column of flash attention, backward
omega_fa    | \omega_F      | 1    | share of flash attention's time at head size 128 that smaller heads take too, forward
omega_fab   | \omega_{FB}   | 1    | share of flash attention's time at head size 128 that smaller heads take too, backward
psi_fa    | \psi_F        | 1    | time of flash attention's products in FP8 over that in 16 bits, forward
psi_fab   | \psi_{FB}   | 1    | time of flash attention's products in FP8 over that in 16 bits, backward
kappa_fa    | \kappa_F      | 1    | keys beyond the edge of its mask that flash attention works through for a query
phi_fa      | \varphi_F     | 1    | share of the shorter of compute and HBM time that flash attention does not hide
sigma_fab   | \sigma_{FB}  | 1    | 1 where gradients of queries are summed in HBM, in passes before and behind flash attention's backward; else 0
eta_mem     | \eta_M       | 1    | share of the HBM bandwidth that elementwise kernels reach
eta_permute | \eta_P       | 1    | share of the HBM bandwidth that permuted rows reach
eta_ce      | \eta_C       | 1    | share of the HBM bandwidth that the loss reaches
t_mem       | t_M          | s    | start and tail of a kernel bound by HBM, on the device
tokens         | T                    | 1    | tokens of the run
steps          | n                    | 1    | steps of the run
days           | \Delta              | 1    | days that the run may take
jitter         | \sigma              | 1    | standard deviation of one rank's time of a step, over the step's
mtbf           | \mu                 | s    | mean time between failures of one accelerator, with its share of node, network and software
t_restart      | t_R                  | s    | from a failure to the ranks' running again, without reading the checkpoint
B_save         | B_s                  | byte/s | what each rank reaches of the store that checkpoints go to, where B_store does not say what all do
B_store        | B_S                  | byte/s | bandwidth of the store that checkpoints go to, of all ranks together
async_save     | \chi                | 1    | 1 where checkpoints go to the store while training goes on, 0 where training waits for it
save_interval  | n_s                  | 1    | steps between checkpoints; without it and t_save the best interval is kept
t_save         | \tau_s              | s    | time between checkpoints, in place of save_interval
eval_interval  | n_v                  | 1    | steps between evaluations
eval_iters     | m_v                  | 1    | batches of an evaluation
ramp_start     | B_0                  | 1    | first batch of a ramp (rampup_batch_size)
ramp_increment | B_+                  | 1    | by what the batch grows
ramp_samples   | S_r                  | 1    | samples over which the batch grows
h_ramp         | h_r                  | 1    | mean over the ramp's samples of one over the batch they are in
k_node         | k_n                  | 1    | power that a node draws, over its accelerators' full power
pue            | \mathrm{PUE}        | 1    | power of the site over that of its nodes
carbon         | I_C                  | kg/kWh | kilograms of CO2 of a kWh of the grid
""")
SYMBOLS |= {
    f"rho_{name}_{k}_{i}": Entry(
        rf"\rho^{{{name}}}_{{{k},{i}}}", "1", f"coefficient of xi^{k} j^(-{i}/2) in the longest of sums of j rows, of {what}"
    )
    for name, what in (("u", "attention work"), ("t", "tokens"))
    for k, i in LONGEST_TERMS
}

# Where a symbol's values lie, if not where its unit says: sizes and degrees (unit 1) are positive integers, all else is
# positive. Zero is for what may be absent: an index, an indicator of a stage, a latency, time that is hidden. What is saved may be
# less than nothing.
_DOMAINS: dict[str, str] = {
    **dict.fromkeys("i j first_i loss_i last_layer_i embedding_i output_i mtp_i mtp_copies_i checkpoints_i whole_i".split(), "non-negative integer"),
    **dict.fromkeys("world n_sm window_i".split(), "positive integer"),
    **dict.fromkeys(
        "u n_z n_b n_w n_c n_v n_k n_j n_p lam tf ti tfb t_slow sum_t sum_tf sum_ti Phi "
        "B_hbm B_host B_drive B_dram B_sm_deepep B_sm_hybridep W_chip c_chip".split(),
        "positive",
    ),
    **dict.fromkeys("eta_gemm eta_group eta_fa eta_fab eta_mem eta_permute eta_ce".split(), "share"),
    **dict.fromkeys("u_w u_ww tokens steps days mtbf B_save B_store t_save h_ramp k_node pue".split(), "positive"),
    **dict.fromkeys("q_u k_u u_r u_rr jitter t_restart carbon".split(), "non-negative"),
    **dict.fromkeys("async_save eval_iters ramp_samples".split(), "non-negative integer"),
    **dict.fromkeys("phi_gemm phi_group zeta_fa phi_fa omega_fa omega_fab psi_fa psi_fab kappa_fa sigma_fab".split(), "non-negative"),
    **dict.fromkeys("t_uneven t_late".split(), "real"),
    **dict.fromkeys("tw tr tc t_place t_tail sum_tw sum_tr e_dp t_opt".split(), "non-negative"),
    **dict.fromkeys("t_gemm t_tile tau_fa tau_fab t_mem t_launch t_gather".split(), "non-negative"),
}
# Symbols of a layer kind, a tier, a type or an axis. A collective may reach more than its link's rate, where switches add.
_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"L_.+_(i|ckpt)|shared_.+_i", "non-negative integer"),
    (r"L_.+|[dfgw]_.+|m_x_.+|R_\d+", "positive integer"),
    (r"n_[wcvjp]_.+", "positive"),
    (r"n_e(_.+)?", "non-negative"),
    (r"chi_\d+", "share"),
    (r"mu_.+|[BC]_\d+|eta_\d+_\w+|Phi_\w+", "positive"),
    (r"rho_[ut]_.+", "real"),
    (r"(alpha|lambda)_\d+|lambda_\d+_\w+|e_[fb]_\w+", "non-negative"),
)


# a symbol of stage pp - 1 - i -> that of stage i
ACROSS: dict[str, str] = {}


def across(name: str) -> str:
    """The symbol of stage pp - 1 - i that is `name` of stage i: they are there where one rank holds both."""
    made = f"{name}_across"
    ACROSS[made] = name
    return made


def domain(name: str) -> str:
    """Where a symbol's values lie: 'positive integer', 'non-negative integer', 'positive', 'non-negative', 'share' (in
    (0, 1]), or 'real', which is all that is known of a definition."""
    name = ACROSS.get(name, name)
    if name in _DOMAINS:
        return _DOMAINS[name]
    if name in SYMBOLS:
        return "positive integer" if SYMBOLS[name].unit == "1" else "positive"
    return next((kind for pattern, kind in _FAMILIES if re.fullmatch(pattern, name)), "real")
