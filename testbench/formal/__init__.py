"""Proofs about the machine, for every program of a small configuration.

    builder     bit-vector terms of Bitwuzla
    terms       Amaranth's netlist as such terms, cycle by cycle
    bmc         a harness's Assert, Assume and Cover: bounded, inductive, reachable
    replay      a counterexample again, in Amaranth's own simulator
    machine     the machine with its units abstracted: their outputs are free
    shadow      the model that the machine is compared with
    tags        the harness: who each cycle is billed to, and what an instruction is tagged with
    lemmas      what makes the induction go through, and what must be reachable
    mutants     broken copies of the project, each of which must have a counterexample

`python -m testbench.formal --all` runs everything. Needs the extra `formal`.
"""
