"""Each case that is a program runs once on each machine."""

import pytest

from tests.cases.sides import SIDES, Side


@pytest.fixture(params=SIDES)
def side(request) -> Side:
    return SIDES[request.param]
