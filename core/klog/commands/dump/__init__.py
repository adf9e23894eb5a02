"""Prints any Kafka file, as Kafka's dump tool does or as data.

request     the options, and the files that paths name
files       file after file, as text, as lines or as Parquet
log_input   a log that is dumped: where reading begins, which records match and can be seen
kafka_log   `.log` and `.checkpoint` as Kafka's dump tool prints them
kafka_index `.index`, `.timeindex`, `.txnindex`, `.snapshot` likewise
reports     the summary that Kafka's tool prints: indexes that disagree with their log
lines       records and batches as JSON lines or CSV
values      the other files as JSON lines
"""
