/* What every decision computes for many nodes: the bounds of bounds.py, the scores after landing of
 * keep_room.py and room.py, the ranks of bulk.py and the best of score_cache.py; and for one node
 * the search of admission_orders.py. The plain forms there are the reference.
 *
 * Numbers are doubles. They are exact as in room.py: a quotient of integers below 2^53 cannot cross
 * an integer when it is rounded, and room is below 2^24.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

/* Raised with every change of a signature, so that a module of another version is not used. */
#define INTERFACE 7

/* As in room.py and keep_room.py. */
#define UNITS 64
#define ONE 4096
#define MOST_ROOM 1024
#define GRAIN 1024
#define SHARE 16
#define BEST 100
#define WORST 0
/* As in bounds.py, ranks.py, score_cache.py and node_arrays.py. */
#define NOWHERE (-1)
#define NOTHING INT64_MIN
#define RULED_OUT (-(1 << 28))
#define OPTIMISTIC 357
#define EXCLUDED (-(1 << 30))
/* Kinds of parts that are ranked; pods with more of them are ranked in Python. */
#define MOST_KINDS 32
/* Zones that a mask has. */
#define MASK_ZONES 64

/* -- arrays: C-contiguous buffers that stay taken as long as their owner lives */

enum { MOST_ARRAYS = 10 };

typedef struct {
    int count;
    Py_buffer views[MOST_ARRAYS];
} Arrays;

/* How many dimensions an array has, the size of its items, and whether it is written to. */
typedef struct {
    int dimensions, size, writable;
} Form;

static void release(Arrays *arrays)
{
    while (arrays->count)
        PyBuffer_Release(&arrays->views[--arrays->count]);
}

static int misfit(Arrays *arrays)
{
    PyErr_SetString(PyExc_ValueError, "the kernel's arrays do not fit together");
    release(arrays);
    return -1;
}

static int take(Arrays *arrays, PyObject *const *objects, const Form *forms, int count)
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

static Py_ssize_t length(const Arrays *arrays, int at, int dimension)
{
    return arrays->views[at].shape[dimension];
}

static int all_within(const int64_t *values, Py_ssize_t count, int64_t low, int64_t end)
{
    for (Py_ssize_t at = 0; at < count; at++)
        if (values[at] < low || values[at] >= end)
            return 0;
    return 1;
}

