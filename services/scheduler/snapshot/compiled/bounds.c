/* Which pods certainly fit a node and which certainly do not: bounds.py and predict.py. */

#include "kernel.h"

static int fits_free_max(const Bounds *bounds, Py_ssize_t slot)
{
    for (Py_ssize_t kind = 0; kind < bounds->kinds; kind++) {
        const int64_t *least = bounds->least + kind * bounds->rows;
        Py_ssize_t zone = 0;
        while (zone < bounds->zones && !holds(bounds, bounds->free_max, least, zone, slot))
            zone++;
        if (zone == bounds->zones)
            return 0;
    }
    return 1;
}

/* How many parts fit if each requests only the smallest of their amounts. */
static int64_t room_for(const Bounds *bounds, int64_t enough, Py_ssize_t slot)
{
    int64_t room = 0;
    for (Py_ssize_t zone = 0; zone < bounds->zones && room < enough; zone++) {
        int64_t times = enough;
        for (Py_ssize_t row = 0; row < bounds->rows; row++) {
            int64_t amount = bounds->smallest[row];
            int64_t free = free_at(bounds, bounds->free_max, row, zone, slot);
            if (amount)
                times = free < amount ? 0 : free / amount < times ? free / amount : times;
        }
        room += times;
    }
    return room;
}

/* Return the position of the lowest zone that holds a part kind, and count those that do. */
static int64_t lowest_zone(const Bounds *bounds, Py_ssize_t kind, Py_ssize_t slot, Found *found,
                           Py_ssize_t index)
{
    const int64_t *least = bounds->least + kind * bounds->rows;
    int64_t lowest = NOWHERE;
    bounds->times[kind] = 0;
    for (Py_ssize_t zone = 0; zone < bounds->zones; zone++) {
        int held = holds(bounds, bounds->free_min, least, zone, slot);
        if (found->fits)
            found->fits[(kind * bounds->zones + zone) * found->count + index] = (char)held;
        if (!held)
            continue;
        bounds->times[kind]++;
        if (lowest == NOWHERE)
            lowest = zone * bounds->capacity + slot;
        if (!found->fits && bounds->times[kind] >= bounds->enough[kind])
            break;
    }
    return lowest;
}

/* Whether a part finds a zone, whatever zones the parts before it took. */
static int finds_a_zone(const Bounds *bounds, Py_ssize_t check, Py_ssize_t slot)
{
    const int64_t *least = bounds->least + (bounds->kinds + check) * bounds->rows;
    if (bounds->times[bounds->together[2 * check + 1]] > bounds->together[2 * check])
        return 1;
    for (Py_ssize_t zone = 0; zone < bounds->zones; zone++)
        if (holds(bounds, bounds->free_min, least, zone, slot))
            return 1;
    return 0;
}

/* Bound the node of a slot; its landing goes to `index`. */
void bound_node(const Bounds *bounds, Py_ssize_t slot, Found *found, Py_ssize_t index,
                       char *candidate, char *sure)
{
    int necessary = bounds->has_rows;
    for (Py_ssize_t kind = 0; kind < bounds->kinds; kind++) {
        int64_t lowest = lowest_zone(bounds, kind, slot, found, index);
        found->landing[kind * found->count + index] = lowest;
        necessary &= lowest != NOWHERE;
    }
    *sure = bounds->decides && necessary;
    for (Py_ssize_t check = 0; check < bounds->checks && *sure; check++)
        *sure = (char)finds_a_zone(bounds, check, slot);
    *candidate = necessary || (bounds->has_rows && fits_free_max(bounds, slot));
    if (*candidate && !*sure && bounds->running)
        *candidate = room_for(bounds, bounds->running, slot) >= bounds->running;
    *candidate |= bounds->needs_search;
}

PyDoc_STRVAR(bounds_doc,
"Bounds(free_min, free_max, least, together, smallest, parts, zones, running, has_rows, decides,\n"
"       needs_search, chooses)\n--\n\n"
"The bounds of a plan. `least` [kind or together, row] is what a zone must have; `together`\n"
"[together, 2] is how many parts come before, and the part's kind; `parts` are the kinds in\n"
"order, -1 for a part that has no kind. `chooses`: a part gets the zone with the best score, not\n"
"the lowest one.");

