"""Running the machine: engines, the HBM device, the host's run loop, the stage profile and
reports."""
