/* What every decision computes for many nodes: the bounds of bounds.py, and the scores after landing
 * of keep_room.py and room.py. The plain forms there are the reference.
 *
 * Numbers are doubles. They are exact as in room.py: a quotient of integers below 2^53 cannot cross
 * an integer when it is rounded, and room is below 2^24.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

/* Raised with every change of a signature, so that a module of another version is not used. */
#define INTERFACE 2

/* As in room.py and keep_room.py. */
#define UNITS 64
#define ONE 4096
#define MOST_ROOM 1024
#define GRAIN 1024
#define SHARE 16
#define BEST 100
#define WORST 0
/* As in bounds.py. */
#define NOWHERE (-1)

/* Take a C-contiguous buffer of items of this size with this many dimensions. */
static int take(PyObject *object, Py_buffer *view, int dimensions, int size, int writable)
{
    int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0)
        return -1;
    if (view->ndim == dimensions && view->itemsize == size)
        return 0;
    PyErr_SetString(PyExc_ValueError, "an array has another shape or type than the kernel takes");
    PyBuffer_Release(view);
    return -1;
}

/* The arguments of one call. A pair is an amount of a resource that classes request. Each class has
 * as many turns as the longest; `pair_of` [turn, class] is the pair of each. */
typedef struct {
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

/* The score of the request in the zone at this position, which holds it. */
static int64_t score_at(const Room *room, Py_ssize_t position, double lost_besides)
{
    double shares = 0, listed = 0;
    if (position == NOWHERE)
        return WORST;
    for (Py_ssize_t row = 0; row < room->rows; row++) {
        Py_ssize_t at = row * room->width + position;
        if (room->request[row] > 0 && room->whole[at] > 0) {
            double rest = (double)(room->free[at] - room->request[row]);
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

PyDoc_STRVAR(room_scores_doc,
"room_scores(free, whole, positions, request, pair_rows, amounts, pair_of, weights, levels,\n"
"            scores, lost_anywhere, lost_besides)\n--\n\n"
"Write the score of `request` [row] in each zone of `positions` into `scores`; a position of -1\n"
"scores 0. `free` (int64) and\n"
"`whole` (float64) are [row, position]; `lost_besides` is [position] or None.");

static PyObject *room_scores(PyObject *module, PyObject *args)
{
    enum { FREE, WHOLE, POSITIONS, REQUEST, PAIR_ROWS, AMOUNTS, PAIR_OF, WEIGHTS, LEVELS, SCORES,
           BESIDES, COUNT };
    static const int dimensions[COUNT] = {2, 2, 1, 1, 1, 1, 2, 1, 1, 1, 1};
    PyObject *objects[COUNT], *result = NULL;
    Py_buffer views[COUNT];
    Room room = {0};
    int taken = 0, wanted = COUNT;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOdO", &objects[FREE], &objects[WHOLE],
                          &objects[POSITIONS], &objects[REQUEST], &objects[PAIR_ROWS],
                          &objects[AMOUNTS], &objects[PAIR_OF], &objects[WEIGHTS],
                          &objects[LEVELS], &objects[SCORES], &room.lost_anywhere,
                          &objects[BESIDES]))
        return NULL;
    if (objects[BESIDES] == Py_None)
        wanted = BESIDES;
    for (; taken < wanted; taken++)
        if (take(objects[taken], &views[taken], dimensions[taken], 8, taken == SCORES) < 0)
            goto release;
    room.free = views[FREE].buf;
    room.whole = views[WHOLE].buf;
    room.request = views[REQUEST].buf;
    room.pair_rows = views[PAIR_ROWS].buf;
    room.amounts = views[AMOUNTS].buf;
    room.pair_of = views[PAIR_OF].buf;
    room.weights = views[WEIGHTS].buf;
    room.levels = views[LEVELS].buf;
    room.rows = views[FREE].shape[0];
    room.width = views[FREE].shape[1];
    room.pairs = views[PAIR_ROWS].shape[0];
    room.turns = views[PAIR_OF].shape[0];
    room.classes = views[WEIGHTS].shape[0];
    room.level_count = views[LEVELS].shape[0];
    const int64_t *positions = views[POSITIONS].buf;
    const double *besides = wanted == COUNT ? views[BESIDES].buf : NULL;
    int64_t *scores = views[SCORES].buf;
    Py_ssize_t count = views[POSITIONS].shape[0];
    int fits = views[WHOLE].shape[0] == room.rows && views[WHOLE].shape[1] == room.width
        && views[REQUEST].shape[0] == room.rows && views[AMOUNTS].shape[0] == room.pairs
        && views[PAIR_OF].shape[1] == room.classes && views[SCORES].shape[0] == count
        && (!besides || views[BESIDES].shape[0] == count);
    for (Py_ssize_t pair = 0; pair < room.pairs && fits; pair++)
        fits = room.pair_rows[pair] >= 0 && room.pair_rows[pair] < room.rows;
    for (Py_ssize_t at = 0; at < room.turns * room.classes && fits; at++)
        fits = room.pair_of[at] >= 0 && room.pair_of[at] < room.pairs;
    for (Py_ssize_t index = 0; index < count && fits; index++)
        fits = positions[index] >= NOWHERE && positions[index] < room.width;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the kernel's arrays do not fit together");
        goto release;
    }
    room.free_of = PyMem_Malloc((size_t)(room.pairs + 1) * 2 * (sizeof(double) + sizeof(int32_t)));
    if (room.free_of == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    room.rest_of = room.free_of + room.pairs;
    room.most = (int32_t *)(room.rest_of + room.pairs);
    room.least = room.most + room.pairs;
    for (Py_ssize_t index = 0; index < count; index++)
        scores[index] = score_at(&room, positions[index], besides ? besides[index] : 0);
    PyMem_Free(room.free_of);
    result = Py_NewRef(Py_None);
release:
    while (taken--)
        PyBuffer_Release(&views[taken]);
    return result;
}

/* The arguments of one call: free [row, zone, node]. `times` has room for a count of each kind. */
typedef struct {
    const int64_t *free_min, *free_max, *slots, *least, *together, *smallest;
    Py_ssize_t rows, all_zones, capacity, zones, count, kinds, checks, *times;
    long long running;
    int has_rows, decides;
    int64_t *landing;
    char *candidates, *sure, *fits;
} Bounds;

static int holds(const Bounds *bounds, const int64_t *free, const int64_t *least, Py_ssize_t zone,
                 Py_ssize_t slot)
{
    for (Py_ssize_t row = 0; row < bounds->rows; row++)
        if (free[(row * bounds->all_zones + zone) * bounds->capacity + slot] < least[row])
            return 0;
    return 1;
}

static int fits_free_max(const Bounds *bounds, Py_ssize_t kinds, Py_ssize_t slot)
{
    for (Py_ssize_t kind = 0; kind < kinds; kind++) {
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
            int64_t free = bounds->free_max[(row * bounds->all_zones + zone) * bounds->capacity
                                            + slot];
            if (amount)
                times = free < amount ? 0 : free / amount < times ? free / amount : times;
        }
        room += times;
    }
    return room;
}

/* Return the position of the lowest zone that holds a part kind, and count all that do. */
static int64_t lowest_zone(const Bounds *bounds, Py_ssize_t kind, Py_ssize_t index)
{
    const int64_t *least = bounds->least + kind * bounds->rows;
    int64_t slot = bounds->slots[index], lowest = NOWHERE;
    bounds->times[kind] = 0;
    for (Py_ssize_t zone = 0; zone < bounds->zones; zone++) {
        int held = holds(bounds, bounds->free_min, least, zone, slot);
        if (bounds->fits)
            bounds->fits[(kind * bounds->zones + zone) * bounds->count + index] = (char)held;
        if (!held)
            continue;
        bounds->times[kind]++;
        if (lowest == NOWHERE)
            lowest = zone * bounds->capacity + slot;
        if (!bounds->fits && !bounds->checks)
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

static void bound_node(const Bounds *bounds, Py_ssize_t index)
{
    int64_t slot = bounds->slots[index];
    int necessary = bounds->has_rows;
    for (Py_ssize_t kind = 0; kind < bounds->kinds; kind++) {
        int64_t lowest = lowest_zone(bounds, kind, index);
        bounds->landing[kind * bounds->count + index] = lowest;
        necessary &= lowest != NOWHERE;
    }
    int sure = bounds->decides && necessary;
    for (Py_ssize_t check = 0; check < bounds->checks && sure; check++)
        sure = finds_a_zone(bounds, check, slot);
    int candidate = necessary || (bounds->has_rows && fits_free_max(bounds, bounds->kinds, slot));
    if (candidate && !sure && bounds->running)
        candidate = room_for(bounds, bounds->running, slot) >= bounds->running;
    bounds->candidates[index] = (char)candidate;
    bounds->sure[index] = (char)sure;
}

/* Whether the arrays fit together and no index leads out of them. */
static int is_sound(const Bounds *bounds, const Py_buffer *least)
{
    int sound = bounds->zones >= 0 && bounds->zones <= bounds->all_zones
        && least->shape[0] == bounds->kinds + bounds->checks && least->shape[1] == bounds->rows;
    for (Py_ssize_t index = 0; index < bounds->count && sound; index++)
        sound = bounds->slots[index] >= 0 && bounds->slots[index] < bounds->capacity;
    for (Py_ssize_t check = 0; check < bounds->checks && sound; check++) {
        int64_t kind = bounds->together[2 * check + 1];
        sound = kind >= 0 && kind < bounds->kinds;
    }
    for (Py_ssize_t row = 0; row < bounds->rows && sound; row++)
        sound = bounds->smallest[row] >= 0;
    return sound;
}

PyDoc_STRVAR(zone_bounds_doc,
"zone_bounds(free_min, free_max, slots, least, together, smallest, landing, candidates, sure,\n"
"            fits, zones, running, has_rows, decides)\n--\n\n"
"Write the bounds of the nodes in `slots` into `landing` [kind, node], `candidates` and `sure`\n"
"[node], and `fits` [kind, zone, node] if it is not None. `least` [kind or together, row] is what\n"
"a zone must have; `together` [together, 2] is how many parts come before, and the part's kind.");

static PyObject *zone_bounds(PyObject *module, PyObject *args)
{
    enum { FREE_MIN, FREE_MAX, SLOTS, LEAST, TOGETHER, SMALLEST, LANDING, CANDIDATES, SURE, FITS,
           COUNT };
    static const int dimensions[COUNT] = {3, 3, 1, 2, 2, 1, 2, 1, 1, 3};
    PyObject *objects[COUNT], *result = NULL;
    Py_buffer views[COUNT];
    Bounds bounds = {0};
    int taken = 0, wanted = COUNT;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOnLpp", &objects[FREE_MIN], &objects[FREE_MAX],
                          &objects[SLOTS], &objects[LEAST], &objects[TOGETHER],
                          &objects[SMALLEST], &objects[LANDING], &objects[CANDIDATES],
                          &objects[SURE], &objects[FITS], &bounds.zones, &bounds.running,
                          &bounds.has_rows, &bounds.decides))
        return NULL;
    if (objects[FITS] == Py_None)
        wanted = FITS;
    for (; taken < wanted; taken++)
        if (take(objects[taken], &views[taken], dimensions[taken], taken > LANDING ? 1 : 8,
                 taken >= LANDING) < 0)
            goto release;
    bounds.free_min = views[FREE_MIN].buf;
    bounds.free_max = views[FREE_MAX].buf;
    bounds.slots = views[SLOTS].buf;
    bounds.least = views[LEAST].buf;
    bounds.together = views[TOGETHER].buf;
    bounds.smallest = views[SMALLEST].buf;
    bounds.landing = views[LANDING].buf;
    bounds.candidates = views[CANDIDATES].buf;
    bounds.sure = views[SURE].buf;
    bounds.fits = wanted == COUNT ? views[FITS].buf : NULL;
    const Py_ssize_t *free = views[FREE_MIN].shape, *free_max = views[FREE_MAX].shape;
    bounds.rows = free[0], bounds.all_zones = free[1], bounds.capacity = free[2];
    bounds.count = views[SLOTS].shape[0];
    bounds.kinds = views[LANDING].shape[0];
    bounds.checks = views[TOGETHER].shape[0];
    int alike = free[0] == free_max[0] && free[1] == free_max[1] && free[2] == free_max[2]
        && views[TOGETHER].shape[1] == 2 && views[SMALLEST].shape[0] == bounds.rows
        && views[LANDING].shape[1] == bounds.count && views[SURE].shape[0] == bounds.count
        && views[CANDIDATES].shape[0] == bounds.count;
    if (bounds.fits)
        alike = alike && views[FITS].shape[0] == bounds.kinds
            && views[FITS].shape[1] == bounds.zones && views[FITS].shape[2] == bounds.count;
    if (!alike || !is_sound(&bounds, &views[LEAST])) {
        PyErr_SetString(PyExc_ValueError, "the kernel's arrays do not fit together");
        goto release;
    }
    bounds.times = PyMem_Malloc((size_t)(bounds.kinds + 1) * sizeof(Py_ssize_t));
    if (bounds.times == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    for (Py_ssize_t index = 0; index < bounds.count; index++)
        bound_node(&bounds, index);
    PyMem_Free(bounds.times);
    result = Py_NewRef(Py_None);
release:
    while (taken--)
        PyBuffer_Release(&views[taken]);
    return result;
}

static PyMethodDef methods[] = {
    {"zone_bounds", zone_bounds, METH_VARARGS, zone_bounds_doc},
    {"room_scores", room_scores, METH_VARARGS, room_scores_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernel", .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    return module;
}
