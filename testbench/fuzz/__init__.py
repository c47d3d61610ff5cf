"""Random programs: legal, dense in hazards, run in lock step with the architectural machine.

    case          a program with its data, device and policy; saved and loaded
    addresses     which register can address what
    emitter       one legal instruction with its operands set up
    generator     programs: patterns, loops, traps
    run, final    a case on the hardware, in lock step; under both policies, or on two engines
    session       consecutive seeds until a limit or a difference
    record        what a session ran, to go on behind it or to run it again
    shrink        a failing case made small
    dependencies  which dependencies two neighbouring instructions can have
    footprints    where an instruction reads and writes
    coverage      which dependencies have occurred
    directed      programs that make one
    source        the text of programs whose every line is chosen; with it:
    sweeps        limits of the decoder and of addresses, bit by bit; restarts: on behind traps
    meetings      two instructions in given scoreboard slots; traffic: all slots, always
    faults        memory errors in given slots
    nests         loops, at every pc
    dense, tiles  data in which every bit can decide

Commands: `python -m testbench.fuzz --help`, `python -m testbench.pair_coverage --help`.
"""
