"""Which rules an MX leaf is built for."""

from isa.config import MX_DIALECTS

__all__ = ["DEFAULT_DIALECT", "check_dialect"]

DEFAULT_DIALECT = MX_DIALECTS[0]


def check_dialect(leaf: str, dialect: str) -> str:
    """``dialect``, or ValueError when there is none of that name."""
    if dialect not in MX_DIALECTS:
        raise ValueError(
            f"{leaf}: dialect must be one of {', '.join(MX_DIALECTS)}, not {dialect!r}"
        )
    return dialect
