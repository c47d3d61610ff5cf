"""The private parts of Amaranth that the engines rely on, in one place; amaranth is
pinned for them.

They are `Any` on purpose: the published stubs describe the public interface only.
"""

import importlib
from typing import Any

ast: Any = importlib.import_module("amaranth.hdl._ast")
fragments: Any = importlib.import_module("amaranth.hdl._ir")
memories: Any = importlib.import_module("amaranth.hdl._mem")
transforms: Any = importlib.import_module("amaranth.hdl._xfrm")
evaluation: Any = importlib.import_module("amaranth.sim._pyeval")
pysim: Any = importlib.import_module("amaranth.sim.pysim")
pyrtl: Any = importlib.import_module("amaranth.sim._pyrtl")
