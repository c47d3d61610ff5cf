"""Every workload of every testbench, by name, at a size that the configuration runs in seconds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from compiler.architectures import ARCHITECTURES
from compiler.models import MODELS
from compiler.moe_layer import LayerPlan
from compiler.routed_experts import Accumulation
from compiler.routed_spec import Lowering, RoutedSpec
from isa.config import PlenaConfig
from testbench.layer_case import build_layer_case
from testbench.policy_case import POLICIES
from testbench.policy_workload import policy_workload
from testbench.reference.data import SaturatedGate
from testbench.routed_parts import PARTS, Request
from testbench.router_workload import router_workload
from testbench.shared_case import SharedCase, build_case, spec_of
from testbench.utilisation import LOWERINGS, Measured
from testbench.workload import Workload

__all__ = ["Entry", "catalogue"]

_TOKENS = 3
_ROWS = 5
_SEEDS = 8  #: after each other, for a gate that no data of the first one saturates


@dataclass(frozen=True)
class Entry:
    """A workload: `testbench/what`, and what builds it for a configuration and a seed."""

    name: str
    build: Callable[[PlenaConfig, int], Workload]


def catalogue() -> list[Entry]:
    """One entry or more for every testbench, in a fixed order."""
    return [
        *(Entry(f"shared_moe/{arch}", partial(_shared, arch)) for arch in ARCHITECTURES),
        *(Entry(f"router_policy/{name}", partial(_policy, name)) for name in POLICIES),
        *(Entry(f"router/{name}", partial(_router, name)) for name in MODELS),
        *(Entry(f"routed_moe/{part}", partial(_part, part)) for part in PARTS),
        *(
            Entry(f"moe_layer/{name}/{lowering.value}", partial(_layer, name, lowering))
            for name in MODELS
            for lowering in Lowering
        ),
        *_utilisation(),
    ]


def _shared(arch: str, config: PlenaConfig, seed: int) -> SharedCase:
    spec = spec_of(arch, hidden=2 * config.MLEN, intermediate=config.MLEN)
    for further in range(_SEEDS - 1):
        try:
            return build_case(config, spec, rows=_ROWS, seed=seed + further)
        except SaturatedGate:
            continue
    return build_case(config, spec, rows=_ROWS, seed=seed + _SEEDS - 1)


def _policy(name: str, config: PlenaConfig, seed: int) -> Workload:
    shape = POLICIES[name]
    return policy_workload(config, shape.experts, shape.top_k, name=name, seed=seed)


def _router(name: str, config: PlenaConfig, seed: int) -> Workload:
    return router_workload(config, MODELS[name].scaled(config), tokens=_TOKENS, seed=seed)


def _part(part: str, config: PlenaConfig, seed: int) -> Workload:
    spec = RoutedSpec(
        experts=8,
        top_k=2,
        hidden=config.MLEN,
        intermediate=config.MLEN,
        activation="gpt_oss_clamp_gated",
        biases=True,
    )
    _, build = PARTS[part]
    return build(Request(config=config, spec=spec, tokens=_ROWS, kind="random", seed=seed))


def _layer(name: str, lowering: Lowering, config: PlenaConfig, seed: int) -> Workload:
    order = Accumulation.PAIR if lowering is Lowering.PAIR else Accumulation.EXPERT
    plan = LayerPlan(
        model=MODELS[name].scaled(config), tokens=_TOKENS, lowering=lowering, order=order
    )
    return build_layer_case(config, plan, kind="random", seed=seed)


def _utilisation() -> Iterator[Entry]:
    """The forms of the table, at the smallest number of tokens that is more than one."""
    for form in LOWERINGS:
        name = form.name.replace(", ", "-").replace(" ", "-").replace("'", "")
        yield Entry(f"utilisation/{name}", partial(_form, form))


def _form(form: Measured, config: PlenaConfig, seed: int) -> Workload:
    del seed  # the table's data are fixed
    spec = RoutedSpec(experts=8, top_k=2, hidden=config.MLEN, intermediate=config.MLEN)
    return form.build(config, spec, form.tokens[1])
