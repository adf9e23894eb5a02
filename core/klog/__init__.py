"""klog: Kafka broker data directories without a broker.

    import klog

    for batch in klog.Segment("data/orders-3/00000000000000000000.log").batches():
        if isinstance(batch, klog.Damage):
            print("damaged:", batch)
            continue
        for record in batch.records():
            print(record.offset, record.key, record.value)

Names are loaded when they are first used, so that ``import klog`` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; typing itself would cost as much as a small command
if TYPE_CHECKING:
    from klog.base.errors import KlogError
    from klog.data_dir.log_dir import LogDir
    from klog.data_dir.partition import Partition
    from klog.formats.damage import Damage, Location
    from klog.formats.damage import Location as Place
    from klog.formats.record import Record
    from klog.jobs.schema_sources import open_schemas
    from klog.log.segment import Batch, Segment
    from klog.partition.lookup import Lookup
    from klog.partition.verify.verify import verify_partition

__version__ = "0.1.0"

_HOME = {
    "Batch": "klog.log.segment",
    "Damage": "klog.formats.damage",
    "KlogError": "klog.base.errors",
    "LogDir": "klog.data_dir.log_dir",
    "Location": "klog.formats.damage",
    "Lookup": "klog.partition.lookup",
    "Partition": "klog.data_dir.partition",
    "Place": "klog.formats.damage",
    "Record": "klog.formats.record",
    "Segment": "klog.log.segment",
    "open_schemas": "klog.jobs.schema_sources",
    "verify_partition": "klog.partition.verify.verify",
}
_NAMES = {"Place": "Location"}
"""An older public name of a class, which stays."""
__all__ = [
    "Batch",
    "Damage",
    "KlogError",
    "Location",
    "LogDir",
    "Lookup",
    "Partition",
    "Place",
    "Record",
    "Segment",
    "__version__",
    "open_schemas",
    "verify_partition",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        import gc
        from importlib import import_module

        collects = gc.isenabled()
        gc.disable()  # imported objects are no garbage, and repeated collections would look through all of them
        try:
            value = getattr(import_module(_HOME[name]), _NAMES.get(name, name))
        finally:
            if collects:
                gc.enable()
        globals()[name] = value
        return value
    raise AttributeError(f"module 'klog' has no attribute {name!r}")
