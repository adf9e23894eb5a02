"""Everything that can be wrong with a partition or a log dir, as findings.  Reading only.

segment     one pass over a segment: facts          findings    the table of kinds
log, indexes, producers, epochs, names, root        facts → findings
verify      the order of it all                     report      findings and totals
"""