static int bounds_init(PyObject *self, PyObject *args, PyObject *named)
{
    enum { FREE_MIN, FREE_MAX, LEAST, TOGETHER, SMALLEST, PARTS, COUNT };
    static const Form forms[COUNT] = {{3, 8, 0}, {3, 8, 0}, {2, 8, 0},
                                      {2, 8, 0}, {1, 8, 0}, {1, 8, 0}};
    Bounds *bounds = (Bounds *)self;
    Arrays *arrays = &bounds->arrays;
    PyObject *objects[COUNT];
    if (named || arrays->count || !PyArg_ParseTuple(
            args, "OOOOOOnLpppp", &objects[FREE_MIN], &objects[FREE_MAX], &objects[LEAST],
            &objects[TOGETHER], &objects[SMALLEST], &objects[PARTS], &bounds->zones,
            &bounds->running, &bounds->has_rows, &bounds->decides, &bounds->needs_search,
            &bounds->chooses))
        return -1;
    if (take(arrays, objects, forms, COUNT) < 0)
        return -1;
    bounds->free_min = arrays->views[FREE_MIN].buf;
    bounds->free_max = arrays->views[FREE_MAX].buf;
    bounds->least = arrays->views[LEAST].buf;
    bounds->together = arrays->views[TOGETHER].buf;
    bounds->smallest = arrays->views[SMALLEST].buf;
    bounds->parts = arrays->views[PARTS].buf;
    bounds->rows = length(arrays, FREE_MIN, 0), bounds->all_zones = length(arrays, FREE_MIN, 1);
    bounds->capacity = length(arrays, FREE_MIN, 2);
    bounds->checks = length(arrays, TOGETHER, 0);
    bounds->kinds = length(arrays, LEAST, 0) - bounds->checks;
    bounds->part_count = length(arrays, PARTS, 0);
    int sound = bounds->zones >= 0 && bounds->zones <= bounds->all_zones && bounds->kinds >= 0
        && length(arrays, LEAST, 1) == bounds->rows
        && length(arrays, TOGETHER, 1) == 2 && length(arrays, SMALLEST, 0) == bounds->rows
        && all_within(bounds->smallest, bounds->rows, 0, INT64_MAX)
        && all_within(bounds->parts, bounds->part_count, bounds->has_rows ? 0 : NOWHERE,
                      bounds->kinds);
    for (int dimension = 0; dimension < 3; dimension++)
        sound = sound && length(arrays, FREE_MIN, dimension) == length(arrays, FREE_MAX, dimension);
    for (Py_ssize_t check = 0; check < bounds->checks && sound; check++)
        sound = all_within(bounds->together + 2 * check + 1, 1, 0, bounds->kinds);
    if (!sound)
        return misfit(arrays);
    Py_ssize_t amounts = bounds->kinds * 4 + bounds->zones * bounds->rows + bounds->part_count * 2;
    bounds->times = PyMem_Calloc((size_t)amounts + 1, sizeof(int64_t));
    if (bounds->times == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    bounds->enough = bounds->times + bounds->kinds;
    bounds->counts = bounds->enough + bounds->kinds;
    bounds->landing = bounds->counts + bounds->kinds;
    bounds->taken = bounds->landing + bounds->kinds;
    bounds->places = bounds->taken + bounds->zones * bounds->rows;
    for (Py_ssize_t part = 0; part < bounds->part_count; part++)
        if (bounds->parts[part] != NOWHERE)
            bounds->counts[bounds->parts[part]]++;
    for (Py_ssize_t check = 0; check < bounds->checks; check++) {
        int64_t *enough = bounds->enough + bounds->together[2 * check + 1];
        if (*enough <= bounds->together[2 * check])
            *enough = bounds->together[2 * check] + 1;
    }
    return 0;
}

static void bounds_free(PyObject *self)
{
    PyMem_Free(((Bounds *)self)->times);
    release(&((Bounds *)self)->arrays);
    discard(self);
}

PyDoc_STRVAR(bounds_run_doc,
"run($self, slots, landing, candidates, sure, fits, /)\n--\n\n"
"Write the bounds of the nodes in `slots` into `landing` [kind, node], `candidates` and `sure`\n"
"[node], and `fits` [kind, zone, node] if it is not None.");

static PyObject *bounds_run(PyObject *self, PyObject *args)
{
    enum { SLOTS, LANDING, CANDIDATES, SURE, FITS, COUNT };
    static const Form forms[COUNT] = {{1, 8, 0}, {2, 8, 1}, {1, 1, 1}, {1, 1, 1}, {3, 1, 1}};
    const Bounds *bounds = (Bounds *)self;
    PyObject *objects[COUNT];
    Arrays arrays = {0};
    if (!PyArg_ParseTuple(args, "OOOOO", &objects[SLOTS], &objects[LANDING], &objects[CANDIDATES],
                          &objects[SURE], &objects[FITS]))
        return NULL;
    int with_fits = objects[FITS] != Py_None;
    if (bounds->times == NULL ? misfit(&arrays)
                              : take(&arrays, objects, forms, with_fits ? COUNT : FITS))
        return NULL;
    const int64_t *slots = arrays.views[SLOTS].buf;
    char *candidates = arrays.views[CANDIDATES].buf, *sure = arrays.views[SURE].buf;
    Found found = {.count = length(&arrays, SLOTS, 0), .landing = arrays.views[LANDING].buf,
                   .fits = with_fits ? arrays.views[FITS].buf : NULL};
    int sound = length(&arrays, LANDING, 0) == bounds->kinds
        && length(&arrays, LANDING, 1) == found.count && length(&arrays, SURE, 0) == found.count
        && length(&arrays, CANDIDATES, 0) == found.count
        && all_within(slots, found.count, 0, bounds->capacity);
    if (with_fits)
        sound = sound && length(&arrays, FITS, 0) == bounds->kinds
            && length(&arrays, FITS, 1) == bounds->zones && length(&arrays, FITS, 2) == found.count;
    if (!sound) {
        misfit(&arrays);
        return NULL;
    }
    for (Py_ssize_t index = 0; index < found.count; index++)
        bound_node(bounds, slots[index], &found, index, &candidates[index], &sure[index]);
    release(&arrays);
    return Py_NewRef(Py_None);
}

/* Put each part into the lowest zone that holds it next to the parts before it; return 0 if one
 * has none. */
static int place(const Bounds *bounds, const int64_t *free, Py_ssize_t slot, int64_t *places)
{
    memset(bounds->taken, 0, (size_t)(bounds->zones * bounds->rows) * sizeof(int64_t));
    for (Py_ssize_t part = 0; part < bounds->part_count; part++) {
        const int64_t *least = bounds->least + bounds->parts[part] * bounds->rows;
        Py_ssize_t zone = 0, row = 0;
        for (; zone < bounds->zones; zone++) {
            const int64_t *taken = bounds->taken + zone * bounds->rows;
            for (row = 0; row < bounds->rows; row++)
                if (least[row] != NOTHING
                    && free_at(bounds, free, row, zone, slot) - taken[row] < least[row])
                    break;
            if (row == bounds->rows)
                break;
        }
        if (zone == bounds->zones)
            return 0;
        for (row = 0; row < bounds->rows; row++)
            if (least[row] != NOTHING)
                bounds->taken[zone * bounds->rows + row] += least[row];
        places[part] = zone;
    }
    return 1;
}

/* The zones that hold a kind by the amounts free at most, as a mask. */
static uint64_t zones_with_room(const Bounds *bounds, Py_ssize_t kind, Py_ssize_t slot)
{
    uint64_t mask = 0;
    for (Py_ssize_t zone = 0; zone < bounds->zones; zone++)
        if (holds(bounds, bounds->free_max, bounds->least + kind * bounds->rows, zone, slot))
            mask |= (uint64_t)1 << zone;
    return mask;
}

PyDoc_STRVAR(bounds_zones_doc,
"zones($self, slot, /)\n--\n\n"
"Return by part the place of the zone where it surely lands, by kind of part the mask of the\n"
"places that may hold it, and whether the node is sure. The first is None if guaranteed free and\n"
"free at most amounts differ.");

static PyObject *bounds_zones(PyObject *self, PyObject *argument)
{
    const Bounds *bounds = (Bounds *)self;
    Py_ssize_t slot = PyLong_AsSsize_t(argument);
    if (slot == -1 && PyErr_Occurred())
        return NULL;
    if (bounds->times == NULL || slot < 0 || slot >= bounds->capacity || !bounds->has_rows
        || bounds->zones > MASK_ZONES) {
        PyErr_SetString(PyExc_ValueError, "the kernel has no such node");
        return NULL;
    }
    int64_t *surely = bounds->places, *at_most = surely + bounds->part_count;
    int same = place(bounds, bounds->free_min, slot, surely)
        && place(bounds, bounds->free_max, slot, at_most)
        && !memcmp(surely, at_most, (size_t)bounds->part_count * sizeof(int64_t));
    Found found = {.count = 1, .landing = bounds->landing};
    char candidate, sure;
    bound_node(bounds, slot, &found, 0, &candidate, &sure);
    PyObject *places = same ? PyTuple_New(bounds->part_count) : Py_NewRef(Py_None);
    PyObject *masks = PyTuple_New(bounds->kinds), *result = NULL;
    int failed = places == NULL || masks == NULL;
    for (Py_ssize_t part = 0; part < bounds->part_count && same && !failed; part++)
        failed = PyTuple_SetItem(places, part, PyLong_FromLongLong(surely[part])) < 0;
    for (Py_ssize_t kind = 0; kind < bounds->kinds && !failed; kind++) {
        uint64_t mask = zones_with_room(bounds, kind, slot);
        failed = PyTuple_SetItem(masks, kind, PyLong_FromUnsignedLongLong(mask)) < 0;
    }
    if (!failed)
        result = PyTuple_Pack(3, places, masks, sure ? Py_True : Py_False);
    Py_XDECREF(places);
    Py_XDECREF(masks);
    return result;
}

static PyMethodDef bounds_methods[] = {
    {"run", bounds_run, METH_VARARGS, bounds_run_doc},
    {"rank", bounds_rank, METH_VARARGS, bounds_rank_doc},
    {"zones", bounds_zones, METH_O, bounds_zones_doc},
    {"best_zone", bounds_best_zone, METH_VARARGS, bounds_best_zone_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot bounds_slots[] = {
    {Py_tp_doc, (void *)bounds_doc},
    {Py_tp_init, (void *)bounds_init},
    {Py_tp_dealloc, (void *)bounds_free},
    {Py_tp_methods, bounds_methods},
    {0, NULL},
};

PyType_Spec bounds_spec = {
    .name = "_kernel.Bounds", .basicsize = sizeof(Bounds), .flags = Py_TPFLAGS_DEFAULT,
    .slots = bounds_slots,
};
