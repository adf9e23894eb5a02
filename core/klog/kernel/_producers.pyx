# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Producers and headers of batches, for an audit of all replicas."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from klog.kernel._window cimport (
    BatchRow, DONE, MORE, RecordRow, SKIPPED, View, Window, last_sequence, read_batch, read_message,
    read_record, unfit,
)
from klog.kernel.crc cimport klog_crc32c_share, klog_moves_init
from klog.kernel.digests cimport WideFactor, sum_factors, sum_words
from klog.kernel.layouts cimport (
    ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_LOG_APPEND_TIME, BATCH_ATTRIBUTES, BATCH_BYTES,
    BATCH_MAX_TIMESTAMP, ENTRY_BYTES, ENTRY_MAGIC, ENTRY_SIZE, OVERHEAD,
)
from klog.kernel.numbers cimport add, be32, increment_sequence
from klog.kernel.python cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size, PyMemoryView_FromMemory


include "producer_runs.pxi"
include "header_pass.pxi"
include "entry_list.pxi"
include "record_signs.pxi"
