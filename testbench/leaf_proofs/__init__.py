"""Proofs that the arithmetic leaves compute their definition, for every input.

    definitions     what BF16, FP32 and the unary units must give
    mx_definitions  what the MX leaves must give
    operands        patterns and random pairs for what has too many inputs
    native          a leaf as machine code, and loops that hold it against the host's FPU
    lanes           that the vector unit feeds its adders the right signs
    proofs          the table of proofs

`python -m testbench.leaf_proofs --all` runs everything. Needs a C compiler, for the exponential the
extra `dev`, for the lanes the extra `formal`.
"""
