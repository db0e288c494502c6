/* The kubelet search on a plain node: admission_orders.py on the states of plain_model.py. */

#include "search.h"

/* How a search ends. */
enum { ADMITTED, REFUSED, ENDANGERS, UNKNOWN };

void states_clear(States *states)
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

int states_add(States *states, const int64_t *words)
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

int admit(const Reached *reached, const Kind *kind, int64_t *state)
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

Py_ssize_t read_kind(const Reached *reached, const int64_t *needs, Py_ssize_t at, Py_ssize_t end,
                     Kind *kind)
{
    if (at >= end || needs[at] < 0 || needs[at] > (end - at - 1) / (1 + reached->fields))
        return -1;
    kind->containers = needs[at], kind->needs = needs + at + 1;
    return at + 1 + kind->containers * (1 + reached->fields);
}

/* Read the needs of each kind; return where those of other pods begin, -1 for a misfit. */
static Py_ssize_t read_kinds(Reached *reached)
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
    return at;
}

PyDoc_STRVAR(reached_doc,
"Reached(bases, needs, counts, zones, fields, budget, ends=None)\n--\n\n"
"The states that pending pods may make of a node with `bases` [base, zone, field], as\n"
"`reachable_states` finds them. `needs` are those of each kind of pod: the number of containers,\n"
"and of each the mask of zones that could hold it and its amounts [field]. `counts` [kind, 2] are\n"
"how many pods are pending, and whether they are known to run. `left` is the rest of the budget,\n"
"negative if it ended. With `ends`, pods have ended: `search_ends.c`.");

/* Follow every order of the pending pods. Return 1 if the budget ended. */
static int reach(Reached *reached)
{
    States *states = &reached->states;
    const int64_t *bases = reached->arrays.views[0].buf;
    Py_ssize_t words = length(&reached->arrays, 0, 0);
    int64_t all_pending = reached->scratch[states->width - 1];
    int ends = 0;
    for (Py_ssize_t at = 0; at < words && !ends; at += states->width - 1) {
        memcpy(reached->scratch, bases + at, (size_t)(states->width - 1) * sizeof(int64_t));
        reached->scratch[states->width - 1] = all_pending;
        ends = states_add(states, reached->scratch);
    }
    while (states->left && !ends)
        ends = explore(reached, states, states->unexplored[--states->left], 1);
    return ends;
}

static int reached_init(PyObject *self, PyObject *args, PyObject *named)
{
    static const Form forms[] = {{1, 8, 0}, {1, 8, 0}, {1, 8, 0}};
    Reached *reached = (Reached *)self;
    PyObject *objects[3], *given = NULL;
    if (named || reached->scratch != NULL || !PyArg_ParseTuple(
            args, "OOOnnL|O", &objects[0], &objects[1], &objects[2], &reached->zones,
            &reached->fields, &reached->left, &given)
        || take(&reached->arrays, objects, forms, 3) < 0)
        return -1;
    reached->states.width = reached->zones * reached->fields + 1;
    Py_ssize_t others = -1;
    if (reached->zones >= 1 && reached->zones <= MASK_ZONES && reached->fields >= 1
        && reached->left >= 0 && reached->left < INT32_MAX
        && length(&reached->arrays, 0, 0) % (reached->states.width - 1) == 0)
        others = read_kinds(reached);
    if (others < 0)
        return misfit(&reached->arrays);
    if (reached->scratch == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int ends = given != NULL ? reach_after_ends(reached, given, others) : reach(reached);
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

PyType_Spec reached_spec = {
    .name = "_kernel.Reached", .basicsize = sizeof(Reached), .flags = Py_TPFLAGS_DEFAULT,
    .slots = reached_slots,
};
