"""Every record that C and NumPy share is the same in both, byte by byte.

The compiled machine copies such records whole, so a field that moved in one of the two would not be noticed.  The
engine checks it when it is imported.  Numbers need no such check: both sides take them from
`wse_core.encoding`.
"""
from wse_core.records cimport desc_t, event_t, filter_t, route_t

from wse_core.errors import InternalError
from wse_core.events import EVENT_DTYPE
from wse_core.image import DESC_DTYPE, FILTER_DTYPE, ROUTE_DTYPE

cdef desc_t d
cdef route_t r
cdef filter_t f
cdef event_t e


def compare(name: str, dtype, size: int, offsets: dict[str, int]) -> None:
    """Raise `InternalError` unless record `name` has this size and its fields these offsets [bytes] in NumPy too."""
    found = {field: place[1] for field, place in dtype.fields.items()}
    if size != dtype.itemsize or offsets != found:
        raise InternalError(f"record {name}: C has {size} bytes and fields at {offsets}, NumPy {dtype.itemsize} bytes "
                            f"and fields at {found}", hint="rebuild the extension modules")


def check() -> None:
    """Compare every record."""
    compare("desc_t", DESC_DTYPE, sizeof(desc_t), {
        "kind": <char*>&d.kind - <char*>&d, "flags": <char*>&d.flags - <char*>&d, "queue": <char*>&d.queue - <char*>&d,
        "xdsr": <char*>&d.xdsr - <char*>&d, "on_control": <char*>&d.on_control - <char*>&d,
        "control_task": <char*>&d.control_task - <char*>&d, "push_task": <char*>&d.push_task - <char*>&d,
        "pop_task": <char*>&d.pop_task - <char*>&d, "base": <char*>&d.base - <char*>&d,
        "index": <char*>&d.index - <char*>&d, "length": <char*>&d.length - <char*>&d,
        "ndim": <char*>&d.ndim - <char*>&d, "pad": <char*>&d.pad - <char*>&d, "extent": <char*>&d.extent - <char*>&d,
        "stride": <char*>&d.stride - <char*>&d,
    })
    compare("route_t", ROUTE_DTYPE, sizeof(route_t), {
        "rx": <char*>&r.rx - <char*>&r, "tx": <char*>&r.tx - <char*>&r, "valid": <char*>&r.valid - <char*>&r,
        "pos": <char*>&r.pos - <char*>&r, "ring": <char*>&r.ring - <char*>&r, "pop": <char*>&r.pop - <char*>&r,
        "teardown": <char*>&r.teardown - <char*>&r, "filter": <char*>&r.filter - <char*>&r,
        "swap": <char*>&r.swap - <char*>&r, "inject": <char*>&r.inject - <char*>&r,
    })
    compare("filter_t", FILTER_DTYPE, sizeof(filter_t), {
        "kind": <char*>&f.kind - <char*>&f, "count_data": <char*>&f.count_data - <char*>&f,
        "count_control": <char*>&f.count_control - <char*>&f, "filter_control": <char*>&f.filter_control - <char*>&f,
        "counter": <char*>&f.counter - <char*>&f, "max": <char*>&f.max - <char*>&f,
        "limit": <char*>&f.limit - <char*>&f,
        "min_idx": <char*>&f.min_idx - <char*>&f, "max_idx": <char*>&f.max_idx - <char*>&f,
        "pad": <char*>&f.pad - <char*>&f,
    })
    compare("event_t", EVENT_DTYPE, sizeof(event_t), {      # the engine turns the cell into x and y, in the same place
        "cycle": <char*>&e.cycle - <char*>&e, "data": <char*>&e.data - <char*>&e, "x": <char*>&e.cell - <char*>&e,
        "y": <char*>&e.cell + sizeof(e.cell) // 2 - <char*>&e, "kind": <char*>&e.kind - <char*>&e,
        "color": <char*>&e.color - <char*>&e, "aux": <char*>&e.aux - <char*>&e, "flags": <char*>&e.flags - <char*>&e,
    })
