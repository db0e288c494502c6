/* The ranks of the nodes that changed: bulk.py. */

#include "kernel.h"

/* As in ranks.py. */
#define STEP 2048

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

/* The row of a pod class in the score cache, and what every plan asks of a node: the request
 * [row] free [row, slot], its profile [slot] among `members` [profile], and constraints [slot]. */
enum { FREE, REQUEST, PROFILES, MEMBERS, ALLOWED, SCORES, SURE, COUNT };

typedef struct {
    Arrays arrays;
    const int64_t *free, *request;
    const int32_t *profiles;
    const char *members, *allowed;
    int32_t *scores;
    char *sure;
    Py_ssize_t rows, capacity, count, profile_count;
} Row;

static int read_row(Row *row, PyObject *const *objects, Py_ssize_t capacity)
{
    static const Form forms[COUNT] = {{2, 8, 0}, {1, 8, 0}, {1, 4, 0}, {1, 1, 0},
                                      {1, 1, 0}, {1, 4, 1}, {1, 1, 1}};
    Arrays *arrays = &row->arrays;
    if (take(arrays, objects, forms, COUNT) < 0)
        return -1;
    row->free = arrays->views[FREE].buf, row->request = arrays->views[REQUEST].buf;
    row->profiles = arrays->views[PROFILES].buf, row->members = arrays->views[MEMBERS].buf;
    row->allowed = arrays->views[ALLOWED].buf, row->scores = arrays->views[SCORES].buf;
    row->sure = arrays->views[SURE].buf, row->count = length(arrays, SCORES, 0);
    row->rows = length(arrays, FREE, 0), row->capacity = length(arrays, FREE, 1);
    row->profile_count = length(arrays, MEMBERS, 0);
    if (row->rows != length(arrays, REQUEST, 0) || row->capacity != capacity
        || row->count > capacity || length(arrays, PROFILES, 0) < row->count
        || length(arrays, ALLOWED, 0) < row->count || length(arrays, SURE, 0) < row->count)
        return misfit(arrays);
    return 0;
}

/* Whether the node may take the pod if its zones do. */
static int node_fits(const Row *row, Py_ssize_t slot)
{
    for (Py_ssize_t at = 0; at < row->rows; at++)
        if (row->free[at * row->capacity + slot] < row->request[at])
            return 0;
    return row->allowed[slot];
}

/* Rank a node of which the plan's bounds are asked: return 0 if Python ranks it. */
typedef int (*Ranker)(const void *how, Py_ssize_t slot, char *candidate, char *sure,
                      int32_t *score);

/* Rank the nodes that are not sure at the highest score; return how many Python ranks. */
static Py_ssize_t rank_row(const Row *row, Ranker rank, const void *how)
{
    Py_ssize_t others = 0;
    for (Py_ssize_t slot = 0; slot < row->count; slot++) {
        int32_t profile = row->profiles[slot];
        if (row->scores[slot] != OPTIMISTIC || row->sure[slot])
            continue;
        char candidate = (char)node_fits(row, slot), sure = 0;
        int32_t score = RULED_OUT;
        if (profile < 0 || profile >= row->profile_count || !row->members[profile]
            || (candidate && !rank(how, slot, &candidate, &sure, &score))) {
            others++;
            continue;
        }
        row->scores[slot] = candidate ? score : RULED_OUT;
        row->sure[slot] = sure || !candidate;
    }
    return others;
}

const char bounds_rank_doc[] =
"rank($self, rooms, largest_parts, largest, uneven, free, request, profiles, members, allowed,\n"
"     scores, sure, /)\n--\n\n"
"Rank the nodes that are not `sure` at the highest score and whose profile [slot] is one of\n"
"`members` [profile]; return how many others there are. `rooms` are by kind of part; `request`\n"
"[row] is what a node must have `free` [row, slot]; `allowed` [slot] is where constraints let the\n"
"pod go. Under restricted, nodes are left to Python if `largest_parts` [row] exceed their `largest`\n"
"zone [row, slot], if they are `uneven` [slot], or if a demand class may need several zones.";

/* How an aligned plan is ranked; `largest_parts` is NULL if zones are always enough. */
typedef struct {
    const Bounds *bounds;
    Room *rooms[MOST_KINDS];
    const int64_t *largest_parts, *largest;
    const char *uneven;
} Aligned;

static int rank_aligned(const void *how, Py_ssize_t slot, char *candidate, char *sure,
                        int32_t *score)
{
    const Aligned *plan = how;
    const Bounds *bounds = plan->bounds;
    Found found = {.count = 1, .landing = bounds->landing};
    if (plan->largest_parts) {
        for (Py_ssize_t row = 0; row < bounds->rows; row++)
            if (plan->largest[row * bounds->capacity + slot] < plan->largest_parts[row])
                return 0;
        if (plan->uneven[slot]
            || (bounds->kinds && may_be_wide(plan->rooms[0], bounds->capacity, slot)))
            return 0;
    }
    bound_node(bounds, slot, &found, 0, candidate, sure);
    if (*candidate)
        *score = mean_score(bounds, plan->rooms, slot);
    return 1;
}

