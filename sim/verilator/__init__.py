"""The engine `verilator`: the exported Verilog, compiled by Verilator; an independent opinion."""
