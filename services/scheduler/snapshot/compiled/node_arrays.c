/* The arrays of nodes: node_arrays.py. */

#include "kernel.h"

PyDoc_STRVAR(subtract_doc,
"subtract(free_min, free, totals, zones, whole, total, slot, /)\n--\n\n"
"Subtract `zones` [row, zone] from `free_min` [row, zone, slot], and `whole` and `total` [row] from\n"
"`free` and `totals` [row, slot].");

static PyObject *subtract(PyObject *module, PyObject *args)
{
    enum { FREE_MIN, FREE, TOTALS, ZONES, WHOLE, TOTAL, COUNT };
    static const Form forms[COUNT] = {{3, 8, 1}, {2, 8, 1}, {2, 8, 1},
                                      {2, 8, 0}, {1, 8, 0}, {1, 8, 0}};
    PyObject *objects[COUNT];
    Py_ssize_t slot;
    Arrays arrays = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOOOn", &objects[FREE_MIN], &objects[FREE], &objects[TOTALS],
                          &objects[ZONES], &objects[WHOLE], &objects[TOTAL], &slot)
        || take(&arrays, objects, forms, COUNT) < 0)
        return NULL;
    int64_t *free_min = arrays.views[FREE_MIN].buf, *free = arrays.views[FREE].buf;
    int64_t *totals = arrays.views[TOTALS].buf;
    const int64_t *zones = arrays.views[ZONES].buf, *whole = arrays.views[WHOLE].buf;
    const int64_t *total = arrays.views[TOTAL].buf;
    Py_ssize_t amounts = length(&arrays, ZONES, 0) * length(&arrays, ZONES, 1);
    Py_ssize_t rows = length(&arrays, WHOLE, 0), slots = length(&arrays, FREE, 1);
    if (length(&arrays, FREE_MIN, 0) * length(&arrays, FREE_MIN, 1) != amounts
        || length(&arrays, TOTALS, 0) != length(&arrays, TOTAL, 0)
        || length(&arrays, TOTALS, 1) != slots || length(&arrays, FREE, 0) != rows || length(&arrays, FREE_MIN, 2) != slots || slot < 0
        || slot >= slots) {
        misfit(&arrays);
        return NULL;
    }
    for (Py_ssize_t at = 0; at < amounts; at++)
        free_min[at * slots + slot] -= zones[at];
    for (Py_ssize_t row = 0; row < rows; row++)
        free[row * slots + slot] -= whole[row];
    for (Py_ssize_t row = 0; row < length(&arrays, TOTAL, 0); row++)
        totals[row * slots + slot] -= total[row];
    release(&arrays);
    return Py_NewRef(Py_None);
}

PyMethodDef node_arrays_methods[] = {
    {"subtract", subtract, METH_VARARGS, subtract_doc},
    {NULL, NULL, 0, NULL},
};