static void discard(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* -- room: the score of a request in one zone */

static PyTypeObject *room_type;

/* A pair is an amount of a resource that classes request. Each class has as many turns as the
 * longest; `pair_of` [turn, class] is the pair of each. */
typedef struct {
    PyObject_HEAD
    Arrays arrays;
    const int64_t *free, *request, *pair_rows, *pair_of;
    const double *whole, *amounts, *weights, *levels;
    Py_ssize_t rows, width, pairs, turns, classes, level_count;
    double lost_anywhere;
    double *free_of, *rest_of;
    int32_t *most, *least;
} Room;

/* How often each pair fits, in parts of `UNITS`; a loop that the compiler vectorizes. */
static void count_units(const double *free, const double *amounts, int32_t *units, Py_ssize_t count)
{
    for (Py_ssize_t pair = 0; pair < count; pair++) {
        double quotient = free[pair] * UNITS / amounts[pair];
        quotient = quotient > 0 ? quotient : 0;
        quotient = quotient < MOST_ROOM * UNITS ? quotient : MOST_ROOM * UNITS;
        units[pair] = (int32_t)quotient;
    }
}

static double room_of(uint32_t units)
{
    uint32_t part = units % UNITS;
    return units / UNITS * ONE + part * part * part / (UNITS * UNITS * UNITS / ONE);
}

/* The weighed loss of room of the zone at this position. A class that an empty zone of this size
 * does not hold loses nothing: its room is 0 before and after. */
static double lost_at(const Room *room, Py_ssize_t position)
{
    double lost = 0;
    for (Py_ssize_t pair = 0; pair < room->pairs; pair++) {
        Py_ssize_t row = room->pair_rows[pair], at = row * room->width + position;
        int holds = room->whole[at] >= room->amounts[pair];
        room->free_of[pair] = holds ? (double)room->free[at] : 0;
        room->rest_of[pair] = holds ? (double)(room->free[at] - room->request[row]) : 0;
    }
    count_units(room->free_of, room->amounts, room->most, room->pairs);
    count_units(room->rest_of, room->amounts, room->least, room->pairs);
    for (Py_ssize_t number = 0; number < room->classes; number++) {
        int32_t most = MOST_ROOM * UNITS, least = most;
        for (Py_ssize_t turn = 0; turn < room->turns; turn++) {
            Py_ssize_t pair = room->pair_of[turn * room->classes + number];
            most = room->most[pair] < most ? room->most[pair] : most;
            least = room->least[pair] < least ? room->least[pair] : least;
        }
        if (least < most)
            lost += room->weights[number] * (room_of((uint32_t)most) - room_of((uint32_t)least));
    }
    return lost;
}

/* The score of the request in the zone at this position; `WORST` if it does not hold it. */
static int64_t score_at(const Room *room, Py_ssize_t position, double lost_besides)
{
    double shares = 0, listed = 0;
    if (position == NOWHERE)
        return WORST;
    for (Py_ssize_t row = 0; row < room->rows; row++) {
        Py_ssize_t at = row * room->width + position;
        if (room->request[row] > 0 && room->whole[at] > 0) {
            double rest = (double)(room->free[at] - room->request[row]);
            if (rest < 0)
                return WORST;
            shares += (double)(int64_t)(rest * 100 / room->whole[at]);
            listed++;
        }
    }
    if (!listed)
        return BEST;
    double lost = lost_at(room, position) + lost_besides - room->lost_anywhere;
    int64_t steps = (int64_t)(shares / (listed * 100 / SHARE));
    if (lost > 0)
        steps += (int64_t)(lost / GRAIN);
    Py_ssize_t low = 0, high = room->level_count;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (steps < room->levels[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return BEST - low;
}

PyDoc_STRVAR(room_doc,
"Room(free, whole, request, pair_rows, amounts, pair_of, weights, levels, lost_anywhere)\n--\n\n"
"The scores of `request` [row] in zones of `free` (int64) and `whole` (float64) [row, position].");

static int room_init(PyObject *self, PyObject *args, PyObject *named)
{
    enum { FREE, WHOLE, REQUEST, PAIR_ROWS, AMOUNTS, PAIR_OF, WEIGHTS, LEVELS, COUNT };
    static const Form forms[COUNT] = {{2, 8, 0}, {2, 8, 0}, {1, 8, 0}, {1, 8, 0},
                                      {1, 8, 0}, {2, 8, 0}, {1, 8, 0}, {1, 8, 0}};
    Room *room = (Room *)self;
    Arrays *arrays = &room->arrays;
    PyObject *objects[COUNT];
    if (named || arrays->count || !PyArg_ParseTuple(
            args, "OOOOOOOOd", &objects[FREE], &objects[WHOLE], &objects[REQUEST],
            &objects[PAIR_ROWS], &objects[AMOUNTS], &objects[PAIR_OF], &objects[WEIGHTS],
            &objects[LEVELS], &room->lost_anywhere))
        return -1;
    if (take(arrays, objects, forms, COUNT) < 0)
        return -1;
    room->free = arrays->views[FREE].buf;
    room->whole = arrays->views[WHOLE].buf;
    room->request = arrays->views[REQUEST].buf;
    room->pair_rows = arrays->views[PAIR_ROWS].buf;
    room->amounts = arrays->views[AMOUNTS].buf;
    room->pair_of = arrays->views[PAIR_OF].buf;
    room->weights = arrays->views[WEIGHTS].buf;
    room->levels = arrays->views[LEVELS].buf;
    room->rows = length(arrays, FREE, 0), room->width = length(arrays, FREE, 1);
    room->pairs = length(arrays, PAIR_ROWS, 0);
    room->turns = length(arrays, PAIR_OF, 0), room->classes = length(arrays, PAIR_OF, 1);
    room->level_count = length(arrays, LEVELS, 0);
    if (length(arrays, WHOLE, 0) != room->rows || length(arrays, WHOLE, 1) != room->width
        || length(arrays, REQUEST, 0) != room->rows || length(arrays, AMOUNTS, 0) != room->pairs
        || length(arrays, WEIGHTS, 0) != room->classes
        || !all_within(room->pair_rows, room->pairs, 0, room->rows)
        || !all_within(room->pair_of, room->turns * room->classes, 0, room->pairs))
        return misfit(arrays);
    room->free_of = PyMem_Malloc((size_t)(room->pairs + 1) * 2 * (sizeof(double) + sizeof(int32_t)));
    if (room->free_of == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    room->rest_of = room->free_of + room->pairs;
    room->most = (int32_t *)(room->rest_of + room->pairs);
    room->least = room->most + room->pairs;
    return 0;
}

static void room_free(PyObject *self)
{
    PyMem_Free(((Room *)self)->free_of);
    release(&((Room *)self)->arrays);
    discard(self);
}

PyDoc_STRVAR(room_scores_doc,
"scores($self, positions, scores, lost_besides, /)\n--\n\n"
"Write the score in each zone of `positions` into `scores`; a position of -1 scores 0.\n"
"`lost_besides` is [position] or None.");

static PyObject *room_scores(PyObject *self, PyObject *args)
{
    enum { POSITIONS, SCORES, BESIDES, COUNT };
    static const Form forms[COUNT] = {{1, 8, 0}, {1, 8, 1}, {1, 8, 0}};
    const Room *room = (Room *)self;
    PyObject *objects[COUNT];
    Arrays arrays = {0};
    if (!PyArg_ParseTuple(args, "OOO", &objects[POSITIONS], &objects[SCORES], &objects[BESIDES]))
        return NULL;
    int has_besides = objects[BESIDES] != Py_None;
    if (room->free_of == NULL ? misfit(&arrays)
                              : take(&arrays, objects, forms, has_besides ? COUNT : BESIDES))
        return NULL;
    const int64_t *positions = arrays.views[POSITIONS].buf;
    const double *besides = has_besides ? arrays.views[BESIDES].buf : NULL;
    int64_t *scores = arrays.views[SCORES].buf;
    Py_ssize_t count = length(&arrays, POSITIONS, 0);
    if (length(&arrays, SCORES, 0) != count || (besides && length(&arrays, BESIDES, 0) != count)
        || !all_within(positions, count, NOWHERE, room->width)) {
        misfit(&arrays);
        return NULL;
    }
    for (Py_ssize_t index = 0; index < count; index++)
        scores[index] = score_at(room, positions[index], besides ? besides[index] : 0);
    release(&arrays);
    return Py_NewRef(Py_None);
}

/* -- bounds of one plan: free [row, zone, node] */

typedef struct {
    PyObject_HEAD
    Arrays arrays;
    const int64_t *free_min, *free_max, *least, *together, *smallest, *parts;
    Py_ssize_t rows, all_zones, capacity, zones, kinds, checks, part_count;
    long long running;
    int has_rows, decides, needs_search, chooses;
    /* By kind: how many zones hold it, up to how many of them count, how many parts are of it, and
     * where it lands. */
    int64_t *times, *enough, *counts, *landing;
    /* What earlier parts took [zone, row], and where parts go by both amounts [2, part]. */
    int64_t *taken, *places;
} Bounds;

/* The results for the nodes of one call; `landing` [kind, node], `fits` [kind, zone, node]. */
typedef struct {
    Py_ssize_t count;
    int64_t *landing;
    char *fits;
} Found;

static int64_t free_at(const Bounds *bounds, const int64_t *free, Py_ssize_t row, Py_ssize_t zone,
                       Py_ssize_t slot)
{
    return free[(row * bounds->all_zones + zone) * bounds->capacity + slot];
}

static int holds(const Bounds *bounds, const int64_t *free, const int64_t *least, Py_ssize_t zone,
                 Py_ssize_t slot)
{
    for (Py_ssize_t row = 0; row < bounds->rows; row++)
        if (free_at(bounds, free, row, zone, slot) < least[row])
            return 0;
    return 1;
}

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
static void bound_node(const Bounds *bounds, Py_ssize_t slot, Found *found, Py_ssize_t index,
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

/* -- ranks: the nodes of one plan that changed */

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

PyDoc_STRVAR(bounds_rank_doc,
"rank($self, rooms, free, request, profiles, members, allowed, scores, sure, /)\n--\n\n"
"Rank the nodes that are not `sure` at the highest score and whose profile [slot] is one of\n"
"`members` [profile]; return how many others there are. `rooms` are by kind of part; `request`\n"
"[row] is what a node must have `free` [row, slot]; `allowed` [slot] is where constraints let the\n"
"pod go.");

static PyObject *bounds_rank(PyObject *self, PyObject *args)
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

PyDoc_STRVAR(bounds_best_zone_doc,
"best_zone($self, rooms, slot, /)\n--\n\n"
"Return the place of the zone that the first kind of part gets where zones are chosen; -1 for none.");

static PyObject *bounds_best_zone(PyObject *self, PyObject *args)
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

/* -- the score cache */

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

/* -- the arrays of nodes */

PyDoc_STRVAR(subtract_doc,
"subtract(free_min, free, zones, whole, slot, /)\n--\n\n"
"Subtract `zones` [row, zone] from `free_min` [row, zone, slot], and `whole` [row] from `free`\n"
"[row, slot].");

static PyObject *subtract(PyObject *module, PyObject *args)
{
    enum { FREE_MIN, FREE, ZONES, WHOLE, COUNT };
    static const Form forms[COUNT] = {{3, 8, 1}, {2, 8, 1}, {2, 8, 0}, {1, 8, 0}};
    PyObject *objects[COUNT];
    Py_ssize_t slot;
    Arrays arrays = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOn", &objects[FREE_MIN], &objects[FREE], &objects[ZONES],
                          &objects[WHOLE], &slot)
        || take(&arrays, objects, forms, COUNT) < 0)
        return NULL;
    int64_t *free_min = arrays.views[FREE_MIN].buf, *free = arrays.views[FREE].buf;
    const int64_t *zones = arrays.views[ZONES].buf, *whole = arrays.views[WHOLE].buf;
    Py_ssize_t amounts = length(&arrays, ZONES, 0) * length(&arrays, ZONES, 1);
    Py_ssize_t rows = length(&arrays, WHOLE, 0), slots = length(&arrays, FREE, 1);
    if (length(&arrays, FREE_MIN, 0) * length(&arrays, FREE_MIN, 1) != amounts
        || length(&arrays, FREE, 0) != rows || length(&arrays, FREE_MIN, 2) != slots || slot < 0
        || slot >= slots) {
        misfit(&arrays);
        return NULL;
    }
    for (Py_ssize_t at = 0; at < amounts; at++)
        free_min[at * slots + slot] -= zones[at];
    for (Py_ssize_t row = 0; row < rows; row++)
        free[row * slots + slot] -= whole[row];
    release(&arrays);
    return Py_NewRef(Py_None);
}

/* -- the kubelet search on a plain node: admission_orders.py on the states of plain_model.py */

/* How a search ends. */
enum { ADMITTED, REFUSED, ENDANGERS, UNKNOWN };

/* Distinct states in the order in which they were added, and the numbers of those to explore. A
 * state is what is free [zone, field], and how many pods of each kind are pending: a number of
 * mixed radix. The table of their hashes has 1 + the number of a state, 0 for none. */
typedef struct {
    int64_t *words;
    uint32_t *table, *unexplored;
    Py_ssize_t width, count, room, left;
} States;

/* Pods that ask for the same. `needs` [container, 1 + field] begin with the mask of zones. */
typedef struct {
    const int64_t *needs;
    int64_t containers, pending, radix;
    char runs, rejected;
} Kind;

typedef struct {
    PyObject_HEAD
    Arrays arrays;
    Py_ssize_t zones, fields, kind_count;
    Kind kinds[MOST_KINDS];
    States states;
    int64_t *scratch;
    long long left;
} Reached;

static void states_clear(States *states)
{
    PyMem_Free(states->words);
    PyMem_Free(states->table);
    PyMem_Free(states->unexplored);
    memset(states, 0, sizeof(States));
}

static uint64_t hash_of(const int64_t *words, Py_ssize_t width)
{
    uint64_t hash = 0;
    for (Py_ssize_t at = 0; at < width; at++) {
        hash = (hash ^ (uint64_t)words[at]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return hash;
}

/* The place of a state in the table, or the free place for it. */
static uint32_t *place_of(const States *states, const int64_t *words)
{
    size_t mask = 2 * (size_t)states->room - 1, at = hash_of(words, states->width) & mask;
    size_t size = (size_t)states->width * sizeof(int64_t);
    while (states->table[at]
           && memcmp(states->words + (states->table[at] - 1) * states->width, words, size))
        at = (at + 1) & mask;
    return states->table + at;
}

static int states_grow(States *states)
{
    size_t room = states->room ? (size_t)states->room * 2 : 16;
    size_t size = (size_t)states->width * sizeof(int64_t);
    int64_t *words = PyMem_Realloc(states->words, room * size);
    if (words != NULL)
        states->words = words;
    uint32_t *unexplored = PyMem_Realloc(states->unexplored, room * sizeof(uint32_t));
    if (unexplored != NULL)
        states->unexplored = unexplored;
    uint32_t *table = PyMem_Calloc(room * 2, sizeof(uint32_t));
    if (words == NULL || unexplored == NULL || table == NULL) {
        PyMem_Free(table);
        PyErr_NoMemory();
        return -1;
    }
    PyMem_Free(states->table);
    states->table = table, states->room = (Py_ssize_t)room;
    for (Py_ssize_t at = 0; at < states->count; at++)
        *place_of(states, states->words + at * states->width) = (uint32_t)at + 1;
    return 0;
}

/* Add a state that is not in `states`, and explore it later. */
static int states_add(States *states, const int64_t *words)
{
    if (states->count == states->room && states_grow(states) < 0)
        return -1;
    uint32_t *place = place_of(states, words);
    if (!*place) {
        memcpy(states->words + states->count * states->width, words,
               (size_t)states->width * sizeof(int64_t));
        states->unexplored[states->left++] = (uint32_t)states->count;
        *place = (uint32_t)++states->count;
    }
    return 0;
}

/* Admit a pod: each container takes the lowest zone that has all it needs. Return 0 if one has no
 * zone. */
static int admit(const Reached *reached, const Kind *kind, int64_t *state)
{
    const int64_t *need = kind->needs;
    for (int64_t container = 0; container < kind->containers; container++) {
        Py_ssize_t zone = 0, field = 0;
        for (; zone < reached->zones; zone++) {
            const int64_t *free = state + zone * reached->fields;
            if (!((uint64_t)need[0] >> zone & 1))
                continue;
            for (field = 0; field < reached->fields && free[field] >= need[1 + field];)
                field++;
            if (field == reached->fields)
                break;
        }
        if (zone == reached->zones)
            return 0;
        for (field = 0; field < reached->fields; field++)
            state[zone * reached->fields + field] -= need[1 + field];
        need += 1 + reached->fields;
    }
    return 1;
}

/* Whether no pod is pending in a state that is known to run. */
static int is_current(const Reached *reached, const int64_t *state)
{
    for (Py_ssize_t at = 0; at < reached->kind_count; at++) {
        const Kind *kind = &reached->kinds[at];
        if (kind->runs && state[reached->states.width - 1] / kind->radix % (kind->pending + 1))
            return 0;
    }
    return 1;
}

/* Add what may follow a state: one pod is admitted, or rejected if it is not known to run. That
 * counts as `rejected` in current states. States without pending pods are added if `all`. Return 1
 * if the budget ended. */
static int explore(Reached *reached, States *states, Py_ssize_t number, int all)
{
    Py_ssize_t counts = states->width - 1;
    for (Py_ssize_t at = 0; at < reached->kind_count; at++) {
        Kind *kind = &reached->kinds[at];
        const int64_t *state = states->words + number * states->width;
        if (!(state[counts] / kind->radix % (kind->pending + 1)))
            continue;
        if (reached->left-- <= 0)
            return 1;
        memcpy(reached->scratch, state, (size_t)states->width * sizeof(int64_t));
        if (!admit(reached, kind, reached->scratch)) {
            if (kind->runs)
                continue;
            kind->rejected |= (char)is_current(reached, state);
            memcpy(reached->scratch, state, (size_t)states->width * sizeof(int64_t));
        }
        reached->scratch[counts] -= kind->radix;
        if ((all || reached->scratch[counts]) && states_add(states, reached->scratch) < 0)
            return -1;
    }
    return 0;
}

/* Keep the states in which no pod is pending that is known to run. */
static void keep_current(Reached *reached)
{
    States *states = &reached->states;
    Py_ssize_t kept = 0;
    for (Py_ssize_t number = 0; number < states->count; number++) {
        const int64_t *state = states->words + number * states->width;
        if (is_current(reached, state))
            memmove(states->words + kept++ * states->width, state,
                    (size_t)states->width * sizeof(int64_t));
    }
    states->count = kept;
    PyMem_Free(states->table);
    PyMem_Free(states->unexplored);
    states->table = states->unexplored = NULL;
    if (kept) {
        int64_t *words =
            PyMem_Realloc(states->words, (size_t)(kept * states->width) * sizeof(int64_t));
        states->words = words != NULL ? words : states->words;
    }
}

/* Read the needs of one kind at `at`; return where the next begins, -1 for a misfit. */
static Py_ssize_t read_kind(const Reached *reached, const int64_t *needs, Py_ssize_t at,
                            Py_ssize_t end, Kind *kind)
{
    if (at >= end || needs[at] < 0 || needs[at] > (end - at - 1) / (1 + reached->fields))
        return -1;
    kind->containers = needs[at], kind->needs = needs + at + 1;
    return at + 1 + kind->containers * (1 + reached->fields);
}

static int read_kinds(Reached *reached)
{
    const int64_t *needs = reached->arrays.views[1].buf, *counts = reached->arrays.views[2].buf;
    Py_ssize_t at = 0, end = length(&reached->arrays, 1, 0);
    int64_t radix = 1;
    reached->kind_count = length(&reached->arrays, 2, 0) / 2;
    if (reached->kind_count > MOST_KINDS || length(&reached->arrays, 2, 0) % 2)
        return -1;
    for (Py_ssize_t number = 0; number < reached->kind_count; number++) {
        Kind *kind = &reached->kinds[number];
        at = read_kind(reached, needs, at, end, kind);
        kind->pending = counts[2 * number], kind->runs = counts[2 * number + 1] != 0;
        if (at < 0 || kind->pending < 0 || kind->pending >= INT32_MAX
            || radix > INT64_MAX / (kind->pending + 1))
            return -1;
        kind->radix = radix;
        radix *= kind->pending + 1;
    }
    reached->scratch = PyMem_Calloc((size_t)reached->states.width, sizeof(int64_t));
    if (reached->scratch != NULL)
        reached->scratch[reached->states.width - 1] = radix - 1;
    return 0;
}

PyDoc_STRVAR(reached_doc,
"Reached(bases, needs, counts, zones, fields, budget)\n--\n\n"
"The states that pending pods may make of a node with `bases` [base, zone, field], as\n"
"`reachable_states` finds them. `needs` are those of each kind of pod: the number of containers,\n"
"and of each the mask of zones that could hold it and its amounts [field]. `counts` [kind, 2] are\n"
"how many pods are pending, and whether they are known to run. `left` is the rest of the budget,\n"
"negative if it ended.");

static int reached_init(PyObject *self, PyObject *args, PyObject *named)
{
    static const Form forms[] = {{1, 8, 0}, {1, 8, 0}, {1, 8, 0}};
    Reached *reached = (Reached *)self;
    States *states = &reached->states;
    PyObject *objects[3];
    int ends = 0;
    if (named || reached->scratch != NULL || !PyArg_ParseTuple(
            args, "OOOnnL", &objects[0], &objects[1], &objects[2], &reached->zones,
            &reached->fields, &reached->left)
        || take(&reached->arrays, objects, forms, 3) < 0)
        return -1;
    states->width = reached->zones * reached->fields + 1;
    Py_ssize_t words = length(&reached->arrays, 0, 0);
    if (reached->zones < 1 || reached->zones > MASK_ZONES || reached->fields < 1
        || reached->left < 0 || reached->left >= INT32_MAX || words % (states->width - 1)
        || read_kinds(reached) < 0)
        return misfit(&reached->arrays);
    if (reached->scratch == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    const int64_t *bases = reached->arrays.views[0].buf;
    int64_t all_pending = reached->scratch[states->width - 1];
    for (Py_ssize_t at = 0; at < words && !ends; at += states->width - 1) {
        memcpy(reached->scratch, bases + at, (size_t)(states->width - 1) * sizeof(int64_t));
        reached->scratch[states->width - 1] = all_pending;
        ends = states_add(states, reached->scratch);
    }
    while (states->left && !ends)
        ends = explore(reached, states, states->unexplored[--states->left], 1);
    keep_current(reached);
    return ends < 0 ? -1 : 0;
}

static void reached_free(PyObject *self)
{
    states_clear(&((Reached *)self)->states);
    PyMem_Free(((Reached *)self)->scratch);
    release(&((Reached *)self)->arrays);
    discard(self);
}

/* Ask in every reached state for a new pod, and in `after`, which has the states that it leaves. */
static int judge(Reached *reached, const Kind *newcomer, States *after)
{
    const States *before = &reached->states;
    for (Py_ssize_t number = 0; number < before->count; number++) {
        memcpy(reached->scratch, before->words + number * before->width,
               (size_t)before->width * sizeof(int64_t));
        if (reached->left-- <= 0)
            return UNKNOWN;
        if (!admit(reached, newcomer, reached->scratch))
            return REFUSED;
        if (reached->scratch[before->width - 1] && states_add(after, reached->scratch) < 0)
            return -1;
    }
    while (after->left) {
        char rejected = 0, earlier[MOST_KINDS];
        for (Py_ssize_t at = 0; at < reached->kind_count; at++)
            earlier[at] = reached->kinds[at].rejected;
        int ends = explore(reached, after, after->unexplored[--after->left], 0);
        for (Py_ssize_t at = 0; at < reached->kind_count; at++) {
            rejected |= reached->kinds[at].rejected && !earlier[at];
            reached->kinds[at].rejected = earlier[at];
        }
        if (ends)
            return ends < 0 ? -1 : UNKNOWN;
        if (rejected)
            return ENDANGERS;
    }
    return ADMITTED;
}

PyDoc_STRVAR(reached_judge_doc,
"judge($self, needs, budget, /)\n--\n\n"
"Return the answer for a new pod, as `judge_newcomer` does, and the rest of the budget: 0 admitted,\n"
"1 refused, 2 endangers, 3 unknown.");

static PyObject *reached_judge(PyObject *self, PyObject *args)
{
    static const Form forms[] = {{1, 8, 0}};
    Reached *reached = (Reached *)self;
    PyObject *needs;
    Kind newcomer = {0};
    Arrays arrays = {0};
    if (!PyArg_ParseTuple(args, "OL", &needs, &reached->left)
        || take(&arrays, &needs, forms, 1) < 0)
        return NULL;
    Py_ssize_t end = length(&arrays, 0, 0);
    if (reached->scratch == NULL
        || read_kind(reached, arrays.views[0].buf, 0, end, &newcomer) != end) {
        misfit(&arrays);
        return NULL;
    }
    States after = {.width = reached->states.width};
    int answer = judge(reached, &newcomer, &after);
    states_clear(&after);
    release(&arrays);
    return answer < 0 ? NULL : Py_BuildValue("iL", answer, reached->left);
}

static PyObject *reached_get(PyObject *self, void *name)
{
    const Reached *reached = (Reached *)self;
    int rejects = 0;
    for (Py_ssize_t at = 0; at < reached->kind_count; at++)
        rejects |= reached->kinds[at].rejected;
    switch (*(const char *)name) {
    case 'l':
        return PyLong_FromLongLong(reached->left);
    case 'c':
        return PyLong_FromSsize_t(reached->states.count);
    default:
        return PyBool_FromLong(rejects);
    }
}

/* -- the module */

static PyMethodDef room_methods[] = {
    {"scores", room_scores, METH_VARARGS, room_scores_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot room_slots[] = {
    {Py_tp_doc, (void *)room_doc},
    {Py_tp_init, (void *)room_init},
    {Py_tp_dealloc, (void *)room_free},
    {Py_tp_methods, room_methods},
    {0, NULL},
};

static PyType_Spec room_spec = {
    .name = "_kernel.Room", .basicsize = sizeof(Room), .flags = Py_TPFLAGS_DEFAULT,
    .slots = room_slots,
};

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

static PyType_Spec bounds_spec = {
    .name = "_kernel.Bounds", .basicsize = sizeof(Bounds), .flags = Py_TPFLAGS_DEFAULT,
    .slots = bounds_slots,
};

static PyMethodDef reached_methods[] = {
    {"judge", reached_judge, METH_VARARGS, reached_judge_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef reached_fields[] = {
    {"left", reached_get, NULL, "The rest of the budget.", "left"},
    {"count", reached_get, NULL, "How many states were reached.", "count"},
    {"may_be_rejected", reached_get, NULL, "Whether a pending pod may be rejected.", "rejected"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot reached_slots[] = {
    {Py_tp_doc, (void *)reached_doc},
    {Py_tp_init, (void *)reached_init},
    {Py_tp_dealloc, (void *)reached_free},
    {Py_tp_methods, reached_methods},
    {Py_tp_getset, reached_fields},
    {0, NULL},
};

static PyType_Spec reached_spec = {
    .name = "_kernel.Reached", .basicsize = sizeof(Reached), .flags = Py_TPFLAGS_DEFAULT,
    .slots = reached_slots,
};

static PyMethodDef methods[] = {
    {"best", best, METH_VARARGS, best_doc},
    {"tighten", tighten, METH_VARARGS, tighten_doc},
    {"subtract", subtract, METH_VARARGS, subtract_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernel", .m_size = -1, .m_methods = methods,
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
        || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    Py_XDECREF(bounds_type);
    Py_XDECREF(reached_type);
    return module;
}
