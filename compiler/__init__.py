"""Lowers MoE layers, and the dense operations under them, to PLENA programs."""

from compiler.architectures import ARCHITECTURES
from compiler.errors import CompileError
from compiler.hbm import HbmTensor, Order
from compiler.models import MODELS, find_model
from compiler.moe_model import MoeModel
from compiler.program import Program
from compiler.router import Router
from compiler.router_rule import RouterRule, RouterSpec
from compiler.shared_program import SharedExpertProgram, compile_shared_expert
from compiler.shared_spec import SharedExpertSpec, fuse_weights
from compiler.vram import VramMatrix

__all__ = [
    "ARCHITECTURES",
    "MODELS",
    "CompileError",
    "HbmTensor",
    "MoeModel",
    "Order",
    "Program",
    "Router",
    "RouterRule",
    "RouterSpec",
    "SharedExpertProgram",
    "SharedExpertSpec",
    "VramMatrix",
    "compile_shared_expert",
    "find_model",
    "fuse_weights",
]
