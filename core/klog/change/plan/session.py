"""A repair from begin to end, as safe from Python as from the command line.

    with PlanSession(PartitionQuery(["data"]), PlanOptions("recover", apply=True)) as session:
        recovery = recover_log_dirs(session.selections, options, session.staging, {})
        result = session.finish(recovery.drafts, losses=recovery.losses, kept=recovery.kept)

The block runs under the locks of all log dirs, after interrupted plans have been finished.  Its drafts become a plan in
`finish`, which saves or applies it.  A block that fails, or never calls `finish`, leaves nothing behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import UsageError
from klog.change.plan.apply_checks import plan_disk_full
from klog.change.plan.draft import Draft, make_plan, new_plan, staged_beside, staging_of
from klog.change.plan.interrupted_plans import finish_interrupted, without_blocked
from klog.change.plan.model import NOTHING, STAGED, Amount, Loss, Plan
from klog.change.plan.reporter import Reporter, SilentReporter
from klog.change.plan.staging import Staging
from klog.data_dir.disk.directory_tree import in_pieces, is_full
from klog.data_dir.disk.disk_changes import Disk, NewFile, OpenFile
from klog.data_dir.disk.refused_outputs import check_places
from klog.data_dir.selection import PartitionQuery, Selection

if TYPE_CHECKING:
    from klog.change.plan.executor import ApplyResult
    from klog.change.plan.plan_status import Announcement
    from klog.data_dir.locks import Locks


class PlanOptions(NamedTuple):
    """The options of a plan: without *apply* and *plan_file* it is only made.

    *name*: the command's name, a part of the plan's id.  *apply*: apply it.  *plan_file*: save it there.  *backup*: the
    directory for the originals, `klog-backup` beside the log dir when None.  *command*: the command line for the plan's
    record.
    """

    name: str
    apply: bool = False
    plan_file: str | None = None
    backup: str | None = None
    command: str = ""


class PlanResult(NamedTuple):
    """The plan, None when there is nothing to change; *is_applied*: it has been carried out.

    *is_partial*: partitions were skipped because an earlier plan is half done in them.
    """

    plan: Plan | None
    is_applied: bool
    is_partial: bool = False


class PlanSession:
    """From log dirs to a plan, and to changed files if requested.

    In the block, *selections* are the log dirs and partitions to read, *staging* is the staging area of each.  *locks*:
    those of the log dirs, if the caller has them.  Entering raises UsageError, LockedError, PlanError for a forbidden
    backup, StaleError if an earlier plan blocks everything, UnreadableError.
    """

    selections: list[Selection]
    staging: list[Staging]

    def __init__(
        self,
        query: PartitionQuery,
        options: PlanOptions,
        disk: Disk | None = None,
        reporter: Reporter | None = None,
        locks: Locks | None = None,
    ) -> None:
        if options.apply and options.plan_file is not None:
            raise UsageError("a plan is saved or carried out at once, not both")
        self.disk = disk or Disk()
        self._query, self._options = query, options
        self._reporter = reporter or SilentReporter()
        self._stack = ExitStack()
        self._locks = locks
        self._announced: Announcement | None = None
        self._is_wanted = self._is_partial = False

    def __enter__(self) -> PlanSession:
        options = self._options
        # The locks are taken before anything else is read: an earlier listing may be out of date.
        self._log_dirs = [os.path.abspath(one.log_dir.path) for one in self._query.selections()]
        self._now_ms = int(time.time() * 1000)
        self._name, self._backups = new_plan(options.name, self._now_ms, self._log_dirs, options.backup)
        places = self._places()
        with ExitStack() as stack:
            if options.apply and self._locks is None:
                from klog.data_dir.locks import Locks

                self._locks = stack.enter_context(Locks(self._log_dirs, self.disk))
            blocked = finish_interrupted(self._log_dirs, self._now_ms, self.disk, self._locks, self._reporter)
            self.selections = self._select(blocked)
            self._announced = announcement = self._announcement(stack) if options.apply else None
            announce = announcement.make if announcement is not None else lambda: None
            self.staging = [Staging(place, self.disk, announce, is_urgent=options.apply) for place in places]
            self._stack = stack.pop_all()
        return self

    def _places(self) -> list[str | None]:
        """Return the staging directory for each log dir; None if only digests are needed.  Raises PlanError."""
        options = self._options
        staging: list[str | None] = [None] * len(self._log_dirs)
        if options.apply:
            staging = [os.path.join(backup, STAGED) for backup in self._backups]
        elif options.plan_file is not None:
            staging = list(staging_of(staged_beside(options.plan_file), self._log_dirs))
        if options.backup is not None or any(staging):
            # Before a directory is made there, not only when the plan is carried out.
            files = filter(None, [options.plan_file])
            backups = [*([options.backup] if options.backup is not None else []), *self._backups]
            check_places(self._log_dirs, files=files, backups=backups, staging=filter(None, staging))
        return staging

    def _select(self, blocked: Mapping[str, str]) -> list[Selection]:
        """Return the selections, without the partitions that are *blocked*.  Raises StaleError, LockedError.

        Without locks it reports other processes that may be changing it.
        """
        selections = self._query.selections()
        if self._locks is None:
            for one in selections:
                if one.log_dir.lock.held:
                    holder = one.log_dir.lock.of(one.log_dir.path, with_pid=False)
                    self._reporter.note(f"{holder}: what is planned now may be stale")
        left, reasons = without_blocked(selections, blocked)
        for reason in reasons:
            self._reporter.error(reason)
        self._is_partial = bool(reasons)
        if self._locks is not None:
            from klog.data_dir.locks import check_closed

            check_closed(partition.path for one in left for partition in one.partitions)
        return left

    def _announcement(self, stack: ExitStack) -> Announcement:
        """Return the announcement of the plan in its backup, for the sweep of the next session."""
        from klog.change.plan.plan_status import Announcement

        empty = make_plan(self._name, self._options.command, self._log_dirs, self._backups, (), self._now_ms)
        announcement = Announcement(empty, self.disk)
        stack.callback(announcement.withdraw)
        return announcement

    def finish(
        self,
        drafts: Sequence[Draft],
        *,
        findings: Sequence[Mapping[str, object]] = (),
        losses: Sequence[Loss] = (),
        kept: Amount = NOTHING,
        broker_would_keep: Amount | None = None,
        revise: Callable[[Plan, str | None, Disk], Plan] | None = None,
    ) -> PlanResult:
        """Make the plan of *drafts*, in their order; save or apply it.  Call it once in a session.

        *findings*: in the form for JSON.  *revise* receives the plan, its file and the disk, and may leave log dirs out
        before the plan is saved or carried out.  Raises StaleError, LockedError, UnreadableError, OSError; ApplyError
        if the system refuses a change, with the changes made by then.
        """
        plan = make_plan(
            self._name, self._options.command, self._log_dirs, self._backups, drafts, self._now_ms,
            findings=findings, losses=losses, kept=kept, broker_would_keep=broker_would_keep, locks=self._locks,
        )  # fmt: skip
        if revise is not None and plan.actions:
            plan = revise(plan, self._options.plan_file, self.disk)
            if self._announced is not None:
                self._announced.narrow(plan.backups)
        if self._options.plan_file is not None:
            save_plan(plan, self._options.plan_file, self.disk)
        if not plan.actions:
            return PlanResult(None, False, self._is_partial)
        self._is_wanted = True
        if self._locks is None:
            self._report_refusals(plan)
            return PlanResult(plan, False, self._is_partial)
        from klog.change.plan.executor import carry_out

        carry_out(plan, self.disk, self._locks, self._reporter)
        return PlanResult(plan, True, self._is_partial)

    def _report_refusals(self, plan: Plan) -> None:
        from klog.change.plan.apply_checks import refusals

        for why in refusals(plan, self.disk):
            self._reporter.note(f"{why}: as things are now, --apply would not do it")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if not self._is_wanted:
                for one in self.staging:
                    one.discard()
        if is_full(error):
            is_saved = self._options.plan_file is not None
            waits = [one.directory for one in self.staging] if is_saved else self._backups
            raise plan_disk_full(error, waits, self._log_dirs, self.disk, is_saved) from error


def save_plan(plan: Plan, path: str, disk: Disk) -> None:
    """Write *plan* to the file at *path*, once the files on which it relies are synced.  Raises OSError, UsageError."""
    from klog.change.plan.executor import bring_to_disk
    from klog.change.plan.plan_document import plan_pieces

    bring_to_disk(plan, disk)
    with NewFile(path) as file:
        for piece in in_pieces(plan_pieces(plan._replace(staging=()))):
            disk.write(OpenFile(file.descriptor, path), piece)
        file.commit()


# plans that are there already: carried out, and taken back


def apply_plan(
    what: str, backup: str | None = None, disk: Disk | None = None, reporter: Reporter | None = None
) -> tuple[Plan, ApplyResult | None]:
    """Apply the plan named *what*, or its remaining part: its file, its backup directory or its id.

    *backup*: the directory of its backup, for an id.  Returns the plan, and None instead of a result if it has no
    actions.  Raises UsageError, and the errors of `carry_out`.
    """
    from klog.change.plan.executor import carry_out
    from klog.change.plan.find_plans import find_plan

    plan = find_plan(what, backup).plan
    beside = staged_beside(what)
    if os.path.isfile(what) and os.path.isdir(beside):
        plan = plan._replace(staging=staging_of(beside, plan.log_dirs))
    if not plan.actions:
        return plan, None
    return plan, carry_out(plan, disk or Disk(), None, reporter or SilentReporter())


def undo_plan(
    plan: Plan, backup: str | None = None, disk: Disk | None = None, reporter: Reporter | None = None
) -> tuple[Plan, ApplyResult | None]:
    """Undo *plan*, under the locks of its log dirs; return the plan of the undo, and its result.

    *backup*: the directory for the undo's originals.  None instead of a result if there is nothing to undo.  Raises
    LockedError, and the errors of `klog.change.plan.undo.plan_undo` and `carry_out`.
    """
    from klog.change.plan.backup import end_plan
    from klog.change.plan.executor import carry_out
    from klog.change.plan.find_plans import plans_of
    from klog.change.plan.plan_status import Announcement, sweep
    from klog.change.plan.undo import end_begun, plan_undo, stage_undo
    from klog.data_dir.locks import Locks

    disk, reporter = disk or Disk(), reporter or SilentReporter()
    with Locks(plan.log_dirs, disk) as locks:
        sweep((kept for log_dir in plan.log_dirs for kept in plans_of(log_dir)), disk)
        back = plan_undo(plan, int(time.time() * 1000), backup)
        if not back.actions:
            end_begun(plan, disk)
            return back, None
        announcement = Announcement(back._replace(actions=()), disk)
        try:
            back = stage_undo(plan, back, disk, announcement.make)
            result = carry_out(back, disk, locks, reporter)
            end_plan(plan, disk)
        finally:
            announcement.withdraw()
    return back, result
