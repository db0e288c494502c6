/* The ranks of the nodes that changed: bulk.py. */

#include "kernel.h"

/* The best score of a part in the zones that hold it, and the zone: the lowest of equal ones. */
static int64_t best_score(const Bounds *bounds, Room *const *rooms, Py_ssize_t kind,
                          Py_ssize_t slot, Py_ssize_t *best)
{
    int64_t most = WORST;
    *best = NOWHERE;
    for (Py_ssize_t zone = 0; zone < bounds->zones; zone++) {
        if (!holds(bounds, bounds->free_min, bounds->least + kind * bounds->rows, zone, slot))
            continue;
        int64_t score = score_at(rooms[kind], zone * bounds->capacity + slot, 0);
        if (*best == NOWHERE || score > most)
            most = score, *best = zone;
    }
    return most;
}

/* The mean of the parts' scores in their zones, rounded down. */
static int32_t mean_score(const Bounds *bounds, Room *const *rooms, Py_ssize_t slot)
{
    int64_t total = 0;
    Py_ssize_t zone;
    for (Py_ssize_t kind = 0; kind < bounds->kinds; kind++)
        total += bounds->counts[kind]
            * (bounds->chooses ? best_score(bounds, rooms, kind, slot, &zone)
                               : score_at(rooms[kind], bounds->landing[kind], 0));
    return (int32_t)(bounds->part_count ? total / bounds->part_count : 0);
}

/* Whether the whole node has the request [row] free [row, slot]. */
static int node_fits(const Arrays *arrays, int free, int request, Py_ssize_t slot)
{
    const int64_t *amounts = arrays->views[free].buf, *least = arrays->views[request].buf;
    Py_ssize_t rows = length(arrays, free, 0), slots = length(arrays, free, 1);
    for (Py_ssize_t row = 0; row < rows; row++)
        if (amounts[row * slots + slot] < least[row])
            return 0;
    return 1;
}

/* Borrow the room of each kind of part from a tuple. */
static int rooms_of(const Bounds *bounds, PyObject *tuple, Room **rooms)
{
    int fits = PyTuple_Size(tuple) == bounds->kinds && bounds->kinds <= MOST_KINDS;
    for (Py_ssize_t kind = 0; kind < bounds->kinds && fits; kind++) {
        PyObject *room = PyTuple_GetItem(tuple, kind);
        rooms[kind] = (Room *)room;
        fits = Py_TYPE(room) == room_type && rooms[kind]->free_of != NULL
            && rooms[kind]->width == bounds->all_zones * bounds->capacity;
    }
    return fits;
}

const char bounds_rank_doc[] =
"rank($self, rooms, free, request, profiles, members, allowed, scores, sure, /)\n--\n\n"
"Rank the nodes that are not `sure` at the highest score and whose profile [slot] is one of\n"
"`members` [profile]; return how many others there are. `rooms` are by kind of part; `request`\n"
"[row] is what a node must have `free` [row, slot]; `allowed` [slot] is where constraints let the\n"
"pod go.";

PyObject *bounds_rank(PyObject *self, PyObject *args)
{
    enum { FREE, REQUEST, PROFILES, MEMBERS, ALLOWED, SCORES, SURE, COUNT };
    static const Form forms[COUNT] = {{2, 8, 0}, {1, 8, 0}, {1, 4, 0}, {1, 1, 0},
                                      {1, 1, 0}, {1, 4, 1}, {1, 1, 1}};
    const Bounds *bounds = (Bounds *)self;
    PyObject *objects[COUNT], *tuple;
    Arrays arrays = {0};
    Room *rooms[MOST_KINDS];
    if (!PyArg_ParseTuple(args, "O!OOOOOOO", &PyTuple_Type, &tuple, &objects[FREE],
                          &objects[REQUEST], &objects[PROFILES], &objects[MEMBERS],
                          &objects[ALLOWED], &objects[SCORES], &objects[SURE]))
        return NULL;
    if (take(&arrays, objects, forms, COUNT) < 0)
        return NULL;
    Py_ssize_t count = length(&arrays, SCORES, 0), others = 0;
    if (bounds->times == NULL || !rooms_of(bounds, tuple, rooms)
        || length(&arrays, FREE, 0) != length(&arrays, REQUEST, 0)
        || length(&arrays, FREE, 1) != bounds->capacity || count > bounds->capacity
        || length(&arrays, PROFILES, 0) < count || length(&arrays, ALLOWED, 0) < count
        || length(&arrays, SURE, 0) < count) {
        misfit(&arrays);
        return NULL;
    }
    const int32_t *profiles = arrays.views[PROFILES].buf;
    const char *members = arrays.views[MEMBERS].buf, *allowed = arrays.views[ALLOWED].buf;
    int32_t *scores = arrays.views[SCORES].buf;
    char *sure = arrays.views[SURE].buf, candidate;
    Found found = {.count = 1, .landing = bounds->landing};
    for (Py_ssize_t slot = 0; slot < count; slot++) {
        if (scores[slot] != OPTIMISTIC || sure[slot])
            continue;
        if (profiles[slot] < 0 || profiles[slot] >= length(&arrays, MEMBERS, 0)
            || !members[profiles[slot]]) {
            others++;
            continue;
        }
        candidate = allowed[slot] && node_fits(&arrays, FREE, REQUEST, slot);
        if (candidate)
            bound_node(bounds, slot, &found, 0, &candidate, &sure[slot]);
        if (!candidate)
            scores[slot] = RULED_OUT, sure[slot] = 1;
        else
            scores[slot] = mean_score(bounds, rooms, slot);
    }
    release(&arrays);
    return PyLong_FromSsize_t(others);
}

const char bounds_best_zone_doc[] =
"best_zone($self, rooms, slot, /)\n--\n\n"
"Return the place of the zone that the first kind of part gets where zones are chosen; -1 for none.";

PyObject *bounds_best_zone(PyObject *self, PyObject *args)
{
    const Bounds *bounds = (Bounds *)self;
    Room *rooms[MOST_KINDS];
    PyObject *tuple;
    Py_ssize_t slot, zone;
    if (!PyArg_ParseTuple(args, "O!n", &PyTuple_Type, &tuple, &slot))
        return NULL;
    if (bounds->times == NULL || !bounds->kinds || !rooms_of(bounds, tuple, rooms) || slot < 0
        || slot >= bounds->capacity) {
        PyErr_SetString(PyExc_ValueError, "the kernel's arrays do not fit together");
        return NULL;
    }
    best_score(bounds, rooms, 0, slot, &zone);
    return PyLong_FromSsize_t(zone);
}
