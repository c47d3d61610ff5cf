"""Values of a memory in files: NumPy arrays (.npy), or text with hexadecimal numbers."""

import io
import re
from pathlib import Path

import ml_dtypes
import numpy as np

from isa.config import PlenaConfig
from testbench.session.request import RequestError
from testbench.session.stores import Array, Store

#: Elements per line of text where a unit has none of its own.
WORDS_PER_LINE = 8
BYTES_PER_LINE = 32

_COMMENT = re.compile(r"(;|//|#).*")
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]+)")


def read_values(option: str, path: Path, store: Store, config: PlenaConfig) -> Array:
    """The units that `path` holds, [count, *shape] of the memory's own element type.

    Nothing is rounded or cut off on the way. BF16 memories take arrays of bfloat16 or of bit
    patterns (uint16); INT_MEM any integers of 32 bits; HBM the bytes of any array as they are in
    memory, little-endian, or a file of raw bytes (.bin). Text holds hexadecimal numbers of at most
    one element each (HBM: bytes, two digits each, also run together), separated by white space;
    `;`, `#` or `//` open a comment.

    Raises:
        RequestError: the message names option, file, what it holds and what is wanted.
        OSError: it cannot be read.
    """
    try:
        suffix = path.suffix.lower()
        if suffix == ".npy":
            flat = _from_array(path, store, config)
        elif suffix == ".bin" and store.name == "hbm":
            flat = np.frombuffer(path.read_bytes(), np.uint8)
        else:
            flat = _from_text(path, store)
        if not flat.size:
            raise RequestError("holds nothing")
        unit = store.size(config)
        if flat.size % unit:
            raise RequestError(
                f"holds {flat.size} elements, no whole number of {store.unit}s of {unit} "
                f"(MLEN = {config.MLEN})"
            )
    except RequestError as error:
        raise RequestError(f"{option}: {path}: {error}") from error.__cause__
    return flat.reshape(-1, *store.shape(config))


def _from_array(path: Path, store: Store, config: PlenaConfig) -> Array:
    with path.open("rb") as file:
        try:
            array = np.load(file, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise RequestError(f"not a NumPy array file ({error}); save it with np.save") from error
    if not isinstance(array, np.ndarray):
        raise RequestError("holds several arrays (.npz); save the one that is meant with np.save")
    if store.name != "hbm" and array.ndim > 1 and array.shape[-1] != config.MLEN:
        raise RequestError(
            f"the array is {list(array.shape)}, but a row of the {store.title} has MLEN = "
            f"{config.MLEN} elements; pad the last dimension"
        )
    if store.name == "hbm":
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return np.frombuffer(np.ascontiguousarray(little).tobytes(), np.uint8)
    return (_bf16_of if store.bf16 else _words_of)(array, store).reshape(-1)


def _bf16_of(array: np.ndarray, store: Store) -> Array:
    # NumPy's file format knows bfloat16 only as two bytes without a meaning (V2).
    if array.dtype in (np.dtype(ml_dtypes.bfloat16), np.dtype("V2")):
        return np.ascontiguousarray(array).view(np.uint16)
    if array.dtype == np.uint16:
        return array.astype(np.uint16)
    raise RequestError(
        f"an array of {array.dtype}, but the {store.title} holds BF16; round it once with "
        "astype(ml_dtypes.bfloat16), or save bit patterns as uint16"
    )


def _words_of(array: np.ndarray, store: Store) -> Array:
    if not np.issubdtype(array.dtype, np.integer):
        raise RequestError(f"an array of {array.dtype}, but the {store.title} holds integers")
    ends = (int(array.min()), int(array.max())) if array.size else ()
    for value in ends:
        if not -(1 << 31) <= value < 1 << 32:
            raise RequestError(f"{value} does not fit 32 bits, the words of the {store.title}")
    return (array.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)


def _from_text(path: Path, store: Store) -> Array:
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            f"not text with hexadecimal numbers ({error}); an array's file is called .npy"
        ) from error
    digits = np.dtype(store.dtype).itemsize * 2
    values: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        for token in _COMMENT.sub("", line).split():
            found = _HEX.fullmatch(token)
            if found is not None and store.name == "hbm" and len(found.group(1)) % 2 == 0:
                values += bytes.fromhex(found.group(1))
            elif found is not None and store.name != "hbm" and len(found.group(1)) <= digits:
                values.append(int(found.group(1), 16))
            else:
                wanted = "bytes of 2 digits" if store.name == "hbm" else f"1 to {digits} digits"
                raise RequestError(
                    f"line {number}: {token[:40]!r} is not hexadecimal, {wanted} for the "
                    f"{store.title}"
                )
    return np.array(values, store.dtype)


def npy_bytes(values: Array) -> bytes:
    """The array as a .npy file: bit patterns, in the shape of the memory."""
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def hex_text(values: Array, store: Store, first: int) -> str:
    """The values as text that `read_values` takes back, a comment with the place on each line."""
    digits = np.dtype(store.dtype).itemsize * 2
    per_line = BYTES_PER_LINE if store.name == "hbm" else WORDS_PER_LINE
    if store.unit == "register":
        per_line = 1
    lines = []
    for index, unit in enumerate(_lines(values, per_line)):
        if store.unit == "register":
            place = f"{store.name}{first + index}"
        elif values.ndim == 1:
            place = f"{store.name}[{first + index * per_line:#x}]"
        elif values.ndim == 2:
            place = f"{store.name}[{first + index}]"
        else:
            tile, row = divmod(index, values.shape[1])
            place = f"{store.name}[{first + tile}] row {row}"
        lines.append(f"{' '.join(f'{int(v):0{digits}X}' for v in unit)}  ; {place}")
    return "\n".join(lines) + "\n"


def _lines(values: Array, per_line: int) -> list[Array]:
    if values.ndim == 1:
        return [values[i : i + per_line] for i in range(0, len(values), per_line)]
    return list(values.reshape(-1, values.shape[-1]))
