"""Remote storage in the processes of Spark: each lays the remote segments over its own directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from klog.base.overlays import OVERLAYS
from klog.data_dir.selection import PartitionChoice
from klog.tier.tier_address import TierAddress

U = TypeVar("U")
O = TypeVar("O")  # noqa: E741
R = TypeVar("R")


class TierMount(NamedTuple):
    """A request for remote segments that can be sent to another process.  See `MountRequest`."""

    address: TierAddress
    paths: Sequence[str]
    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()
    part: str = "both"


def mount_of_driver() -> TierMount | None:
    """Return the driver's request; None without remote storage."""
    if not OVERLAYS:
        return None
    from klog.partition.tiered.mounts import requested

    request = requested()
    return None if request is None else TierMount(request.tier.address, *request[1:5])


@contextmanager
def over_tiers(mount: TierMount | None) -> Iterator[None]:
    """Lay remote segments over directories while the block lasts; None: read the local logs.  Raises KlogError."""
    if mount is None:
        yield
        return
    from klog.partition.tiered.mounts import MountRequest, mounted
    from klog.tier.tier import open_tier

    uri, layout, key_files = mount.address
    with mounted(MountRequest(open_tier(uri, layout, dict(key_files)), *mount[1:])):
        yield


def read_over_tiers(function: Callable[[U, O], Iterable[R]], mount: TierMount, unit: U, options: O) -> Iterator[R]:
    """Do the job *function* for a unit, over both tiers."""
    with over_tiers(mount):
        yield from function(unit, options)
