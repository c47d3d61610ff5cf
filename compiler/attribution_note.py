"""The caveat that every profile carries about comparing shared and routed stages."""

#: Imported by whoever writes a profile; attribution.md asks for one constant, beside the routed
#: lowering.
SHARED_VS_ROUTED_NOTE = (
    "A ratio of shared to routed time says at least as much about how the routed experts were "
    "lowered as about the "
    "hardware: the shared expert runs all tokens as one batch on weights that are loaded once, "
    "while a routed lowering "
    "chooses how often it loads an expert's weights and how many rows share a tile. This program "
    "has no routed experts."
)
