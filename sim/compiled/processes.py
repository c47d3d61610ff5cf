"""Which statements make one process: those that drive bits of one net."""

from sim.compiled.lower import Statement, driven_nets
from sim.compiled.netlist import Process

__all__ = ["joined", "split"]


def split(path: tuple[str, ...], sync: bool, statements: list[Statement]) -> list[Process]:
    """Groups statements that drive the same nets; the order within a group stays."""
    group_of: dict[int, int] = {}
    groups: list[list[int]] = []  # -> positions in `statements`
    for position, statement in enumerate(statements):
        nets = driven_nets((statement,))
        together = sorted({group_of[n] for n in nets if n in group_of})
        if together:
            target = together[0]
            for other in together[1:]:
                groups[target] += groups[other]
                groups[other] = []
        else:
            target = len(groups)
            groups.append([])
        groups[target].append(position)
        group_of = {n: target if g in together else g for n, g in group_of.items()}
        group_of |= dict.fromkeys(nets, target)
    processes: list[Process] = []
    for positions in groups:
        if positions:
            chosen = [statements[p] for p in sorted(positions)]
            processes.append(Process(path, sync, chosen, list(driven_nets(chosen))))
    return processes


def joined(processes: list[Process]) -> list[Process]:
    """Joins processes of different modules that drive different bits of one net."""
    owner: dict[int, Process] = {}
    result: list[Process] = []
    for process in processes:
        others = list({id(owner[n]): owner[n] for n in process.nets if n in owner}.values())
        for other in others:
            process = Process(
                other.path,
                process.sync,
                other.statements + process.statements,
                list(dict.fromkeys(other.nets + process.nets)),
            )
            result = [p for p in result if p is not other]
        result.append(process)
        owner |= dict.fromkeys(process.nets, process)
    return result
