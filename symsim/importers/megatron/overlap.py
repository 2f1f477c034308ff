"""Which messages of a step run beside computation, as Megatron-LM's arguments say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symsim.importers.megatron.strategy import Settings

# switches of tp_comm_overlap: on by default (an argument takes one out), and off
_ON = ("tp_comm_overlap_ag", "tp_comm_overlap_rs", "tp_comm_bulk_dgrad", "tp_comm_bulk_wgrad")
_OFF = ("tp_comm_overlap_rs_dgrad", "tp_comm_overlap_disable_qkv", "tp_comm_overlap_disable_fc1")


def tensor_parallel_messages(read: "Settings") -> None:
    """Which messages tp_comm_overlap takes; without it none of the switches is read."""
    keys = read.keys
    for option in _ON:
        for argument in (f"no_{option}", f"disable_{option}"):
            if keys.flag(argument, False, to=option, why="the opposite"):
                read.options[option] = False
    for option in _OFF:
        if keys.flag(option, False, to=option):
            read.options[option] = True
