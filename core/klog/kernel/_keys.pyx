# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Keys, the partitions that clients put them into, and the partitions that they are in."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from os import urandom

from klog.kernel._window cimport (
    BatchRow, RecordRow, SKIPPED, VALUES_TEXT, View, Window, is_control, put_named, read_record,
)
from klog.kernel.chars cimport base64, decimal, json_size, put, put_bytes
from klog.kernel.crc cimport klog_crc32
from klog.kernel.layouts cimport ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, BATCH_BYTES
from klog.kernel.numbers cimport add
from klog.kernel.python cimport PyByteArray_AsString, PyBytes_AsString, PyBytes_Size


include "partitions.pxi"
include "key_places.pxi"
include "key_reader.pxi"
include "key_causes.pxi"
include "key_examples.pxi"