PyObject *bounds_rank(PyObject *self, PyObject *args)
{
    static const Form forms[] = {{1, 8, 0}, {2, 8, 0}, {1, 1, 0}};
    Aligned plan = {.bounds = (Bounds *)self};
    PyObject *objects[COUNT], *tuple, *restricted[3];
    Arrays arrays = {0};
    Row row = {0};
    if (!PyArg_ParseTuple(args, "O!OOOOOOOOOO", &PyTuple_Type, &tuple, &restricted[0],
                          &restricted[1], &restricted[2], &objects[FREE], &objects[REQUEST],
                          &objects[PROFILES], &objects[MEMBERS], &objects[ALLOWED],
                          &objects[SCORES], &objects[SURE]))
        return NULL;
    if (plan.bounds->times == NULL || !rooms_of(plan.bounds, tuple, plan.rooms)) {
        misfit(&arrays);
        return NULL;
    }
    if (restricted[0] != Py_None) {
        if (take(&arrays, restricted, forms, 3) < 0)
            return NULL;
        if (length(&arrays, 0, 0) != plan.bounds->rows || length(&arrays, 1, 0) != plan.bounds->rows
            || length(&arrays, 1, 1) != plan.bounds->capacity
            || length(&arrays, 2, 0) != plan.bounds->capacity) {
            misfit(&arrays);
            return NULL;
        }
        plan.largest_parts = arrays.views[0].buf, plan.largest = arrays.views[1].buf;
        plan.uneven = arrays.views[2].buf;
    }
    if (read_row(&row, objects, plan.bounds->capacity) < 0) {
        release(&arrays);
        return NULL;
    }
    Py_ssize_t others = rank_row(&row, rank_aligned, &plan);
    release(&row.arrays);
    release(&arrays);
    return PyLong_FromSsize_t(others);
}

const char unaligned_rank_doc[] =
"rank($self, bounds, spread, room, zone_free, zone_whole, offered, overstated, free, request,\n"
"     profiles, members, allowed, scores, sure, /)\n--\n\n"
"Rank the nodes as `Bounds.rank` does, each as one zone: `room` reads `zone_free` and `zone_whole`\n"
"[row, 1], which are written for each node; without one the score is 0. `spread` is None if nodes\n"
"are not ranked by it. `bounds` say under best-effort where each part surely finds a zone, except\n"
"on `overstated` nodes [slot]; else they are None.";

/* How a plan under none or best-effort is ranked. */
typedef struct {
    const Unaligned *plan;
    const Bounds *bounds;
    const Spread *spread;
    const Room *room;
    const Row *row;
    int64_t *free;
    double *whole;
    const int64_t *offered;
    const char *overstated;
} Whole;

/* The score of the whole node as one zone. */
static int32_t whole_score(const Whole *how, Py_ssize_t slot)
{
    for (Py_ssize_t at = 0; at < how->row->rows; at++) {
        int64_t offered = how->offered[at * how->row->capacity + slot];
        int64_t free = how->row->free[at * how->row->capacity + slot];
        free = free > 0 ? free : 0;
        how->free[at] = free < offered ? free : offered;
        how->whole[at] = (double)(offered > 1 ? offered : 1);
    }
    return (int32_t)score_at(how->room, 0, 0);
}

static int rank_unaligned(const void *how_, Py_ssize_t slot, char *candidate, char *sure,
                          int32_t *score)
{
    const Whole *how = how_;
    char is_single = 0, may_fit;
    bound_unaligned(how->plan, slot, candidate, sure);
    if (!*candidate)
        return 1;
    if (how->spread && !spread_has(how->spread, slot))
        return 0;
    *score = how->room ? whole_score(how, slot) : 0;
    if (how->spread) {
        Found found = {.count = 1, .landing = how->bounds ? how->bounds->landing : NULL};
        if (how->bounds && !how->overstated[slot])
            bound_node(how->bounds, slot, &found, 0, &may_fit, &is_single);
        *sure &= is_single;
        *score -= STEP * (int32_t)least_spread(how->spread, slot);
    }
    return 1;
}

PyObject *unaligned_rank(PyObject *self, PyObject *args)
{
    static const Form forms[] = {{2, 8, 1}, {2, 8, 1}, {2, 8, 0}, {1, 1, 0}};
    Row row = {0};
    Whole how = {.plan = (Unaligned *)self, .row = &row};
    PyObject *objects[COUNT], *own[4], *bounds, *spread, *room;
    Arrays arrays = {0};
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOOO", &bounds, &spread, &room, &own[0], &own[1],
                          &own[2], &own[3], &objects[FREE], &objects[REQUEST], &objects[PROFILES],
                          &objects[MEMBERS], &objects[ALLOWED], &objects[SCORES], &objects[SURE])
        || take(&arrays, own, forms, 4) < 0)
        return NULL;
    how.bounds = bounds != Py_None ? (Bounds *)bounds : NULL;
    how.spread = spread != Py_None ? (Spread *)spread : NULL;
    how.room = room != Py_None ? (Room *)room : NULL;
    how.free = arrays.views[0].buf, how.whole = arrays.views[1].buf;
    how.offered = arrays.views[2].buf, how.overstated = arrays.views[3].buf;
    int sound = how.plan->arrays.count > 0
        && (!how.bounds || (Py_TYPE(bounds) == bounds_type && how.bounds->times != NULL
                            && how.bounds->capacity == how.plan->capacity))
        && (!how.spread || Py_TYPE(spread) == spread_type)
        && (!how.room || (Py_TYPE(room) == room_type && how.room->free_of != NULL
                          && how.room->free == how.free && how.room->whole == how.whole));
    if (!sound) {
        misfit(&arrays);
        return NULL;
    }
    if (read_row(&row, objects, how.plan->capacity) < 0) {
        release(&arrays);
        return NULL;
    }
    for (int array = 0; array < 3; array++)
        sound = sound && length(&arrays, array, 0) == row.rows
            && length(&arrays, array, 1) == (array < 2 ? 1 : row.capacity);
    Py_ssize_t others = 0;
    if (sound && length(&arrays, 3, 0) == row.capacity)
        others = rank_row(&row, rank_unaligned, &how);
    else
        sound = 0;
    release(&row.arrays);
    if (!sound) {
        misfit(&arrays);
        return NULL;
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
