"""The compiled engine: the elaborated design to C, the C to machine code."""
