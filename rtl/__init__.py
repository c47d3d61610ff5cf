"""The PLENA datapath as Amaranth components: leaves, units, memories, dispatcher, profile counters
and the top."""
