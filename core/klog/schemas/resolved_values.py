"""Avro values in JSON as one schema reads them: the latest of their subject, or one that is named."""

from __future__ import annotations

from collections.abc import Sequence

from klog.schemas.decoded import Decoder
from klog.schemas.reader_schemas import AVRO, LATEST, avro_name, avro_type, latest_schema, named_schema, registry_of
from klog.schemas.registry import Registry
from klog.schemas.schema_version import SchemaVersion
from klog.schemas.side_decoder import Make, make_decoder, needed_packages


def resolving(registries: Sequence[Registry], reader: str, canonical: bool, context: str | None = None) -> Make:
    """Return what makes decoders whose Avro values are those of *reader*: `latest`, an id, SUBJECT:VERSION.

    A named schema reads values of its own record; values of other records are as they were written.  Raises UsageError.
    """
    named = None if reader == LATEST else named_schema(reader, registries, context)

    def make(row: SchemaVersion, registry: Registry) -> Decoder:
        if row.type != AVRO:
            return make_decoder(row, registry, canonical)
        reads = latest_schema(row, registry) if named is None else named
        with needed_packages():
            from klog.schemas.avro import AvroSchema
            from klog.schemas.avro_resolution import JsonReader

            found, writer = avro_type(reads, registry_of(reads, registries)), avro_type(row, registry)
            if named is not None and avro_name(writer) not in (avro_name(found), *found.aliases):
                return make_decoder(row, registry, canonical)
            return AvroSchema(row.text, registry.references(row), canonical, JsonReader(found, canonical))

    return make
