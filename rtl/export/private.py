"""The private parts of Amaranth that the export relies on, in one place; amaranth is pinned for
them."""

import importlib
from typing import Any

_fragments: Any = importlib.import_module("amaranth.hdl._ir")
_memories: Any = importlib.import_module("amaranth.hdl._mem")
_rtlil: Any = importlib.import_module("amaranth.back.rtlil")

#: Flows of top-level ports.
PortDirection: Any = _fragments.PortDirection
#: A memory in the tree of fragments; `_data` is its MemoryData.
MemoryInstance: Any = _memories.MemoryInstance
#: Fragment or prepared design -> (RTLIL, signal -> hierarchical name).
rtlil_fragment: Any = _rtlil.convert_fragment
#: Component -> RTLIL, all of it by Amaranth.
rtlil_component: Any = _rtlil.convert
#: The Yosys that Amaranth itself would take.
find_yosys: Any = importlib.import_module("amaranth._toolchain.yosys").find_yosys
