"""The parts of `python -m testbench.run`: a user's program, its memories, stops and trace."""
