"""Runnable workloads (`python -m testbench.NAME`) and the reference that their results are compared
with."""
