"""The bytes of one segment: batches, records and indexes; searching, filtering and resync after damage."""
