"""Bounded proofs about the machine, for every program of a small configuration.

    terms       Amaranth's netlist as bit-vector terms, cycle by cycle
    bmc         bounded model checking of a harness's Assert, Assume and Cover with Bitwuzla
    replay      a counterexample again, in Amaranth's own simulator
    machine     the machine with its units abstracted: their outputs are free
    shadow      the model that the machine is compared with
    tags        the harness: who each cycle is billed to, and what an instruction is tagged with
    mutants     broken copies of the project, each of which must have a counterexample

`python -m testbench.formal --all` runs everything. Needs the extra `formal`.
"""
