"""How commands end: their exit code, and quietly when nobody reads their output."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from isa.command import EXIT_PIPE, error_text

ROOT = Path(__file__).parents[2]
FOLDERS = ("isa", "rtl", "sim", "compiler", "testbench", "waveforms")
LONG = "print('x' * (1 << 20))"
COMMAND = """
import sys
from isa.command import leave_with
def main():
    try:
        {body}
    except OSError as error:
        print("error:", error, file=sys.stderr)
    finally:
        open({mark!r}, "w").close()
    return 3
leave_with(main)
"""


def run_without_reader(
    arguments: list[str], *, unbuffered: bool, errors: bool = False
) -> tuple[int, str]:
    """Exit code and errors of a Python process whose output pipe has no reader."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            stdout=writing,
            stderr=writing if errors else subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1" if unbuffered else ""},
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("body", [LONG, "print('short')", "sys.stdout.buffer.write(b'x' * 99999)"])
def test_a_command_without_a_reader_ends_quietly_and_in_order(
    tmp_path: Path, unbuffered: bool, body: str
):
    mark = tmp_path / "mark"
    code = COMMAND.format(body=body, mark=str(mark))
    assert run_without_reader(["-c", code], unbuffered=unbuffered) == (EXIT_PIPE, "")
    assert mark.exists()


def test_neither_do_its_errors_need_one(tmp_path: Path):
    body = "print('error: wrong', file=sys.stderr)"
    code = COMMAND.format(body=body, mark=str(tmp_path / "mark"))
    assert run_without_reader(["-c", code], unbuffered=False, errors=True) == (EXIT_PIPE, "")


def test_a_command_that_is_read_has_its_own_exit_code(tmp_path: Path):
    code = COMMAND.format(body=LONG, mark=str(tmp_path / "mark"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr, len(done.stdout)) == (3, "", (1 << 20) + 1)


def test_a_real_command_does_too():
    command = ["-m", "sim.profile", "schema"]
    assert run_without_reader(command, unbuffered=False) == (EXIT_PIPE, "")


def test_every_command_ends_there():
    """The last statement of whatever can be started is `leave_with(main)`."""
    found = 0
    for path in (p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
                assert ast.unparse(node.body[-1]) == "leave_with(main)", path
                found += 1
    assert found > 20


def test_an_error_names_its_file_and_no_error_number():
    missing = FileNotFoundError(2, "No such file or directory", "no/such/file")
    assert error_text(missing) == "no/such/file: No such file or directory"
    assert error_text(OSError(28, "No space left on device")) == "output: No space left on device"
    assert error_text(OSError("of our own")) == "of our own"
    assert error_text(ValueError("wrong")) == "wrong"
