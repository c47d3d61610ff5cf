"""The caveat that every profile carries about comparing shared and routed stages."""

#: attribution.md asks for one constant, beside the routed lowerings; whoever writes a profile takes
#: it from here, through `shared_vs_routed_note` when there are routed experts.
SHARED_VS_ROUTED_NOTE = (
    "A ratio of shared to routed time says at least as much about how the routed experts were "
    "lowered as about the "
    "hardware: the shared expert runs all tokens as one batch on weights that are loaded once, "
    "while a routed lowering "
    "chooses how often it loads an expert's weights and how many rows share a tile. This program "
    "has no routed experts."
)

_NO_ROUTED = " This program has no routed experts."
#: What each lowering chooses, by its name.
_LOWERINGS = {
    "pair": " This program's routed experts are lowered pair-major: every (token, expert) pair "
    "loads its expert's weights and uses one row of a tile.",
    "expert": " This program's routed experts are lowered expert-major: a chosen expert's weights "
    "are loaded once per batch, and its tokens share the tiles.",
}


def shared_vs_routed_note(lowering: str | None) -> str:
    """The caveat for a program whose routed experts are lowered as `lowering` ("pair", "expert"),
    or that has none."""
    if lowering is None:
        return SHARED_VS_ROUTED_NOTE
    return SHARED_VS_ROUTED_NOTE.removesuffix(_NO_ROUTED) + _LOWERINGS[lowering]
