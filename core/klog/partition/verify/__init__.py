"""Finds every fault of a partition or a log dir.  It only reads.

segment_pass        one pass over a segment
findings            the input of the checks: facts; and the table of their findings
log_checks, index_checks, producer_checks, state_checks     facts → findings
verify              a partition: the pass, then every check in its order
"""
