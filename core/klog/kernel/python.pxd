# Functions of Python's limited API, which has no macros that look into an object.  The first four are declared without the
# exception that they raise for an object of another class: it was looked at before.

cdef extern from "Python.h":
    char *PyBytes_AsString(object content)
    Py_ssize_t PyBytes_Size(object content)
    char *PyByteArray_AsString(object content)
    Py_ssize_t PyList_Size(object items)
    bytes PyBytes_FromStringAndSize(const char *content, Py_ssize_t size)
    object PyMemoryView_FromMemory(char *content, Py_ssize_t size, int flags)
