/* The arrays that Python gives to the kernel, by the buffer protocol. */

#include "kernel.h"

void release(Arrays *arrays)
{
    while (arrays->count)
        PyBuffer_Release(&arrays->views[--arrays->count]);
}

int misfit(Arrays *arrays)
{
    PyErr_SetString(PyExc_ValueError, "the kernel's arrays do not fit together");
    release(arrays);
    return -1;
}

int take(Arrays *arrays, PyObject *const *objects, const Form *forms, int count)
{
    for (int at = 0; at < count; at++) {
        Py_buffer *view = &arrays->views[at];
        int flags = PyBUF_C_CONTIGUOUS | (forms[at].writable ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(objects[at], view, flags) < 0) {
            release(arrays);
            return -1;
        }
        arrays->count++;
        if (view->ndim != forms[at].dimensions || view->itemsize != forms[at].size)
            return misfit(arrays);
    }
    return 0;
}

int all_within(const int64_t *values, Py_ssize_t count, int64_t low, int64_t end)
{
    for (Py_ssize_t at = 0; at < count; at++)
        if (values[at] < low || values[at] >= end)
            return 0;
    return 1;
}

void discard(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}
