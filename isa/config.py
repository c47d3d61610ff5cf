"""One configuration for the whole project: hardware, compiler and host read their sizes from it and
nowhere else."""

import dataclasses
import difflib
import hashlib
import json
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


class ConfigError(ValueError):
    """A configuration that breaks a rule; the message names the field, the value, the rule and the
    way out."""


#: Element formats that the HBM port converts, by configuration name: bytes per element, whether
#: E8M0 scales follow.
MX_FORMATS: dict[str, tuple[int, bool]] = {"e4m3": (1, True)}

#: Rules of the MX conversion: OCP's (numerics.md, "MX conversion"), or the PLENA emulator's. They
#: give the same bytes different values, so files carry their dialect.
MX_DIALECTS = ("ocp", "plena")

ISSUE_POLICIES = ("overlap", "serial")


@dataclass(frozen=True, kw_only=True)
class PlenaConfig:
    """Every size and policy of one machine (architecture.md, "Configuration").

    Sizes are in elements, rows, tiles or words as named; times in cycles unless a unit is in the
    name.
    Raises `ConfigError` on construction when a value or a relation between values is not supported.
    """

    name: str = "custom"
    MLEN: int = 64  #: lanes of a matrix tile row, and of a vector row (VLEN)
    BLEN: int = 4  #: rows and columns of one M_MM result
    HLEN: int = 16  #: lanes of one attention head, and of one V_MASK bit
    SFU_LANES: int = 16  #: exponential and reciprocal lanes
    MRAM_TILES: int = 16  #: matrix SRAM, tiles of MLEN x MLEN
    VRAM_ROWS: int = 4096  #: vector SRAM, rows of VLEN
    FP_MEM_WORDS: int = 1024
    INT_MEM_WORDS: int = 1024
    IMEM_WORDS: int = 65536
    LOOP_DEPTH: int = 8
    INFLIGHT: int = 16  #: instructions that may be unfinished at once
    HBM_QUEUE: int = 4  #: H_* instructions that the HBM port holds
    HBM_M_PREFETCH: int | None = None  #: rows of one H_PREFETCH_M; None is MLEN
    HBM_V_PREFETCH: int | None = None  #: rows of one H_PREFETCH_V; None is BLEN
    HBM_V_WRITEBACK: int | None = None  #: rows of one H_STORE_V; None is BLEN
    HBM_BYTES: int = 16 << 30
    HBM_BEAT_BYTES: int = 64
    HBM_LATENCY: int = 24  #: cycles from an accepted read request to its response
    HBM_CYCLES_PER_BEAT: int = 1  #: 1 is a beat in every cycle
    HBM_OUTSTANDING: int = 64  #: read beats under way
    MX_BLOCK: int = 8
    MX_WEIGHTS: str = "e4m3"
    MX_ACTIVATIONS: str = "e4m3"
    MX_KV: str = "e4m3"
    mx_dialect: str = "ocp"  #: rules of the MX conversion
    BMM_SCALE_LOG2: int | None = None  #: log2 of bmm_scale; None is -ceil(log2(HLEN) / 2)
    TOPK_MAX: int = 16
    ISSUE: str = "overlap"
    CLOCK_PERIOD_PS: int = 1000

    def __post_init__(self) -> None:
        for field, amount in (
            ("HBM_M_PREFETCH", self.MLEN),
            ("HBM_V_PREFETCH", self.BLEN),
            ("HBM_V_WRITEBACK", self.BLEN),
        ):
            if getattr(self, field) is None:
                object.__setattr__(self, field, amount)
        for field in dataclasses.fields(self):
            self._check_type(field.name)
        for name in ("MLEN", "BLEN", "HLEN", "SFU_LANES", "MX_BLOCK"):
            value = getattr(self, name)
            self._require(
                value & (value - 1) == 0, name, "must be a power of two", "e.g. 64, 4, 16"
            )
        self._require(8 <= self.MLEN <= 512, "MLEN", "must be 8 to 512", "tiny uses 8, default 64")
        self._require(
            2 <= self.BLEN <= self.MLEN, "BLEN", f"must be 2 to MLEN = {self.MLEN}", "use 4"
        )
        self._require(
            2 <= self.HLEN <= self.MLEN and self.MLEN // self.HLEN <= 32,
            "HLEN",
            f"must be 2 to MLEN = {self.MLEN}, and at most 32 heads",
            "use MLEN / 4",
        )
        self._require(
            self.SFU_LANES <= self.MLEN,
            "SFU_LANES",
            f"must be at most MLEN = {self.MLEN}",
            "use MLEN",
        )
        self._require(
            self.MX_BLOCK <= self.MLEN, "MX_BLOCK", f"must divide MLEN = {self.MLEN}", "use 8"
        )
        for name in ("VRAM_ROWS", "MRAM_TILES", "FP_MEM_WORDS", "INT_MEM_WORDS", "IMEM_WORDS"):
            self._require(
                2 <= getattr(self, name) <= 1 << 20, name, "must be 2 to 1048576", "use the default"
            )
        self._require(2 <= self.INFLIGHT <= 64, "INFLIGHT", "must be 2 to 64", "use 16")
        self._require(
            self.VRAM_ROWS >= self.MLEN,
            "VRAM_ROWS",
            f"must hold MLEN = {self.MLEN} rows",
            "raise it",
        )
        self._require(
            self.FP_MEM_WORDS % self.MLEN == 0,
            "FP_MEM_WORDS",
            f"must be a multiple of MLEN = {self.MLEN}",
            "use 1024",
        )
        self._require(self.HBM_BEAT_BYTES == 64, "HBM_BEAT_BYTES", "must be 64", "leave it out")
        self._require(
            self.HBM_BYTES % self.HBM_BEAT_BYTES == 0 and 4096 <= self.HBM_BYTES <= 1 << 48,
            "HBM_BYTES",
            "must be a multiple of 64 between 4096 and 2**48",
            "use 17179869184 (16 GiB)",
        )
        for name in (
            "HBM_LATENCY",
            "HBM_CYCLES_PER_BEAT",
            "HBM_OUTSTANDING",
            "HBM_QUEUE",
            "LOOP_DEPTH",
        ):
            self._require(
                1 <= getattr(self, name) <= 4096, name, "must be 1 to 4096", "use the default"
            )
        self._require(
            1 <= self.m_prefetch <= self.MLEN,
            "HBM_M_PREFETCH",
            f"must be 1 to MLEN = {self.MLEN}",
            "leave it out",
        )
        for name in ("HBM_V_PREFETCH", "HBM_V_WRITEBACK"):
            self._require(
                1 <= getattr(self, name) <= self.MLEN, name, "must be 1 to MLEN", "leave it out"
            )
        for name in ("MX_WEIGHTS", "MX_ACTIVATIONS", "MX_KV"):
            self._require(
                getattr(self, name) in MX_FORMATS,
                name,
                f"must be one of {', '.join(MX_FORMATS)}",
                "use e4m3",
            )
        self._require(
            self.BMM_SCALE_LOG2 is None or -64 <= self.BMM_SCALE_LOG2 <= 64,
            "BMM_SCALE_LOG2",
            "must be -64 to 64",
            "leave it out for -ceil(log2(HLEN) / 2)",
        )
        self._require(
            1 <= self.TOPK_MAX <= 255,
            "TOPK_MAX",
            "must be 1 to 255 (top_k has 8 bits in the policy)",
            "use 16",
        )
        for name, known in (("ISSUE", ISSUE_POLICIES), ("mx_dialect", MX_DIALECTS)):
            rule = f"must be one of {', '.join(known)}"
            self._require(getattr(self, name) in known, name, rule, f"use {known[0]}")
        self._require(
            1 <= self.CLOCK_PERIOD_PS <= 10**9, "CLOCK_PERIOD_PS", "must be 1 to 10**9", "use 1000"
        )

    def _check_type(self, name: str) -> None:
        value = getattr(self, name)
        if name == "BMM_SCALE_LOG2" and value is None:
            return
        wanted = str if type(self).__annotations__[name] is str else int
        if type(value) is not wanted:
            raise ConfigError(
                f"{name} = {value!r}: must be {'a string' if wanted is str else 'an integer'}, "
                f"not {type(value).__name__}"
            )
        # An exponent is the only number that may be zero or negative.
        if isinstance(value, int) and value < 1 and name != "BMM_SCALE_LOG2":
            raise ConfigError(
                f"{name} = {value!r}: must be at least 1; leave it out for the default"
            )

    def _require(self, holds: bool, name: str, rule: str, way_out: str) -> None:
        if not holds:
            raise ConfigError(f"{name} = {getattr(self, name)!r}: {rule} ({way_out})")

    # Derived sizes: computed here and nowhere else.

    @property
    def VLEN(self) -> int:
        """Lanes of a vector row; equal to MLEN in every supported configuration."""
        return self.MLEN

    @property
    def m_prefetch(self) -> int:
        """Rows of one H_PREFETCH_M."""
        return self.HBM_M_PREFETCH or self.MLEN

    @property
    def v_prefetch(self) -> int:
        """Rows of one H_PREFETCH_V."""
        return self.HBM_V_PREFETCH or self.BLEN

    @property
    def v_writeback(self) -> int:
        """Rows of one H_STORE_V."""
        return self.HBM_V_WRITEBACK or self.BLEN

    @property
    def bmm_scale(self) -> float:
        """The factor that M_BMM and its kin multiply by before they accumulate: a power of two."""
        if self.BMM_SCALE_LOG2 is None:
            return 2.0 ** -(self.HLEN.bit_length() // 2)
        return 2.0**self.BMM_SCALE_LOG2

    @property
    def heads(self) -> int:
        """Attention heads side by side in a row, and significant bits of V_MASK."""
        return self.MLEN // self.HLEN

    @property
    def tile_elements(self) -> int:
        """Elements of one matrix tile."""
        return self.MLEN * self.MLEN

    @property
    def vram_elements(self) -> int:
        """Elements of the vector SRAM."""
        return self.VRAM_ROWS * self.MLEN

    @property
    def mram_elements(self) -> int:
        """Elements of the matrix SRAM."""
        return self.MRAM_TILES * self.tile_elements

    @cached_property
    def digest(self) -> str:
        """A hash of every field but the name, for artefacts that must not be mixed between
        configurations."""
        fields = {k: v for k, v in dataclasses.asdict(self).items() if k != "name"}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    def replace(self, **changes: object) -> "PlenaConfig":
        """A copy with some fields changed, validated again."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


PRESETS: dict[str, PlenaConfig] = {
    "tiny": PlenaConfig(
        name="tiny", MLEN=8, BLEN=4, HLEN=8, SFU_LANES=8, VRAM_ROWS=1024, IMEM_WORDS=16384
    ),
    "small": PlenaConfig(
        name="small", MLEN=16, BLEN=4, HLEN=8, SFU_LANES=8, VRAM_ROWS=2048, IMEM_WORDS=16384
    ),
    "default": PlenaConfig(name="default"),
}


def load_config(source: str) -> PlenaConfig:
    """The preset called `source`, or the configuration in the TOML file at that path.

    A file may name the preset it starts from with `base = "small"`; every other key is a field of
    `PlenaConfig`.

    Raises:
        ConfigError: unknown preset, unreadable file, unknown key (with the nearest one), or a bad
        value.
    """
    if source in PRESETS:
        return PRESETS[source]
    path = Path(source)
    if not path.is_file():
        raise ConfigError(
            f"configuration {source!r}: neither a preset ({', '.join(PRESETS)}) nor a TOML file "
            "that exists"
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from error
    base = table.pop("base", "default")
    if base not in PRESETS:
        raise ConfigError(f"{source}: base = {base!r}: must be one of {', '.join(PRESETS)}")
    known = {field.name.upper(): field.name for field in dataclasses.fields(PlenaConfig)}
    for key in table:
        if key not in known.values():
            near = difflib.get_close_matches(key.upper(), known, 1)
            names = ", ".join(known.values())
            hint = f"did you mean {known[near[0]]}?" if near else f"known: {names}"
            raise ConfigError(f"{source}: unknown key {key!r}; {hint}")
    # Amounts that follow MLEN or BLEN are derived again unless the file gives them.
    follow = dict.fromkeys(("HBM_M_PREFETCH", "HBM_V_PREFETCH", "HBM_V_WRITEBACK"))
    try:
        return PRESETS[base].replace(**{"name": path.stem, **follow, **table})
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
