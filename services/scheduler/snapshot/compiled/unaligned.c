/* The bounds of plans under policy none and best-effort: `PlanBounds.unaligned` of bounds.py. */

#include "kernel.h"

/* How memory must fit for a node to be sure. */
enum { NEVER, IN_A_ZONE, IN_EVERY_ZONE };

enum { FREE_MIN, FREE_MAX, TOTALS, SUMS, TAKEN, MEMORY, COUNT };

static int64_t amount(const Unaligned *plan, const int64_t *free, Py_ssize_t row, Py_ssize_t zone,
                      Py_ssize_t slot)
{
    return free[(row * plan->all_zones + zone) * plan->capacity + slot];
}

static int memory_fits(const Unaligned *plan, Py_ssize_t slot)
{
    for (Py_ssize_t zone = 0; zone < plan->zones; zone++) {
        int fits = 1;
        for (Py_ssize_t row = 0; row < plan->rows && fits; row++)
            fits = amount(plan, plan->free_min, row, zone, slot) >= plan->memory[row];
        if (fits == (plan->memory_fits == IN_A_ZONE))
            return fits;
    }
    return plan->memory_fits == IN_EVERY_ZONE;
}

void bound_unaligned(const Unaligned *plan, Py_ssize_t slot, char *candidate, char *sure)
{
    *candidate = 1, *sure = 0;
    if (plan->needs_search)
        return;
    *candidate = (char)plan->is_possible, *sure = (char)plan->may_be_sure;
    for (Py_ssize_t row = 0; row < plan->rows; row++) {
        int64_t total = 0;
        for (Py_ssize_t zone = 0; plan->sums[row] != NOTHING && zone < plan->all_zones; zone++)
            total += amount(plan, plan->free_max, row, zone, slot);
        *candidate &= plan->sums[row] == NOTHING || total >= plan->sums[row];
        *sure &= plan->totals[row * plan->capacity + slot] >= plan->taken[row];
    }
    if (*sure && plan->has_memory)
        *sure = plan->memory_fits != NEVER && memory_fits(plan, slot);
}

PyDoc_STRVAR(unaligned_doc,
"Unaligned(free_min, free_max, totals, sums, taken, memory, zones, is_possible, may_be_sure,\n"
"          needs_search, has_memory, memory_fits)\n--\n\n"
"The bounds of a plan under none or best-effort. By row: `sums` that all zones must have free at\n"
"most, what the node must surely have besides memory (`taken`), and `memory`, which must fit\n"
"never (0), in a zone (1), or in every zone (2).");

static int unaligned_init(PyObject *self, PyObject *args, PyObject *named)
{
    static const Form forms[COUNT] = {{3, 8, 0}, {3, 8, 0}, {2, 8, 0},
                                      {1, 8, 0}, {1, 8, 0}, {1, 8, 0}};
    Unaligned *plan = (Unaligned *)self;
    Arrays *arrays = &plan->arrays;
    PyObject *objects[COUNT];
    if (named || arrays->count || !PyArg_ParseTuple(
            args, "OOOOOOnppppi", &objects[FREE_MIN], &objects[FREE_MAX], &objects[TOTALS],
            &objects[SUMS], &objects[TAKEN], &objects[MEMORY], &plan->zones, &plan->is_possible,
            &plan->may_be_sure, &plan->needs_search, &plan->has_memory, &plan->memory_fits)
        || take(arrays, objects, forms, COUNT) < 0)
        return -1;
    plan->free_min = arrays->views[FREE_MIN].buf, plan->free_max = arrays->views[FREE_MAX].buf;
    plan->totals = arrays->views[TOTALS].buf, plan->sums = arrays->views[SUMS].buf;
    plan->taken = arrays->views[TAKEN].buf, plan->memory = arrays->views[MEMORY].buf;
    plan->rows = length(arrays, FREE_MIN, 0), plan->all_zones = length(arrays, FREE_MIN, 1);
    plan->capacity = length(arrays, FREE_MIN, 2);
    int sound = plan->zones >= 0 && plan->zones <= plan->all_zones
        && length(arrays, TOTALS, 0) == plan->rows && length(arrays, TOTALS, 1) == plan->capacity;
    for (int dimension = 0; dimension < 3; dimension++)
        sound = sound && length(arrays, FREE_MIN, dimension) == length(arrays, FREE_MAX, dimension);
    for (int array = SUMS; array < COUNT; array++)
        sound = sound && length(arrays, array, 0) == plan->rows;
    return sound ? 0 : misfit(arrays);
}

static void unaligned_free(PyObject *self)
{
    release(&((Unaligned *)self)->arrays);
    discard(self);
}

PyDoc_STRVAR(unaligned_run_doc,
"run($self, slots, candidates, sure, /)\n--\n\n"
"Write the bounds of the nodes in `slots` into `candidates` and `sure`.");

static PyObject *unaligned_run(PyObject *self, PyObject *args)
{
    static const Form forms[] = {{1, 8, 0}, {1, 1, 1}, {1, 1, 1}};
    const Unaligned *plan = (Unaligned *)self;
    PyObject *objects[3];
    Arrays arrays = {0};
    if (!PyArg_ParseTuple(args, "OOO", &objects[0], &objects[1], &objects[2])
        || take(&arrays, objects, forms, 3) < 0)
        return NULL;
    const int64_t *slots = arrays.views[0].buf;
    char *candidates = arrays.views[1].buf, *sure = arrays.views[2].buf;
    Py_ssize_t count = length(&arrays, 0, 0);
    if (!plan->arrays.count || length(&arrays, 1, 0) != count || length(&arrays, 2, 0) != count
        || !all_within(slots, count, 0, plan->capacity)) {
        misfit(&arrays);
        return NULL;
    }
    for (Py_ssize_t index = 0; index < count; index++)
        bound_unaligned(plan, slots[index], &candidates[index], &sure[index]);
    release(&arrays);
    return Py_NewRef(Py_None);
}

static PyMethodDef unaligned_methods[] = {
    {"run", unaligned_run, METH_VARARGS, unaligned_run_doc},
    {"rank", unaligned_rank, METH_VARARGS, unaligned_rank_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot unaligned_slots[] = {
    {Py_tp_doc, (void *)unaligned_doc},
    {Py_tp_init, (void *)unaligned_init},
    {Py_tp_dealloc, (void *)unaligned_free},
    {Py_tp_methods, unaligned_methods},
    {0, NULL},
};

PyType_Spec unaligned_spec = {
    .name = "_kernel.Unaligned", .basicsize = sizeof(Unaligned), .flags = Py_TPFLAGS_DEFAULT,
    .slots = unaligned_slots,
};
