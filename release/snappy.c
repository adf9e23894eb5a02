/* The module `snappy` of the one file: what klog calls of python-snappy, over snappy's own C library. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <snappy-c.h>

static PyObject *uncompress_error;

/* Below this many bytes, to let other threads run costs more than it gives. */
enum { ALONE = 2048 };

static PyObject *compress(PyObject *module, PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    size_t size = snappy_max_compressed_length((size_t)view.len);
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (made) {
        snappy_status status;
        Py_BEGIN_ALLOW_THREADS
        status = snappy_compress(view.buf, (size_t)view.len, PyBytes_AS_STRING(made), &size);
        Py_END_ALLOW_THREADS
        if (status == SNAPPY_OK) {
            _PyBytes_Resize(&made, (Py_ssize_t)size);
        } else {
            Py_CLEAR(made);
            PyErr_SetNone(PyExc_ValueError);
        }
    }
    PyBuffer_Release(&view);
    return made;
}

static PyObject *uncompress(PyObject *module, PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    size_t size = 0;
    PyObject *made = NULL;
    snappy_status status = snappy_uncompressed_length(view.buf, (size_t)view.len, &size);
    if (status == SNAPPY_OK && (made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size))) {
        if (view.len < ALONE) {
            status = snappy_uncompress(view.buf, (size_t)view.len, PyBytes_AS_STRING(made), &size);
        } else {
            Py_BEGIN_ALLOW_THREADS
            status = snappy_uncompress(view.buf, (size_t)view.len, PyBytes_AS_STRING(made), &size);
            Py_END_ALLOW_THREADS
        }
    }
    if (status != SNAPPY_OK) {
        Py_CLEAR(made);
        PyErr_SetNone(uncompress_error); /* as python-snappy: without a text */
    }
    PyBuffer_Release(&view);
    return made;
}

static PyMethodDef methods[] = {
    {"compress", compress, METH_O, NULL},
    {"uncompress", uncompress, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "snappy", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_snappy(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && !(uncompress_error = PyErr_NewException("snappy.UncompressError", NULL, NULL))) Py_CLEAR(made);
    if (made && PyModule_AddObjectRef(made, "UncompressError", uncompress_error) < 0) Py_CLEAR(made);
    return made;
}
