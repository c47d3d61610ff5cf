"""A failing case made small: fewer instructions, fewer iterations, a calm device."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from testbench.fuzz.case import Device, FuzzCase, Item, Loop

Items = tuple[Item, ...]


def shrink(case: FuzzCase, fails: Callable[[FuzzCase], bool], budget: int = 400) -> FuzzCase:
    """The smallest case found for which `fails` is still true, in at most `budget` calls of it."""
    left = budget

    def still_fails(candidate: FuzzCase) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(candidate)

    for device in _calmer(case.device):
        if still_fails(candidate := replace(case, device=device)):
            case = candidate
            break
    size = max(1, len(case.items) // 2)
    while size and left > 0:
        smaller = _first(still_fails, (replace(case, items=i) for i in _without(case.items, size)))
        if smaller is not None:
            case = smaller
            continue
        if size == 1:
            simpler = (replace(case, items=i) for i in _simpler(case.items))
            smaller = _first(still_fails, simpler)
            if smaller is not None:
                case = smaller
                continue
        size //= 2
    return case


def _first(fails: Callable[[FuzzCase], bool], candidates: Iterator[FuzzCase]) -> FuzzCase | None:
    return next((c for c in candidates if fails(c)), None)


def _calmer(device: Device) -> Iterator[Device]:
    yield Device()
    yield Device(faults=device.faults)
    yield replace(device, faults=())


def _without(items: Items, size: int) -> Iterator[Items]:
    """Without `size` neighbours, the last ones first."""
    for start in range(len(items) - size, -1, -size):
        yield items[:start] + items[start + size :]
    if len(items) % size:
        yield items[len(items) % size :]


def _simpler(items: Items) -> Iterator[Items]:
    """With one loop unwrapped, run once, or its body made smaller."""
    for at, item in enumerate(items):
        if not isinstance(item, Loop):
            continue
        before, after = items[:at], items[at + 1 :]
        yield before + item.body + after
        for count in range(1, item.count):
            yield (*before, replace(item, count=count), *after)
        for body in (*_without(item.body, 1), *_simpler(item.body)):
            if body:
                yield (*before, replace(item, body=body), *after)
