"""pyarrow's own time to write a Parquet file again: ``parquet.py FILE AGAIN``; prints rows and CPU seconds.

The columns of FILE are in memory before the clock starts.  Compression, dictionaries, encodings, statistics and row
groups are those in the footer of FILE.
"""

from __future__ import annotations

import sys
import time

import pyarrow.parquet as pq

PLAIN = {"PLAIN", "RLE", "BIT_PACKED"}
DICTIONARY = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"}


def main(path: str, again: str) -> None:
    table = pq.read_table(path)
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    encodings = {column.path_in_schema: set(column.encodings) - PLAIN for column in columns}
    with_dictionary = [name for name, kinds in encodings.items() if kinds & DICTIONARY]
    special = {name: min(kinds) for name, kinds in encodings.items() if kinds and name not in with_dictionary}
    began = time.process_time()
    with pq.ParquetWriter(
        again,
        table.schema,
        compression={column.path_in_schema: column.compression for column in columns},
        use_dictionary=with_dictionary,
        column_encoding=special or None,
        write_statistics=[column.path_in_schema for column in columns if column.is_stats_set],
    ) as writer:
        writer.write_table(table, row_group_size=group.num_rows)
    print(table.num_rows, time.process_time() - began)


main(sys.argv[1], sys.argv[2])
