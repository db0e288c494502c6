/* Scores after landing, for many zones in one call: `KeepRoom` in keep_room.py and room.py, whose
 * plain form is the reference.
 *
 * Numbers are doubles. They are exact as in room.py: a quotient of integers below 2^53 cannot cross
 * an integer when it is rounded, and room is below 2^24.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

/* Raised with every change of a signature, so that a module of another version is not used. */
#define INTERFACE 1

/* As in room.py and keep_room.py. */
#define UNITS 64
#define ONE 4096
#define MOST_ROOM 1024
#define GRAIN 1024
#define SHARE 16
#define BEST 100

/* Take a C-contiguous buffer of 8-byte items with this many dimensions. */
static int take(PyObject *object, Py_buffer *view, int dimensions, int writable)
{
    int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0)
        return -1;
    if (view->ndim == dimensions && view->itemsize == 8)
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
"Write the score of `request` [row] in each zone of `positions` into `scores`. `free` (int64) and\n"
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
        if (take(objects[taken], &views[taken], dimensions[taken], taken == SCORES) < 0)
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
        fits = positions[index] >= 0 && positions[index] < room.width;
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

static PyMethodDef methods[] = {
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
