"""In-order issue: fetch, decode, address resolution, traps, hazards and the loop stack."""
