"""The independent bit-exact reference of whole workloads, on the numerics of `sim.numerics`.

Written from the specification pages `numerics.md`, `lowering.md` and `isa.md` alone. It imports
nothing of `rtl` or `compiler`, and nothing there may be written from it.

    matrix          the linear projection with its K-split
    shared_expert   SwiGLU, sigmoid gate, the whole shared expert, combine
    data            test tensors: exact under MX, upstream's pattern, random, order-sensitive
"""
