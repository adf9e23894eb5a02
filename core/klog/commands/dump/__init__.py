"""Prints any Kafka file, as Kafka's dump tool does or as data.

request     the options, and the files that paths name
files       file after file, as text or as lines
log_input   a log that is dumped: where reading begins, which records are wanted and can be seen
kafka_log   `.log` and `.checkpoint` as Kafka's dump tool prints them
kafka_index `.index`, `.timeindex`, `.txnindex`, `.snapshot` likewise
reports     what Kafka's tool prints at its end: indexes that disagree with their log
lines       records and batches as JSON lines or CSV
values      the other files as JSON lines
columns     records as Parquet
table       a Parquet file while it is written
arrow       record rows as Arrow arrays
"""
