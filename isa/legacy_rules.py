"""How a program without stage markers is tagged: the legacy rules, as data (attribution.md).

`isa.markers.legacy_stage` applies them; the terms that reports look for are derived from them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from isa.stages import Stage


@dataclass(frozen=True)
class Clause:
    """Holds for a comment that has every term of `all_of` and none of `none_of`, if the current
    stage is `within` (None: any). Terms are in lower case."""

    all_of: tuple[str, ...]
    none_of: tuple[str, ...] = ()
    within: Stage | None = None

    def holds(self, lowered: str, current: Stage) -> bool:
        """Whether it holds for a comment in lower case."""
        return (
            (self.within is None or self.within is current)
            and all(term in lowered for term in self.all_of)
            and not any(term in lowered for term in self.none_of)
        )


@dataclass(frozen=True)
class LegacyRule:
    """Gives `stage` when any clause holds."""

    stage: Stage
    clauses: tuple[Clause, ...]

    def terms(self) -> Iterator[str]:
        """Every term that it looks for, in order."""
        for clause in self.clauses:
            yield from (*clause.all_of, *clause.none_of)


def _any(*terms: str, within: Stage | None = None) -> tuple[Clause, ...]:
    return tuple(Clause((term,), within=within) for term in terms)


_ALLOCATE = "allocate vram matrix step6_pair"
_TRUE_ZERO = "true-zero vram rows"

#: In order of precedence: the first one that hits decides, and without a hit the stage stays.
LEGACY_RULES: tuple[LegacyRule, ...] = (
    LegacyRule(Stage.ROUTER_TOPK, _any("gpt-oss router", "router token", "router dot token")),
    LegacyRule(Stage.SCATTER_COMBINE, _any("gpt-oss vram scatter-add", "_scatter")),
    LegacyRule(Stage.EXPERT_ROUTE_WEIGHT, (Clause((_ALLOCATE, "_route")),)),
    LegacyRule(
        Stage.EXPERT_ROUTE_WEIGHT,
        (
            *_any("materialize route weight"),
            *_any(_TRUE_ZERO, within=Stage.EXPERT_ROUTE_WEIGHT),
        ),
    ),
    LegacyRule(Stage.ACCUMULATOR_INIT, _any("step6_device_routing_acc", _TRUE_ZERO)),
    LegacyRule(
        Stage.GATHER,
        (
            *_any("gpt-oss gather token rows", "gather pair", "clear gather padding"),
            Clause((_ALLOCATE, "_gather")),
        ),
    ),
    LegacyRule(Stage.EXPERT_BIAS, _any("dynamic expert bias add")),
    LegacyRule(Stage.EXPERT_ACTIVATION, (Clause((_ALLOCATE, "_sigmoid")),)),
    LegacyRule(
        Stage.EXPERT_ACTIVATION,
        (
            *_any("tile row min fp", "tile row max fp"),
            *_any(
                *("vram fill zero", "vram matrix add", "vram matrix mul"),
                within=Stage.EXPERT_ACTIVATION,
            ),
        ),
    ),
    LegacyRule(
        Stage.EXPERT_WEIGHT_ADDRESS,
        _any("dynamic hbm weight prefetch", "expert_id_to_weight_base"),
    ),
    LegacyRule(Stage.EXPERT_WEIGHT_PREFETCH, _any("subblock [")),
    LegacyRule(
        Stage.EXPERT_PROJECTION,
        (
            *_any("sub projection", "vram block add", "vram block"),
            Clause((_ALLOCATE,), none_of=("_gather",)),
        ),
    ),
)

#: Every term, once, in the order in which the rules first name it: for reports on which of them a
#: program uses.
LEGACY_TERMS: tuple[str, ...] = tuple(
    dict.fromkeys(term for rule in LEGACY_RULES for term in rule.terms())
)
