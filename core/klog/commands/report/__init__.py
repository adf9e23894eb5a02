"""One HTML file about log dirs: verdict, space, partitions, timeline, groups, transactions, findings."""
