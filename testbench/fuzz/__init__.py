"""Random programs: legal, dense in hazards, run in lock step with the architectural machine.

    case         a program with its data, device and policy; saved and loaded
    addresses    which register can address what
    emitter      one legal instruction with its operands set up
    generator    programs: patterns, loops, traps
    run          a case on the hardware, in lock step
    shrink       a failing case made small

Command: `python -m testbench.fuzz --minutes 10`.
"""
