"""PyTorch's pipelines, as torchtitan and Automodel run them: schedules by name, and the micro-batches of a step.

Source: torch distributed/pipelining/schedules.py.
"""

from __future__ import annotations

from typing import Any

from symsim.importers.keys import Keys

SCHEDULES = {
    "1f1b": ("1f1b", 1),
    "gpipe": ("gpipe", 1),
    "interleaved1f1b": ("interleaved", 2),
    "loopedbfs": ("looped_bfs", 2),
    "interleavedzerobubble": ("interleaved_zb", 2),
    "zbvzerobubble": ("zbv", 2),
    "dualpipev": ("dualpipev", 2),
}
"""By a name there: the schedule here, and the chunks of a rank."""


def add_rounds(keys: Keys, key: str, strategy: dict[str, Any], rounds: int) -> None:
    """So many batches a step, whose gradients add up: the schedule runs once for each."""
    if rounds > 1:
        strategy |= {"num_microbatches": strategy["num_microbatches"] * rounds, "pipeline_flushes": rounds}
        if strategy.get("gradient_sync") == "last_microbatch":
            strategy["gradient_sync"] = "every_flush"
        keys.note(key, to="num_microbatches, pipeline_flushes", why="the schedule runs once for every round of accumulated gradients")


def add_groups(strategy: dict[str, Any]) -> None:
    """Micro-batches in a row through one chunk, where they are no multiple of the stages (ScheduleInterleaved1F1B: so many rounds of as many)."""
    if strategy.get("schedule") != "interleaved":
        return
    at_once = int(strategy["num_microbatches"]) // int(strategy.get("pipeline_flushes", 1))
    rounds = max(1, at_once // int(strategy["pp"]))
    if at_once % rounds == 0 and at_once // rounds != strategy["pp"]:
        strategy["microbatch_group_size_per_vp_stage"] = at_once // rounds
