"""Mutation testing: small changes of the RTL's netlist, each of which the tests must notice."""
