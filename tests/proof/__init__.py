"""Rounds with real brokers that try to show a lost record which klog did not name.

    python -m tests.proof --rounds 20            twenty rounds, seeds 0 to 19; a line each, and a summary
    python -m tests.proof --seed 7               that round again

A round copies the disks of a small cluster, harms them, runs a command of klog, starts the brokers, leaves them alone
for two passes of retention and of the cleaner, and reads everything.  Every record that was acknowledged to a producer,
that the disks had before the command, and that is not served, has to be explained: by the cluster's own rules
(retention, compaction, DeleteRecords, aborts, deleted topics), or by words of klog from before the start.  A record
that was unreadable before, and is still there, is not lost.
"""
