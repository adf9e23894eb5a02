/* The flags of code objects for which Cython imports the module `inspect` when the kernel is loaded, under the
 * limited API: they have been constants for as long as there are any.  To import `inspect` takes longer than the kernel's own start, so the
 * flags are given here, and the module that is looked at for none of them is one that is there already. */
#ifndef KLOG_IMPORTS_H
#define KLOG_IMPORTS_H

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#ifdef Py_LIMITED_API
#include <string.h>

#ifndef CO_OPTIMIZED
#define CO_OPTIMIZED 0x1
#define CO_NEWLOCALS 0x2
#define CO_VARARGS 0x4
#define CO_VARKEYWORDS 0x8
#define CO_GENERATOR 0x20
#define CO_COROUTINE 0x80
#define CO_ASYNC_GENERATOR 0x200
#endif

static inline PyObject *klog_import(const char *name) {
    return (PyImport_ImportModule)(strcmp(name, "inspect") ? name : "sys");
}
#define PyImport_ImportModule(name) klog_import(name)
#endif

#endif
