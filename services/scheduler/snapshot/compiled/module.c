/* What every decision computes for many nodes, and for one node the kubelet search, as a module of
 * the stable ABI.
 */

#include "kernel.h"

/* Raised with every change of a signature, so that a module of another version is not used. */
#define INTERFACE 8

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernel", .m_size = -1,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    PyObject *module = PyModule_Create(&definition), *bounds_type, *reached_type;
    if (module == NULL)
        return NULL;
    room_type = (PyTypeObject *)PyType_FromSpec(&room_spec);
    bounds_type = PyType_FromSpec(&bounds_spec);
    reached_type = PyType_FromSpec(&reached_spec);
    if (room_type == NULL || bounds_type == NULL || reached_type == NULL
        || PyModule_AddObjectRef(module, "Room", (PyObject *)room_type) < 0
        || PyModule_AddObjectRef(module, "Bounds", bounds_type) < 0
        || PyModule_AddObjectRef(module, "Reached", reached_type) < 0
        || PyModule_AddFunctions(module, score_cache_methods) < 0
        || PyModule_AddFunctions(module, node_arrays_methods) < 0
        || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    Py_XDECREF(bounds_type);
    Py_XDECREF(reached_type);
    return module;
}
