"""Lowers MoE layers, and the dense operations under them, to PLENA programs."""

from compiler.architectures import ARCHITECTURES
from compiler.errors import CompileError
from compiler.hbm import HbmTensor, Order
from compiler.program import Program
from compiler.shared_program import SharedExpertProgram, compile_shared_expert
from compiler.shared_spec import SharedExpertSpec, fuse_weights
from compiler.vram import VramMatrix

__all__ = [
    "ARCHITECTURES",
    "CompileError",
    "HbmTensor",
    "Order",
    "Program",
    "SharedExpertProgram",
    "SharedExpertSpec",
    "VramMatrix",
    "compile_shared_expert",
    "fuse_weights",
]
