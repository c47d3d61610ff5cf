"""What the clock loop in C works on, declared as in hostloop.h."""

import ctypes

__all__ = ["ACCOUNTS", "DueAnswer", "HostState"]

#: Arrays of PcAccounts, by their names in C.
ACCOUNTS = {
    "wall": "wall",
    "completed": "completions",
    "read": "bytes_read",
    "written": "bytes_written",
    "busy": "busy",
    "order": "order",
    "progress": "progress",
}

_I64, _U64, _POINTER = ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p


class DueAnswer(ctypes.Structure):
    """due_t of hostloop.h: an answer of the memory."""

    _fields_ = (("cycle", _I64), ("error", _U64), ("data", ctypes.c_uint8 * 64))


class HostState(ctypes.Structure):
    """host_t of hostloop.h."""

    _fields_ = (
        *((n, _I64) for n in ("cycle", "stop", "budget", "idle", "patience")),
        *((n, _I64) for n in ("free_at", "last_due", "accepted")),
        *((n, _I64) for n in ("latency", "cycles_per_beat", "capacity", "extra_latency")),
        *((n, _U64) for n in ("backpressure", "seed")),
        ("size", _I64),
        ("due", _POINTER),
        *((n, _I64) for n in ("due_mask", "due_head", "due_count")),
        *((n, _POINTER) for n in ("page_keys", "page_data")),
        ("page_mask", _I64),
        *((n, _POINTER) for n in ("spare", "spare_number")),
        *((n, _I64) for n in ("spare_count", "spare_used")),
        ("faults", _POINTER),
        ("fault_count", _I64),
        *((n, _POINTER) for n in ("bytes_read", "bytes_written", "stages")),
        ("length", _I64),
        ("last_writer", _POINTER),
        *((n, _POINTER) for n in ACCOUNTS),
        ("lanes", _I64),
        ("log", _POINTER),
        *((n, _I64) for n in ("log_size", "log_used", "bad_kind", "bad_pc", "bad_stage")),
        *((n, _I64) for n in ("timed", "machine_ns")),
        *((n, _I64) for n in ("sample_first", "sample_stop", "sample_parts")),
        *((n, _POINTER) for n in ("sample_places", "samples")),
        *((n, _I64) for n in ("sample_size", "sample_room", "sample_used")),
    )
