"""The bit-exact numerics of the PLENA datapath, in NumPy and ml_dtypes.

Written from numerics.md and isa.md alone; it imports nothing of `rtl`, and nothing there may be
written from it.

    exact    scalar rounding with fractions: the oracle the array code is tested against
    bf16     rounding to BF16 and the element-wise operations
    reduce   FP32 neighbours-first tree, V_RED_SUM, V_RED_MAX
    matrix   products, and one matrix instruction on one tile
    mx       MX blocks: E4M3 elements under one E8M0 scale, in two dialects
    topk     V_TOPK: ranking and weights, by the steps that the unit states

Every array of BF16 values has dtype `ml_dtypes.bfloat16`; any other dtype is refused where it would
otherwise be rounded without notice. NaN is one value: compare with `bf16.canonical_bits`.
"""
