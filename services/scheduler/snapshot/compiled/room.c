/* The score of a request in one zone: keep_room.py and room.py.
 *
 * Numbers are doubles. They are exact as in room.py: a quotient of integers below 2^53 cannot cross
 * an integer when it is rounded, and room is below 2^24.
 */

#include "kernel.h"

/* As in room.py and keep_room.py. */
#define UNITS 64
#define ONE 4096
#define MOST_ROOM 1024
#define GRAIN 1024
#define SHARE 16
#define BEST 100

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
int64_t score_at(const Room *room, Py_ssize_t position, double lost_besides)
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

/* Whether the largest zone of a node is too small for each amount of some class. */
int may_be_wide(const Room *room, Py_ssize_t capacity, Py_ssize_t slot)
{
    for (Py_ssize_t pair = 0; pair < room->pairs; pair++) {
        const double *whole = room->whole + room->pair_rows[pair] * room->width;
        room->most[pair] = 1;
        for (Py_ssize_t at = slot; at < room->width && room->most[pair]; at += capacity)
            room->most[pair] = whole[at] < room->amounts[pair];
    }
    for (Py_ssize_t number = 0; number < room->classes; number++) {
        int is_small = 1;
        for (Py_ssize_t turn = 0; turn < room->turns && is_small; turn++)
            is_small = room->most[room->pair_of[turn * room->classes + number]];
        if (is_small)
            return 1;
    }
    return 0;
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

PyType_Spec room_spec = {
    .name = "_kernel.Room", .basicsize = sizeof(Room), .flags = Py_TPFLAGS_DEFAULT,
    .slots = room_slots,
};
