"""A system: what its accelerators compute, what their memory moves, and what their links carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from symsim.algebra.expr import Number
from symsim.errors import nearest
from symsim.inputs.curves import Kernels
from symsim.inputs.curves import values as kernel_values
from symsim.inputs.known import Bandwidth, Bytes, ComputeRate, Known, Latency, Positive, Power, Price
from symsim.inputs.limits import LARGEST_SIZE, MOST_TIERS
from symsim.inputs.reading import KeyPath
from symsim.inputs.strategy import Strategy
from symsim.ir.block import NARROW
from symsim.ir.collectives import COLLECTIVES
from symsim.ir.messages import DISPATCHERS

HOST_MEMORY_BANDWIDTH = 0.8 * 8 * 38.4e9 / 4
"""Bytes a second of a rank's share of a socket (Intel Xeon Platinum 8480C of DGX H100: eight channels of DDR5-4800, four accelerators), of
which STREAM reaches about 80 %."""


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True)


def unfit(tier: str, ranks: int, inner: int) -> str:
    """Why a tier cannot join so many ranks around one that joins `inner` (1 where none does), or nothing."""
    fits = ranks % inner == 0 and ranks != inner
    return "" if fits else f"{tier} joins {ranks} ranks; twice the tier inside it ({inner}), or a larger multiple, is needed"


def _misfit(path: KeyPath, reason: str) -> ValidationError:
    """What is wrong about a key, with its path, so that the reader can name its line."""
    error = PydanticCustomError("value_error", "{error}", {"error": reason})
    return ValidationError.from_exception_data("System", [InitErrorDetails(type=error, loc=path, input=None)])


class Peak(Part):
    """Dense matrix-product rates by operand type."""

    bf16: ComputeRate
    fp16: ComputeRate | None = None
    fp8: ComputeRate | None = None
    fp4: ComputeRate | None = None
    fp32: ComputeRate | None = None


class Accelerator(Part):
    peak: Peak
    fp8_share: Positive | None = Field(None, description="share of the peak that FP8 and FP4 products reach, over that of bf16; 1 where not given")
    multiprocessors: Positive = Field(description="processors over which the tiles of a GEMM are spread (SMs, CUs)")
    memory: Bytes
    memory_bandwidth: Bandwidth
    power: Power | None = None
    price: Price | None = Field(None, description="of one accelerator")
    exchange: Mapping[str, Bandwidth] = Field(
        default_factory=dict,
        description="what one multiprocessor moves in an exchange of tokens, by dispatcher (deepep, hybridep); no limit without it",
    )

    @field_validator("multiprocessors")
    @classmethod
    def _whole(cls, known: Known) -> Known:
        if known.value.denominator != 1:
            raise ValueError(f"'{known.text}' is not a whole number")
        return known


def _ranks(given: Any) -> Any:
    if given != "all" and (not isinstance(given, int) or isinstance(given, bool) or given < 2):
        raise ValueError("should be a number of ranks from 2 up, or all")
    if given != "all" and given > LARGEST_SIZE:
        raise ValueError(f"is more than {LARGEST_SIZE} ranks; all means no limit")
    return given


class Tier(Part):
    """A level of the network: how many ranks it joins (`all`: no limit), and what one rank sends over it in one direction.

    A link that ranks share (a node's NICs, a socket's bus) is given as the share of one rank: ranks that do not use it
    leave their share to those that do.
    """

    name: str
    ranks: Annotated[int | Literal["all"], BeforeValidator(_ranks)]
    bandwidth: Bandwidth
    latency: Latency = Field(description="of one hop")
    launch: Latency | None = Field(None, description="of one call, whatever the number of ranks; that of the outermost tier it reaches counts")
    calls: Mapping[str, Mapping[int, Latency]] = Field(
        default_factory=dict,
        description="of one call in place of launch, by collective or 'default' and by ranks of the group: the last that is no more than they are",
    )
    fully_connected: bool = Field(False, description="its units are linked pair by pair: bandwidth is that of all links of a rank together")
    ring: Bandwidth | None = Field(None, description="what one ring moves over the tier at most, however many of its ranks lie in a unit below")
    processors: Positive | None = Field(None, description="share of the multiprocessors that a message over it takes from what runs beside it")
    efficiency: Mapping[str, Positive] = Field(default_factory=dict, description="share of the bandwidth reached, by collective or 'default'")
    exchange: Mapping[str, Mapping[int, Positive]] = Field(
        default_factory=dict,
        description="share of the bandwidth that a dispatcher's exchange of tokens reaches, by dispatcher (deepep, hybridep) and by ranks of the "
        "group: the last that is no more than they are; without it that of all_to_all",
    )

    @model_validator(mode="after")
    def _collectives(self) -> "Tier":
        collectives = ("default", *COLLECTIVES)
        for part, known in (("efficiency", collectives), ("calls", (*collectives, *DISPATCHERS)), ("exchange", DISPATCHERS)):
            for name in getattr(self, part):
                if name not in known:
                    kind = "dispatcher" if part == "exchange" else "collective"
                    raise _misfit((part, name), f"is no {kind}: {nearest(name, known)}")
        for part, what in (("calls", "a latency"), ("exchange", "a share")):
            for name, table in getattr(self, part).items():
                if not table or any(not 2 <= ranks <= LARGEST_SIZE for ranks in table):
                    raise _misfit((part, name), f"should have numbers of ranks from 2 up, each with {what}")
        if self.processors is not None and self.processors.value > 1:
            raise _misfit(("processors",), f"is {self.processors.text}, more than all of them")
        if self.fully_connected and self.ranks == "all":
            raise _misfit(("fully_connected",), "needs a number of ranks, which are linked pair by pair; ranks is all")
        return self


class Host(Part):
    """What one rank reaches over its host link in one direction, and the memory of its share of the node."""

    bandwidth: Bandwidth
    memory: Bytes | None = None
    memory_bandwidth: Bandwidth | None = Field(
        None, description="what the host moves in its memory for one rank; 61.4 GB/s where not given: 80 % of eight channels of DDR5-4800 for four"
    )
    launch: Latency | None = Field(None, description="of the host for one kernel")
    drive: Bandwidth | None = Field(None, description="what one rank reaches of its node's drives, in one direction")
    gather: Latency | None = Field(None, description="of the host for gathering the parameters of one module (assumption fsdp_unit)")


class Anchored(Part):
    """A step measured on the machine itself, to which its numbers were moved (`symsim anchor`)."""

    step: Latency
    of: str = Field(description="what ran")
    moves: Mapping[str, float] = Field(description="what each kind of numbers moves the logarithm of that step by when it is off by its spread")


class System(Part):
    """A file of models/systems/. Tiers are listed from the innermost out."""

    name: str
    title: str
    sources: Mapping[str, str]
    accelerator: Accelerator
    kernels: Kernels
    network: tuple[Tier, ...]
    host: Host | None = None
    anchored: tuple[Anchored, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "System":
        names = [tier.name for tier in self.network]
        if len(names) > MOST_TIERS:
            raise _misfit(("network",), f"has {len(names)} tiers; at most {MOST_TIERS} are read")
        for position, name in enumerate(names):
            if name in names[:position]:
                raise _misfit(("network", position, "name"), f"is '{name}', as another tier's; each needs a name of its own")
        inner = 1
        for position, tier in enumerate(self.network):
            if tier.ranks == "all":
                if position != len(self.network) - 1:
                    raise _misfit(("network", position, "ranks"), f"{tier.name} joins all ranks, so no tier can follow it")
                continue
            if reason := unfit(tier.name, tier.ranks, inner):
                raise _misfit(("network", position, "ranks"), reason)
            inner = tier.ranks
        for path, known in quantities(self):
            if known.source not in self.sources:
                raise _misfit(path, f"names the source '{known.source}', which sources does not list: {nearest(known.source, list(self.sources))}")
        return self


def symbol_values(system: System, strategy: Strategy) -> dict[str, Number]:
    """Numbers of the symbols that a system gives: rates in FLOP/s and byte/s, latencies in seconds, coefficients of its
    kernels' curves. Rates are floats, so that seconds are."""
    chip = system.accelerator
    found: dict[str, Number] = {"world": strategy.world_size, "B_hbm": float(chip.memory_bandwidth.value), "n_sm": int(chip.multiprocessors.value)}
    for kind in Peak.model_fields:
        rate = getattr(chip.peak, kind)
        if rate is not None:
            found[f"Phi_{kind}"] = float(rate.value)
    for kind in NARROW if strategy.fp8 != "none" else ():
        if f"Phi_{kind}" in found:
            found[f"Phi_{kind}"] *= float(chip.fp8_share.value) if chip.fp8_share else 1.0
    found["Phi"] = found[f"Phi_{strategy.precision}"]
    found |= {name: float(value) for name, value in kernel_values(system.kernels).items()}
    for name, told in (("psi_fa", system.kernels.attention.fp8_forward), ("psi_fab", system.kernels.attention.fp8_backward)):
        if told is None:  # as the products of linear layers
            found[name] = found["Phi"] / float(found.get("Phi_fp8", found["Phi"]))
    for j, tier in enumerate(system.network, 1):
        found[f"R_{j}"] = strategy.world_size if tier.ranks == "all" else tier.ranks
        found |= {f"B_{j}": float(tier.bandwidth.value), f"alpha_{j}": float(tier.latency.value), f"lambda_{j}": _seconds(tier.launch)}
        if tier.ring is not None:
            found[f"C_{j}"] = float(tier.ring.value)
        if tier.processors is not None:
            found[f"chi_{j}"] = float(tier.processors.value)
        found |= {f"lambda_{j}_{op}_{n}": float(k.value) for op, table in tier.calls.items() for n, k in table.items()}
        found |= {f"eta_{j}_{op}_{n}": float(k.value) for op, table in tier.exchange.items() for n, k in table.items()}
        for op in COLLECTIVES:
            share = tier.efficiency.get(op) or tier.efficiency.get("default")
            found[f"eta_{j}_{op}"] = float(share.value) if share else 1.0
    found |= {f"B_sm_{name}": float(rate.value) for name, rate in chip.exchange.items()}
    if system.host is not None:
        found |= {"B_host": float(system.host.bandwidth.value)}
        found |= {} if system.host.drive is None else {"B_drive": float(system.host.drive.value)}
        if strategy.optimizer_cpu_offload or system.host.memory_bandwidth is not None:
            found["B_dram"] = float(system.host.memory_bandwidth.value) if system.host.memory_bandwidth else HOST_MEMORY_BANDWIDTH
    found["t_launch"] = _seconds(system.host.launch if system.host else None)
    found["t_gather"] = _seconds(system.host.gather if system.host else None)
    for symbol, known in (("W_chip", chip.power), ("c_chip", chip.price)):
        if known is not None:
            found[symbol] = float(known.value)
    return found


def _seconds(known: Known | None) -> float:
    return 0.0 if known is None else float(known.value)


def quantities(part: BaseModel, inside: KeyPath = ()) -> Iterator[tuple[KeyPath, Known]]:
    """Every quantity of a system with the path to its key."""
    for name in type(part).model_fields:
        value = getattr(part, name)
        members = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, tuple) else [(None, value)]
        for key, member in members:
            path = (*inside, name) if key is None else (*inside, name, key)
            if isinstance(member, Known):
                yield path, member
            elif isinstance(member, Mapping):
                yield from (((*path, n), known) for n, known in member.items() if isinstance(known, Known))
            elif isinstance(member, BaseModel):
                yield from quantities(member, path)
