# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Compaction: the latest offset of each key, and the batches that are made of the records that stay."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from os import urandom

from klog.kernel._window cimport (
    BAD_LENGTH, BAD_RECORD, BatchRow, DONE, MORE, RETAIN_EMPTY, RecordRow, SKIPPED, SMALL, SUPERSEDED, TO_COMPRESS, View, WITHOUT_DATA, Window,
    decode_some, is_control,
)
from klog.kernel.chars cimport put
from klog.kernel.crc cimport klog_crc32c
from klog.kernel.digests cimport Digest, md5, md5_eight, siphash, siphash_eight
from klog.kernel.layouts cimport (
    ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_DELETE_HORIZON, ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL, BATCH_ATTRIBUTES, BATCH_BASE_TIMESTAMP, BATCH_BYTES, BATCH_CRC, BATCH_CRC_START,
    BATCH_MAGIC, BATCH_MAX_TIMESTAMP, BATCH_RECORDS_COUNT, BATCH_SIZE, OVERHEAD,
)
from klog.kernel.memory cimport huge_pages, prefetch
from klog.kernel.numbers cimport (
    add, put16, put32, put64, put_varint, put_varlong, subtract, varint, varlong, varlong_bytes,
)
from klog.kernel.python cimport PyByteArray_AsString, PyBytes_AsString


include "digest_slots.pxi"
include "offset_map.pxi"
include "rewrite.pxi"
