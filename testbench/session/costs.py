"""Where a program's cycles went, instruction by instruction."""

import numpy as np
from rich import box
from rich.table import Table

from isa.image import ProgramImage
from isa.instruction import word_text
from sim.pc_accounts import PcAccounts
from sim.profile.amounts import fraction
from sim.profile.tables import share, short_bytes


def cost_table(image: ProgramImage, accounts: PcAccounts, most: int) -> Table:
    """The `most` instructions of the program that own the most cycles of the run.

    A cycle is owned by the oldest unfinished instruction, or by the one at dispatch; `busy` are the
    cycles in which the instruction was its unit's oldest, hidden or not.
    """
    order = np.argsort(-accounts.wall, kind="stable")[:most]
    total = int(accounts.wall.sum())
    table = Table(
        title=f"instructions that own the most of {total} cycles",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for head in ("pc", "line", "cycles", "share", "times", "busy", "HBM"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("stage", no_wrap=True)
    table.add_column("instruction", overflow="fold")
    for pc in order.tolist():
        if accounts.wall[pc] == 0:
            break
        table.add_row(
            str(pc),
            str(int(image.lines[pc])),
            str(int(accounts.wall[pc])),
            share(fraction(int(accounts.wall[pc]), total)),
            str(int(accounts.completions[pc])),
            str(int(accounts.busy[:, pc].sum())),
            short_bytes(int(accounts.bytes_read[pc] + accounts.bytes_written[pc])),
            image.vocabulary[int(image.stages[pc])],
            word_text(int(image.words[pc])),
        )
    return table
