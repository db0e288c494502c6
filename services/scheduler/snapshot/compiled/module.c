/* What every decision computes for many nodes, and for one node the kubelet search, as a module of
 * the stable ABI.
 */

#include "kernel.h"

/* Raised with every change of a signature, so that a module of another version is not used. */
#define INTERFACE 9

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernel", .m_size = -1,
};

PyTypeObject *room_type, *bounds_type, *spread_type;

/* Add a type, which lives as long as the process. */
static PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (type == NULL || PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

PyMODINIT_FUNC PyInit__kernel(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    room_type = add_type(module, "Room", &room_spec);
    bounds_type = add_type(module, "Bounds", &bounds_spec);
    spread_type = add_type(module, "Spread", &spread_spec);
    if (room_type == NULL || bounds_type == NULL || spread_type == NULL
        || add_type(module, "Unaligned", &unaligned_spec) == NULL
        || add_type(module, "Reached", &reached_spec) == NULL
        || PyModule_AddFunctions(module, score_cache_methods) < 0
        || PyModule_AddFunctions(module, node_arrays_methods) < 0
        || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    return module;
}
