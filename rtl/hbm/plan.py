"""What the blocks of the HBM port tell each other, and the sizes that they share."""

from amaranth.lib import data, enum
from amaranth.utils import ceil_log2, exact_log2

from isa.config import PlenaConfig
from rtl.interfaces import HBM_ADDRESS_BITS, Shapes, Tag

BEAT_BYTES = 64
BEAT_BITS = 8 * BEAT_BYTES
OFFSET_BITS = exact_log2(BEAT_BYTES)
BEAT_ADDRESS_BITS = HBM_ADDRESS_BITS - OFFSET_BITS


class Transfer(enum.Enum, shape=2):
    """What an instruction moves."""

    MATRIX = 0  # memory to matrix SRAM
    VECTOR = 1  # memory to vector SRAM
    STORE = 2  # vector SRAM to memory


class Answer(enum.Enum, shape=2):
    """What the response that a step takes is."""

    NOTHING = 0  # the step takes no response: the beat it needs is held
    SCALES = 1
    ELEMENTS = 2
    WRITTEN = 3


class Plan:
    """Sizes and layouts of the port.

    A row of MLEN element bytes is `chunks` chunks of `chunk_bytes` (64, or MLEN when that is less),
    each of which lies in one beat or in two neighbours. The `scale_bytes` of a row lie in one beat
    or in two neighbours as well.

    Raises:
        ValueError: a row has more scale bytes than a beat, or a block more elements.
    """

    def __init__(self, config: PlenaConfig) -> None:
        self.config = config
        self.shapes = Shapes(config)
        self.chunk_bytes = min(BEAT_BYTES, config.MLEN)
        self.chunks = config.MLEN // self.chunk_bytes
        self.scale_bytes = config.MLEN // config.MX_BLOCK
        self.block_bits = exact_log2(config.MX_BLOCK)
        if self.scale_bytes > BEAT_BYTES:
            raise ValueError(
                f"MX_BLOCK = {config.MX_BLOCK}: a row of MLEN = {config.MLEN} elements must have "
                f"at most {BEAT_BYTES} scale bytes for the HBM port, not {self.scale_bytes} "
                f"(use {config.MLEN // BEAT_BYTES} or more)"
            )
        if self.chunk_bytes < config.MX_BLOCK:
            raise ValueError(
                f"MX_BLOCK = {config.MX_BLOCK}: a block must have at most {self.chunk_bytes} "
                f"elements for the HBM port (use 8)"
            )
        self.memory_row_bits = max(self.shapes.row_bits, self.shapes.tile_bits)
        most_rows = max(config.m_prefetch, config.v_prefetch, config.v_writeback)
        self.row_index_bits = max(1, ceil_log2(most_rows))

    @property
    def walk(self) -> data.StructLayout:
        """An instruction as the request side sees it."""
        return data.StructLayout(
            {
                "transfer": Transfer,
                "elements": HBM_ADDRESS_BITS,
                "scales": HBM_ADDRESS_BITS,
                "stride": 32,
                "tag": Tag,
            }
        )

    @property
    def row(self) -> data.StructLayout:
        """One row: where it lies in memory, and what of it the row before has already brought.

        For the elements and for the scales: `beat` is the first beat, `offset` the byte in it;
        `straddle` says that a chunk lies in two beats; `reuse` that the first beat is the last one
        of the row before.
        """
        stream = data.StructLayout(
            {"beat": BEAT_ADDRESS_BITS, "offset": OFFSET_BITS, "straddle": 1, "reuse": 1}
        )
        return data.StructLayout(
            {"elements": stream, "scales": stream, "write": 1, "tag": Tag, "last": 1}
        )

    @property
    def step(self) -> data.StructLayout:
        """One step of the response side, in the order of the requests.

        It takes the response `answer`; then, if `chunk` is set, chunk number `index` of a row and
        its scales are complete: they start at byte `element_shift` and `scale_shift` of the last
        two beats of their stream. `row_last` completes the row, `last` the instruction.
        """
        return data.StructLayout(
            {
                "answer": Answer,
                "chunk": 1,
                "index": max(1, ceil_log2(self.chunks)),
                "element_shift": OFFSET_BITS + 1,
                "scale_shift": OFFSET_BITS + 1,
                "row_last": 1,
                "last": 1,
            }
        )

    @property
    def collect(self) -> data.StructLayout:
        """An instruction as the response side sees it."""
        return data.StructLayout(
            {"tag": Tag, "transfer": Transfer, "row": self.memory_row_bits, "precision": 1}
        )

    @property
    def packed(self) -> data.StructLayout:
        """A row in memory's form: element codes and block scales, the first in the low bits."""
        return data.StructLayout({"codes": 8 * self.config.MLEN, "scales": 8 * self.scale_bytes})

    @property
    def landed(self) -> data.StructLayout:
        """What goes with a row, or with the end of an instruction, out of the port."""
        return data.StructLayout(
            {
                "tag": Tag,
                "transfer": Transfer,
                "row": self.memory_row_bits,  # tile, or vector SRAM row
                "index": self.row_index_bits,  # row of the tile
                "precision": 1,
                "write": 1,  # a row is complete; otherwise only `last` counts
                "last": 1,
                "failed": 1,  # an answer carried an error
            }
        )
