"""The architecture that a strategy trains: the model's, with what options of the strategy change of it."""

from __future__ import annotations

from symsim.architecture import Architecture


def depths(model: Architecture, mtp_num_layers: int | None) -> int:
    """Multi-token prediction depths that are trained: the option's number, the model's own where it is not given."""
    return model.mtp_num_layers if mtp_num_layers is None else mtp_num_layers


def trained(model: Architecture, mtp_num_layers: int | None) -> Architecture:
    """The model with the depths that are trained."""
    made = depths(model, mtp_num_layers)
    return model if made == model.mtp_num_layers else model.model_copy(update={"mtp_num_layers": made})
