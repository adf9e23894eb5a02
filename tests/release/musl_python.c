/* The Python of the one file as a program that loads musl and extension modules, with the codecs that PyPI has no wheels of for musl. */
#include <Python.h>
#include <errno.h>
#include <sys/uio.h>

PyMODINIT_FUNC PyInit__version(void);
PyMODINIT_FUNC PyInit__block(void);
PyMODINIT_FUNC PyInit__frame(void);
PyMODINIT_FUNC PyInit_backend_c(void);
PyMODINIT_FUNC PyInit_igzip_lib(void);
PyMODINIT_FUNC PyInit_isal_zlib(void);
PyMODINIT_FUNC PyInit__isal(void);
PyMODINIT_FUNC PyInit_snappy(void);

static struct _inittab compiled[] = {
    {"lz4._version", PyInit__version},
    {"lz4.block._block", PyInit__block},
    {"lz4.frame._frame", PyInit__frame},
    {"zstandard.backend_c", PyInit_backend_c},
    {"isal.igzip_lib", PyInit_igzip_lib},
    {"isal.isal_zlib", PyInit_isal_zlib},
    {"isal._isal", PyInit__isal},
    {"snappy", PyInit_snappy},
    {NULL, NULL},
};

/* musl has these from 1.2.5 on, and Debian 12 has 1.2.3.  Python calls them without flags where it could call the older ones. */
ssize_t preadv2(int file, const struct iovec *to, int count, off_t position, int flags) {
    if (!flags) return preadv(file, to, count, position);
    errno = ENOSYS;
    return -1;
}

ssize_t pwritev2(int file, const struct iovec *from, int count, off_t position, int flags) {
    if (!flags) return pwritev(file, from, count, position);
    errno = ENOSYS;
    return -1;
}

int main(int count, char **arguments) { return PyImport_ExtendInittab(compiled) ? 1 : Py_BytesMain(count, arguments); }
