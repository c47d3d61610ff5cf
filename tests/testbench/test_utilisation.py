"""The command `python -m testbench.utilisation`: published counts, measurements, output."""

import json
import sys

import pytest

from compiler.routed_spec import RoutedSpec
from isa.config import PRESETS
from testbench import utilisation

SPEC = RoutedSpec(experts=8, top_k=2, hidden=64, intermediate=64)
FORMS = {form.name: form for form in utilisation.LOWERINGS}

#: lowering, tokens, then M_MM emitted and executed, H_PREFETCH_M emitted and executed, rows per
#: fetched tile; the rows that upstream published, lowering.md section 10.
PUBLISHED = (
    ("pair-major, seed's form", 1, 6, 96, 6, 6, 1),
    ("pair-major, seed's form", 4, 24, 384, 24, 24, 1),
    ("pair-major, seed's form", 16, 96, 1536, 96, 96, 1),
    ("shared, seed's form", 1, 3, 48, 3, 3, 1),
    ("shared, seed's form", 8, 3, 96, 3, 3, 8),
    ("shared, seed's form", 64, 3, 768, 3, 3, 64),
    ("shared, seed's form", 128, 6, 1536, 6, 6, 64),
)


def measured(fast_engine, name, tokens):
    row = utilisation.measure(fast_engine(PRESETS["default"]), FORMS[name], SPEC, tokens)
    assert row.exact
    return row


@pytest.mark.parametrize(
    ("name", "tokens", "emitted", "executed", "fetches", "fetched", "rows"), PUBLISHED
)
def test_the_published_counts_come_out(
    fast_engine, name, tokens, emitted, executed, fetches, fetched, rows
):
    row = measured(fast_engine, name, tokens)
    assert (row.emitted_products, row.executed_products) == (emitted, executed)
    assert (row.emitted_fetches, row.executed_fetches) == (fetches, fetched)
    assert row.rows_per_fetch == rows


def test_every_published_row_is_in_the_table():
    have = {(f.name, tokens) for f in utilisation.LOWERINGS for tokens in f.tokens}
    assert {row[:2] for row in PUBLISHED} <= have


def test_the_buffered_form_does_the_same_work_in_fewer_cycles(fast_engine):
    for kind, tokens in (("pair-major", 4), ("shared", 64)):
        seed = measured(fast_engine, f"{kind}, seed's form", tokens)
        now = measured(fast_engine, kind, tokens)
        assert now.executed_products == seed.executed_products
        assert now.executed_fetches == seed.executed_fetches
        assert now.cycles < 0.6 * seed.cycles
        assert now.multiplier_busy > 1.5 * seed.multiplier_busy


def test_emitted_and_executed_differ_where_the_machine_counts(fast_engine):
    row = measured(fast_engine, "expert-major, sorted", 16)
    # The first panel of an expert is fetched under the one before it, and once more at the end.
    assert row.emitted_fetches == 4 < row.executed_fetches <= 25
    assert row.executed_fetches % 3 == 1
    assert row.rows_per_fetch == 16 * 2 * 3 / row.executed_fetches


def test_expert_major_pays_off_whoever_decides_the_routing(fast_engine):
    pair = measured(fast_engine, "pair-major", 64)
    for name in ("expert-major, known", "expert-major, sorted"):
        row = measured(fast_engine, name, 64)
        assert 3 * row.cycles <= pair.cycles
        assert 14 * row.hbm_bytes <= pair.hbm_bytes
        assert row.multiplier_busy >= 0.6


@pytest.fixture
def one_engine(fast_engine, monkeypatch):
    monkeypatch.setattr(utilisation, "make_engine", lambda _name, config: fast_engine(config))


@pytest.mark.usefixtures("one_engine")
def test_the_command_writes_table_document_and_plot(tmp_path, capsys):
    plot, output = tmp_path / "new" / "u.png", tmp_path / "u.json"
    arguments = ["--config", "tiny", "--tokens", "1", "--tokens", "3"]
    code = utilisation.main([*arguments, "--plot", str(plot), "--output", str(output)])
    assert code == 0
    text = capsys.readouterr().out
    for form in utilisation.LOWERINGS:
        assert form.name in text
    document = json.loads(output.read_text())
    assert [row["tokens"] for row in document["rows"]] == [1, 3] * len(utilisation.LOWERINGS)
    assert all(row["exact"] for row in document["rows"])
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("one_engine")
def test_a_wrong_result_fails_the_command(monkeypatch, capsys):
    measure = utilisation.measure

    def wrong(*args):
        row = measure(*args)
        return utilisation.Row(**{**vars(row), "exact": False})

    monkeypatch.setattr(utilisation, "measure", wrong)
    assert utilisation.main(["--config", "tiny", "--tokens", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["rows"][0]["exact"] is False


@pytest.mark.usefixtures("one_engine")
def test_errors_say_what_to_do(monkeypatch, tmp_path, capsys):
    assert utilisation.main(["--config", "tiny", "--plot", "u.bmp"]) == 2
    assert "--plot u.bmp: the name must end in .png, .svg or .pdf" in capsys.readouterr().err
    assert utilisation.main(["--config", "tiny", "--top-k", "9"]) == 2
    assert "top_k = 9: must be at most experts = 8" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    arguments = ["--config", "tiny", "--tokens", "1", "--plot", str(tmp_path / "u.png")]
    assert utilisation.main(arguments) == 2
    assert "pip install 'plena-sim[plots]'" in capsys.readouterr().err
