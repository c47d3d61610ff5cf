"""Routing recorded from a model: a trace file, checked against the model table.

Of the route-trace schema (versions 1 and 2) this reads the objects `model`, `workload` and
`routing`, and refuses a trace whose model is not the one of the table, by field.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.moe_model import MoeModel
from sim.numerics.bf16 import Bf16Array, round_to_bf16
from testbench.running import RequestError

VERSIONS = (1, 2)


class TraceError(RequestError):
    """A trace that cannot be used; the message names file, field, value and rule."""


@dataclass(frozen=True, kw_only=True)
class RouteTrace:
    """Experts [T, k] and route weights [T, k], rounded to BF16."""

    name: str
    experts: npt.NDArray[np.int64]
    weights: Bf16Array


def read_trace(path: Path, model: MoeModel) -> RouteTrace:
    """Read a trace of `model`, a row of the table at its public size.

    Raises:
        TraceError: no JSON object, a missing field, a value of the wrong type or shape, or one that
            contradicts the row. OSError when the file cannot be read.
    """
    reader = _Reader(path, model)
    try:
        return reader.read()
    except _FieldError as error:
        raise TraceError(f"{path}: {error}") from None


class _FieldError(ValueError):
    """What is wrong with one field."""


class _Reader:
    """One trace while it is read."""

    def __init__(self, path: Path, model: MoeModel) -> None:
        self._path, self._model = path, model
        self._root: Mapping[str, Any] = {}

    def read(self) -> RouteTrace:
        """The trace, after all checks."""
        try:
            root = json.loads(self._path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise _FieldError(f"not JSON: {error}") from None
        if not isinstance(root, dict):
            raise _FieldError("must be an object with model, workload and routing")
        self._root = root
        version = root.get("schema_version")
        if type(version) is not int or version not in VERSIONS:
            raise _FieldError(f"schema_version = {version!r}: must be 1 or 2")
        self._check_model()
        tokens = self._integer("workload.token_count")
        if tokens < 1:
            raise _FieldError(f"workload.token_count = {tokens}: must be at least 1")
        return RouteTrace(
            name=str(root.get("trace_id", self._path.stem)),
            experts=self._experts(tokens),
            weights=self._weights(tokens),
        )

    def _check_model(self) -> None:
        model, shared = self._model, self._model.shared
        for field, value in {
            "model.hidden_size": model.hidden,
            "model.intermediate_size": model.intermediate,
            "model.num_experts": model.experts,
            "model.top_k": model.top_k,
        }.items():
            self._agree(field, self._integer(field), value)
        optional = {
            "model.shared_experts": 0 if shared is None else shared.count,
            "model.shared_intermediate_size": None if shared is None else shared.width,
            "model.shared_gate": "sigmoid" if shared is not None and shared.gated else "none",
        }
        for field, value in optional.items():
            given = self._optional(field)
            if given is not None:
                self._agree(field, given, value)

    def _agree(self, field: str, given: object, wanted: object) -> None:
        if given != wanted:
            raise _FieldError(
                f"{field} = {given!r}: the model table has {wanted!r} for {self._model.name} "
                "(name the model that the trace was recorded from)"
            )

    def _optional(self, field: str) -> Any:
        section, _, name = field.partition(".")
        values = self._root.get(section)
        if not isinstance(values, dict):
            raise _FieldError(f"{section}: must be an object")
        return values.get(name)

    def _required(self, field: str) -> Any:
        value = self._optional(field)
        if value is None:
            raise _FieldError(f"{field}: is missing")
        return value

    def _integer(self, field: str) -> int:
        value = self._required(field)
        if type(value) is not int:
            raise _FieldError(f"{field} = {value!r}: must be an integer")
        return value

    def _rows(self, field: str, tokens: int) -> list[list[Any]]:
        rows = self._required(field)
        top_k = self._model.top_k
        if not isinstance(rows, list) or len(rows) != tokens:
            raise _FieldError(f"{field}: must be {tokens} rows, as workload.token_count says")
        for number, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != top_k:
                raise _FieldError(
                    f"{field}[{number}]: must be {top_k} entries, as model.top_k says"
                )
        return rows

    def _experts(self, tokens: int) -> npt.NDArray[np.int64]:
        field = "routing.topk_indices"
        rows = self._rows(field, tokens)
        for t, row in enumerate(rows):
            for rank, expert in enumerate(row):
                where = f"{field}[{t}][{rank}] = {expert!r}"
                if type(expert) is not int or not 0 <= expert < self._model.experts:
                    raise _FieldError(f"{where}: must be 0 to {self._model.experts - 1}")
                if expert in row[:rank]:
                    raise _FieldError(f"{where}: token {t} already chose this expert")
        return np.array(rows, np.int64)

    def _weights(self, tokens: int) -> Bf16Array:
        field = "routing.topk_weights"
        rows = self._rows(field, tokens)
        for t, row in enumerate(rows):
            for rank, weight in enumerate(row):
                good = isinstance(weight, int | float) and not isinstance(weight, bool)
                if not good or not 0 <= weight < 1e30:
                    where = f"{field}[{t}][{rank}] = {weight!r}"
                    raise _FieldError(f"{where}: must be a number that is not negative")
        return round_to_bf16(np.array(rows, np.float64))
