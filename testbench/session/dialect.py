"""The MX dialect of a dump of HBM, in the file itself: a comment of the text or the .npy header.

A file without one, like a user's own array or upstream's raw bytes, means what the configuration
says.
"""

import re
from pathlib import Path

from isa.config import PlenaConfig
from testbench.session.request import RequestError

_NOTE = re.compile(rb"mx_dialect *= *(\w+)")


def note(config: PlenaConfig) -> str:
    """What a file says about its dialect."""
    return f"mx_dialect = {config.mx_dialect}"


def noted_npy(data: bytes, config: PlenaConfig) -> bytes:
    """The .npy file with the note in place of padding behind its header, a Python literal in which
    a comment is as good as white space."""
    start = len(b"\x93NUMPY") + 2 + 2  # magic, version, length of the header
    end = data.index(b"\n", start)
    header = data[start:end].rstrip() + f"  # {note(config)}".encode()
    if len(header) > end - start:
        raise ValueError(f"no room for a note in a .npy header of {end - start} bytes")
    return data[:start] + header.ljust(end - start) + data[end:]


def check_dialect(option: str, path: Path, config: PlenaConfig) -> None:
    """RequestError when the file says that it is of another dialect than the configuration."""
    data = path.read_bytes()
    if path.suffix.lower() == ".npy":
        data = data[: data.find(b"\n") + 1]
    elif path.suffix.lower() == ".bin":
        return
    found = _NOTE.search(data)
    if found is None or found.group(1).decode() == config.mx_dialect:
        return
    dialect = found.group(1).decode()
    raise RequestError(
        f"{option}: {path} is in MX dialect {dialect}, the machine's is {config.mx_dialect}, and "
        f"the bytes would be other numbers; use a --config with mx_dialect = {dialect!r}, or dump "
        f"the file again under {config.mx_dialect}"
    )
