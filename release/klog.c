/* The one file's main: a Python that knows its modules from the start, looks for nothing on the disk and writes nothing there. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The parts of the kernel: KLOG_KERNEL(PART) is PART(name) for each; one_file.sh defines it. */
#define DECLARED(name) PyMODINIT_FUNC PyInit_##name(void);
#define LISTED(name) {"klog.kernel." #name, PyInit_##name},
KLOG_KERNEL(DECLARED)
PyMODINIT_FUNC PyInit__version(void);
PyMODINIT_FUNC PyInit__block(void);
PyMODINIT_FUNC PyInit__frame(void);
PyMODINIT_FUNC PyInit_backend_c(void);
PyMODINIT_FUNC PyInit_igzip_lib(void);
PyMODINIT_FUNC PyInit_isal_zlib(void);
PyMODINIT_FUNC PyInit__isal(void);
PyMODINIT_FUNC PyInit_snappy(void);
PyMODINIT_FUNC PyInit__read(void);
PyMODINIT_FUNC PyInit__schema(void);
PyMODINIT_FUNC PyInit__message(void);

extern const struct _frozen klog_modules[]; /* freeze.py */

static struct _inittab compiled[] = {
    KLOG_KERNEL(LISTED)
    {"lz4._version", PyInit__version},
    {"lz4.block._block", PyInit__block},
    {"lz4.frame._frame", PyInit__frame},
    {"zstandard.backend_c", PyInit_backend_c},
    {"isal.igzip_lib", PyInit_igzip_lib},
    {"isal.isal_zlib", PyInit_isal_zlib},
    {"isal._isal", PyInit__isal},
    {"snappy", PyInit_snappy},
    {"fastavro._read", PyInit__read},
    {"fastavro._schema", PyInit__schema},
    {"google._upb._message", PyInit__message},
    {NULL, NULL},
};

static const wchar_t command[] = L"import sys; from klog_cli.app import main; sys.exit(main())\n";

static PyStatus start(int count, char **arguments) {
    PyPreConfig before;
    PyPreConfig_InitIsolatedConfig(&before);
    before.utf8_mode = 1;
    before.allocator = PYMEM_ALLOCATOR_MIMALLOC; /* musl's gives each large buffer back to the kernel at once */
    before.configure_locale = 0;
    PyStatus status = Py_PreInitialize(&before);
    if (PyStatus_Exception(status)) return status;

    PyConfig config;
    PyConfig_InitIsolatedConfig(&config); /* no environment, no user's directory */
    config.site_import = 0;
    config.write_bytecode = 0;
    config.pathconfig_warnings = 0;
    config.install_signal_handlers = 1;
    config.parse_argv = 0;
    config.use_frozen_modules = 1;
    config.module_search_paths_set = 1; /* to nothing: no directory is looked through */
    status = PyConfig_SetString(&config, &config.executable, L"/klog");
    /* Without a home Python would read pyvenv.cfg and klog._pth where it is started, and believe them. */
    if (!PyStatus_Exception(status)) status = PyConfig_SetString(&config, &config.home, L"/");
    if (!PyStatus_Exception(status)) status = PyConfig_SetString(&config, &config.run_command, command);
    wchar_t **places[] = {&config.prefix, &config.exec_prefix, &config.base_prefix, &config.base_exec_prefix,
                          &config.base_executable, &config.stdlib_dir};
    for (size_t i = 0; i < sizeof places / sizeof *places && !PyStatus_Exception(status); i++)
        status = PyConfig_SetString(&config, places[i], L"");
    if (!PyStatus_Exception(status)) status = PyConfig_SetBytesArgv(&config, count, arguments);
    if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    return status;
}

int main(int count, char **arguments) {
    PyImport_FrozenModules = klog_modules;
    if (PyImport_ExtendInittab(compiled)) return 1;
    PyStatus status = start(count, arguments);
    if (PyStatus_Exception(status)) Py_ExitStatusException(status);
    return Py_RunMain();
}
