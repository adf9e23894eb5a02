"""The content of any Kafka file, as the dump tool's own text or as data.

lanes       many windows in parallel, one order of output
kafka_log   `.log` and `.checkpoint` as Kafka's dump tool prints them
kafka_index `.index`, `.timeindex`, `.txnindex`, `.snapshot` likewise
lines       records and batches as JSON lines or CSV
columns     records as Arrow arrays, for Parquet
values      the other files as JSON lines
wanted      filters, and where in a partition they let reading begin
isolation   which batches a read_committed consumer would see
"""
