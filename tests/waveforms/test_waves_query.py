"""The query command: answers, errors that help, exit codes."""

import subprocess
import sys

import pytest

from waveforms.query import QueryError, first_dispatch, signal, signal_names, stage_spans
from waveforms.query_command import build_parser, main


@pytest.fixture
def path(record):
    return record().path


def test_first_stage(path, capsys):
    assert main([str(path), "--first-stage", "non_moe"]) == 0
    assert int(capsys.readouterr().out) == first_dispatch(path, "non_moe")
    assert main([str(path), "--first-stage", "expert_bias"]) == 1
    assert capsys.readouterr().err == "nothing found\n"
    assert main([str(path), "--first-stage", "gathr"]) == 2
    assert "use one of: residual_setup" in capsys.readouterr().err


def test_get_prints_the_value_at_the_beginning_and_the_changes_after_it(path, capsys):
    def get(*more):
        assert main([str(path), "--get", *more]) == 0
        return [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]

    assert get("registers.gp_1") == [["0", "0"], ["1", "8"]]
    assert get("registers.gp_4", "--from", "2", "--to", "9", "--hex") == [
        ["2", "0x0"],
        ["4", "0x80"],
    ]
    assert get("registers.gp_4", "--from", "9") == [["9", "128"]]
    text = get("dispatch.instruction", "--to", "1")
    assert text == [["0", "S_ADDI_INT gp1, gp0, 8"], ["1", "S_ADDI_INT gp2, gp0, 64"]]
    assert get("dispatch.stage", "--to", "4") == [["0", "residual_setup"], ["4", "gather"]]


def test_signals_and_spans(path, capsys):
    assert main([str(path), "--signals"]) == 0
    assert capsys.readouterr().out.split() == signal_names(path)
    assert main([str(path), "--spans"]) == 0
    first = capsys.readouterr().out.splitlines()[0].split()
    assert first == ["0", "4", "residual_setup"]


def test_an_unknown_signal_is_answered_with_the_nearest_names(path, capsys):
    assert main([str(path), "--get", "registers.gp3"]) == 2
    assert "did you mean registers.gp_3" in capsys.readouterr().err
    with pytest.raises(QueryError, match="--signals"):
        signal(path, "qqqqqqqq")


def test_files_that_are_no_waveforms_of_ours(tmp_path, capsys):
    files = {
        "missing.vcd": None,
        "text.vcd": b"hello\n",
        "binary.vcd": bytes(range(256)),
        "empty.vcd": b"",
        "foreign.vcd": b"$timescale 1 ns $end\n$scope module top $end\n$var wire 1 ! clk $end\n"
        b"$upscope $end\n$enddefinitions $end\n#0\n1!\n",
    }
    for name, content in files.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        for question in (["--first-stage", "gather"], ["--spans"], ["--get", "top.clk"]):
            assert main([str(tmp_path / name), *question]) == 2, (name, question)
            error = capsys.readouterr().err
            assert error.startswith(f"error: {tmp_path / name}: "), error
            assert "Traceback" not in error


WRITTEN_BY_HAND = """\
$comment by hand; 1 cycle = 250 ps $end
$timescale 1 ps $end
$scope module dispatch $end
$var wire 1 ! valid $end
$var wire 4 " stage_index $end
$upscope $end
$scope module run $end
$var wire 1 # counting $end
$var wire 4 $ bill_stage_index $end
$var wire 48 % cycle $end
$var string 1 & note $end
$upscope $end
$enddefinitions $end
#1000
$dumpvars
0!
b11 "
1#
b11 $
b100 %
stwo\\x20words &
$end
#1250
b101 %
1!
#1500
b110 %
b110 "
0#
s\\\\x20 &
#1750
"""


def test_cycles_are_counted_in_the_periods_that_the_file_names(tmp_path):
    path = tmp_path / "hand.vcd"
    path.write_text(WRITTEN_BY_HAND)
    assert first_dispatch(path, "gather") == 5, "in cycle 4 it waited"
    assert first_dispatch(path, "expert_projection") == 6
    assert stage_spans(path) == [("gather", 4, 6)], "the run was over in cycle 6"
    assert signal(path, "run.note") == [(4, "two words"), (6, "\\x20")]
    assert signal(path, "dispatch.valid") == [(4, 0), (5, 1)]


def test_vcdvcd_does_not_keep_the_signal_handler(path):
    program = f"""
import signal
from waveforms import query
before = signal.getsignal(signal.SIGPIPE)
query.signal({str(path)!r}, "run.cycle")
assert signal.getsignal(signal.SIGPIPE) == before
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_help_teaches_names_stages_and_exit_codes():
    text = build_parser().format_help()
    for word in (
        "registers.gp_3",
        "dispatch.stage_index",
        "exit code",
        "scatter_combine",
        "--spans",
    ):
        assert word in text


def test_as_a_command(path):
    command = [sys.executable, "-W", "error", "-m", "waveforms.query", str(path), "--spans"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "residual_setup" in done.stdout
