"""The bytes of a file, a batch, an entry or a record, field by field."""
