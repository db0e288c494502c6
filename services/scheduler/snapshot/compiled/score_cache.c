/* The score cache: score_cache.py. */

#include "kernel.h"

/* As in node_arrays.py. */
#define EXCLUDED (-(1 << 30))

PyDoc_STRVAR(best_doc,
"best(scores, order, salt, offsets, /)\n--\n\n"
"Return the slot of the highest score, its score, and how many are not ruled out; the slot is -1\n"
"without one. `offsets` are added if they are not None. Of equals the first by `order` and `salt`.");

static PyObject *best(PyObject *module, PyObject *args)
{
    enum { SCORES, ORDER, OFFSETS, COUNT };
    static const Form forms[COUNT] = {{1, 4, 0}, {1, 8, 0}, {1, 4, 0}};
    PyObject *objects[COUNT];
    unsigned long long salt;
    Arrays arrays = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OOKO", &objects[SCORES], &objects[ORDER], &salt,
                          &objects[OFFSETS]))
        return NULL;
    int with_offsets = objects[OFFSETS] != Py_None;
    if (take(&arrays, objects, forms, with_offsets ? COUNT : OFFSETS) < 0)
        return NULL;
    Py_ssize_t count = length(&arrays, SCORES, 0), candidates = 0, slot = NOWHERE;
    if (length(&arrays, ORDER, 0) < count
        || (with_offsets && length(&arrays, OFFSETS, 0) < count)) {
        misfit(&arrays);
        return NULL;
    }
    const int32_t *scores = arrays.views[SCORES].buf;
    const int32_t *offsets = with_offsets ? arrays.views[OFFSETS].buf : NULL;
    const uint64_t *order = arrays.views[ORDER].buf;
    int32_t most = EXCLUDED / 2;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (scores[at] == RULED_OUT)
            continue;
        int32_t sum = offsets ? scores[at] + offsets[at] : scores[at];
        candidates++;
        if (sum > most || (sum == most && slot != NOWHERE
                           && (order[at] ^ salt) < (order[slot] ^ salt)))
            most = sum, slot = at;
    }
    int score = slot == NOWHERE ? RULED_OUT : scores[slot];
    release(&arrays);
    return Py_BuildValue("nin", slot, score, candidates);
}

PyDoc_STRVAR(tighten_doc,
"tighten(scores, sure, exact, slot, /)\n--\n\n"
"Forget the scores [row, slot] of a slot, except that ruled-out rows stay so.");

static PyObject *tighten(PyObject *module, PyObject *args)
{
    enum { SCORES, SURE, EXACT, COUNT };
    static const Form forms[COUNT] = {{2, 4, 1}, {2, 1, 1}, {2, 1, 1}};
    PyObject *objects[COUNT];
    Py_ssize_t slot;
    Arrays arrays = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOn", &objects[SCORES], &objects[SURE], &objects[EXACT], &slot)
        || take(&arrays, objects, forms, COUNT) < 0)
        return NULL;
    Py_ssize_t rows = length(&arrays, SCORES, 0), slots = length(&arrays, SCORES, 1);
    int sound = slot >= 0 && slot < slots;
    for (int array = SURE; array < COUNT; array++)
        sound = sound && length(&arrays, array, 0) == rows && length(&arrays, array, 1) == slots;
    if (!sound) {
        misfit(&arrays);
        return NULL;
    }
    int32_t *scores = arrays.views[SCORES].buf;
    char *sure = arrays.views[SURE].buf, *exact = arrays.views[EXACT].buf;
    for (Py_ssize_t at = slot; at < rows * slots; at += slots) {
        sure[at] = scores[at] == RULED_OUT;
        scores[at] = sure[at] ? RULED_OUT : OPTIMISTIC;
        exact[at] = 0;
    }
    release(&arrays);
    return Py_NewRef(Py_None);
}

PyMethodDef score_cache_methods[] = {
    {"best", best, METH_VARARGS, best_doc},
    {"tighten", tighten, METH_VARARGS, tighten_doc},
    {NULL, NULL, 0, NULL},
};
