"""Measures the simulators: one engine on a fixed program, or all of them side by side."""
