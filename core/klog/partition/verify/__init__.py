"""Finds every fault of a partition or a log dir.  It only reads.

segment, replay     one pass over a segment, and what its producers did: facts
facts, findings     what the checks are given, and the table of what they can find
names, log, indexes, txn_index, producers, state, root          facts → findings
verify              a partition: the pass, then every check in its order
"""
