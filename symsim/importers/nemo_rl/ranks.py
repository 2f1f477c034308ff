"""Ranks that train in NeMo-RL: those of the cluster without those on which other models run alone (nemo_rl/algorithms/grpo.py setup, opd.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symsim.importers.keys import Keys
from symsim.importers.ranks import world_size

if TYPE_CHECKING:
    from symsim.importers.reading import Options

_GENERATION = "policy.generation.colocated"
_REWARD = "env.reward_model"
_DISTILLATION = "on_policy_distillation"
_TEACHERS = f"{_DISTILLATION}.non_colocated_teachers"


def ranks(keys: Keys, options: "Options") -> int:
    """Ranks that train. InputError where none are left, or there are too many."""
    nodes = keys.integer("cluster.num_nodes", 1, to="dp", least=1)
    each = keys.integer("cluster.gpus_per_node", 8, to="dp", least=1)
    if any(name.rpartition(".")[2] == "env_name" and one.value == "reward_model" for name, one in keys.given.items()):
        why = "ranks of a reward model train nothing"
        own = keys.integer(f"{_REWARD}.resources.num_nodes", 0, to="dp", why=why)
        some = keys.integer(f"{_REWARD}.resources.gpus_per_node", 0, to="dp", why=why)
        # on one node they share it
        nodes, each = (nodes, each - some) if nodes == 1 else (nodes - own, each)
    nodes -= _of_teachers(keys)
    if nodes < 1 or each < 1:
        raise keys.wrong("cluster.num_nodes", "more than the nodes of the other models, of which none is left to train")
    if keys.flag(f"{_GENERATION}.enabled", True) is False:
        why = "ranks that generate train nothing"
        apart = keys.integer(f"{_GENERATION}.resources.num_nodes", None, to="dp", why=why)
        some = keys.integer(f"{_GENERATION}.resources.gpus_per_node", None, to="dp", least=1)
        keys.note(f"{_GENERATION}.enabled", to="dp", why=why)
        if apart and apart < nodes:
            nodes -= apart
        elif some and some < each and nodes == 1:
            each -= some
    world = world_size(options) or nodes * each
    if world > 2**30:
        raise keys.wrong("cluster.num_nodes", f"at most {2**30} ranks in all")
    return int(world)


def _of_teachers(keys: Keys) -> int:
    """Nodes of teachers that have some of their own: those of the default for every model, or of its first name's own."""
    if not (keys.flag(f"{_DISTILLATION}.enabled", False, to="dp") and keys.flag(f"{_TEACHERS}.enabled", False, to="dp")):
        return 0
    usual = keys.integer(f"{_TEACHERS}.default_teacher_cfg.num_nodes", 1, to="dp", why="ranks of teachers train nothing")
    place = f"{_DISTILLATION}.teacher_model_by_agent_name."
    once = keys.flag(f"{_DISTILLATION}.deduplicate_shared_teacher_checkpoints", True, to="dp")
    met, nodes = set[str](), 0
    for name in [name for name in keys.given if name.startswith(place)]:
        model = keys.text(name, "", to="dp")
        if not (once and model in met):
            met.add(model)
            nodes += keys.integer(f"{_TEACHERS}.teacher_overrides.{name.removeprefix(place)}.num_nodes", usual, to="dp")
    return nodes
