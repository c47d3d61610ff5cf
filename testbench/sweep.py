"""Several workloads of one command: one engine, a directory each, and a table with a row for
each."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence

from rich.table import Table

from isa.config import PlenaConfig
from sim.engines import make_engine
from sim.profile import report_console
from testbench.running import EXIT_FAIL, EXIT_PASS, Finished, RequestError, execute
from testbench.workload import Workload

#: Options whose file would be written by every workload.
_ONE_FILE = ("vcd", "timeline")


def sweep(
    cases: Mapping[str, Callable[[], Workload]],
    config: PlenaConfig,
    args: argparse.Namespace,
    *,
    title: str,
    columns: Sequence[str],
    row: Callable[[Finished], Sequence[str]],
) -> int:
    """Run every case, by the options of `add_run_options`; the exit code, 1 if any fails.

    The table has the case's name, `columns` filled by `row`, and the verdict; what is wrong with a
    case follows below. With --json, one document: the reports by name.

    Raises:
        RequestError: an option that writes one file.
    """
    for option in _ONE_FILE:
        if getattr(args, option) is not None:
            raise RequestError(f"--{option} writes one file: run one workload at a time")
    engine = make_engine(args.engine, config)
    done = {
        name: execute(make(), args, directory=args.build_dir / name, engine=engine)
        for name, make in cases.items()
    }
    if args.json:
        print(json.dumps({name: finished.report for name, finished in done.items()}, indent=2))
    else:
        _print(done, title, columns, row, f"artefacts in {args.build_dir}/NAME")
    return EXIT_PASS if all(finished.passed for finished in done.values()) else EXIT_FAIL


def _print(
    done: Mapping[str, Finished],
    title: str,
    columns: Sequence[str],
    row: Callable[[Finished], Sequence[str]],
    footer: str,
) -> None:
    table = Table(title=title)
    table.add_column("name", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("verdict")
    for name, finished in done.items():
        table.add_row(name, *row(finished), finished.report["verdict"])
    console = report_console()
    console.print(table)
    for name, finished in done.items():
        lines = [str(c) for c in finished.comparisons if not c.ok] + finished.problems
        if not finished.result.ok:
            lines.append(finished.result.report(finished.case.image))
        for line in lines:
            console.print(f"{name}: {line}")
    console.print(footer)
    passed = all(finished.passed for finished in done.values())
    console.print("PASS" if passed else "FAIL", style="bold green" if passed else "bold red")
