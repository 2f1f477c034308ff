"""How tokens reach their experts, as Megatron-LM's arguments say: the collective, or whose kernels and with how many multiprocessors."""

from __future__ import annotations

from symsim.importers.megatron.settings import Settings

KEYS = """
    moe_token_dispatcher_type moe_flex_dispatcher_backend moe_enable_deepep moe_flex_dispatcher_num_sms moe_deepep_num_sms moe_hybridep_num_sms
    moe_permute_fusion_into_hybridep moe_expert_rank_capacity_factor moe_paged_stash
    """.split()
_TYPE, _BACKEND, _SMS, _INSIDE = "moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "moe_flex_dispatcher_num_sms", KEYS[6]
_RANK, _PAGES = KEYS[7:]


def dispatcher(read: Settings) -> None:
    """The dispatcher; what belongs to flex is read with it only."""
    keys, options = read.keys, read.options
    kinds = {"allgather": "allgather", "alltoall": "alltoall", "flex": "flex", "alltoall_seq": "alltoall"}
    kind = keys.choice(_TYPE, kinds, None, to=_TYPE)
    if kind is not None:
        options[_TYPE] = kind
    elif read.mixture:
        read.derived(_TYPE, _TYPE, "allgather", "allgather, the default")
    backend = keys.choice(_BACKEND, {name: name for name in ("deepep", "hybridep", "ncclep")}, None, to=_BACKEND)
    deep = keys.flag("moe_enable_deepep", False, to=_BACKEND, why="deepep")
    sms = {name: keys.integer(name, None, to=_SMS) for name in KEYS[3:6] if keys.has(name)}
    inside = keys.flag(_INSIDE, False, to=_INSIDE)
    factor, pages = keys.number(_RANK, None, to=_RANK), keys.flag(_PAGES, False, to=_PAGES)
    if kind != "flex":
        for key in KEYS[1:]:
            if keys.has(key):
                keys.note(key, "no_cost_effect", why=f"read with {_TYPE}=flex only")
        return
    backend = "deepep" if deep else backend
    if backend == "ncclep":
        keys.note(_BACKEND, "not_modelled", _BACKEND, "bytes, shares and multiprocessors are those of hybridep; NCCL EP publishes none")
        backend = "hybridep"
    if backend is not None:
        options[_BACKEND] = backend
    else:
        keys.note(_BACKEND, "derived", _BACKEND, "deepep, the default")
    own = {"deepep": "moe_deepep_num_sms", "hybridep": "moe_hybridep_num_sms"}[backend or "deepep"]
    # an entry of its own goes before those that it replaces; the other backend's is another's
    taken = next((name for name in (_SMS, own) if sms.get(name)), None)
    for name in sms:
        if name != taken:
            keys.note(name, "no_cost_effect", why="the backend's own number" if not sms[name] else "another key decides")
    if taken is not None:
        options[_SMS] = sms[taken]
    if inside and backend == "hybridep":
        options[_INSIDE] = True
    elif inside:
        keys.note(_INSIDE, "no_cost_effect", why="read by hybridep only")
    if factor is not None and factor > 0 and backend == "hybridep":
        options |= {_RANK: factor, **({_PAGES: True} if pages else {})}
    else:
        for key in (_RANK, _PAGES):
            if keys.has(key):
                keys.note(key, "no_cost_effect", why=f"read by hybridep with {_RANK} only")
