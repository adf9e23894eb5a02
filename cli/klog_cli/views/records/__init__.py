"""The output of `klog records`.

text          rows for people, in columns
format_text   rows as `--format` says
records       the partitions, one after the other, and those that are followed
"""
