/* What the files of the compiled kernel share: constants, arrays, and the types of room.c and
 * bounds.c. Each file is named after what it computes; the plain forms in Python are the reference.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

/* As in strategy.py, bounds.py and ranks.py. */
#define WORST 0
#define NOWHERE (-1)
#define NOTHING INT64_MIN
#define RULED_OUT (-(1 << 28))
#define OPTIMISTIC 357
/* Kinds of parts that are ranked; pods with more of them are ranked in Python. */
#define MOST_KINDS 32
/* Zones that a mask has. */
#define MASK_ZONES 64

/* -- arrays.c: C-contiguous buffers that stay taken as long as their owner lives */

enum { MOST_ARRAYS = 15 };

typedef struct {
    int count;
    Py_buffer views[MOST_ARRAYS];
} Arrays;

/* How many dimensions an array has, the size of its items, and whether it is written to. */
typedef struct {
    int dimensions, size, writable;
} Form;

void release(Arrays *arrays);
int misfit(Arrays *arrays);
int take(Arrays *arrays, PyObject *const *objects, const Form *forms, int count);
int all_within(const int64_t *values, Py_ssize_t count, int64_t low, int64_t end);
void discard(PyObject *self);

static inline Py_ssize_t length(const Arrays *arrays, int at, int dimension)
{
    return arrays->views[at].shape[dimension];
}

/* -- room.c: the score of a request in one zone */

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

extern PyType_Spec room_spec;
extern PyTypeObject *room_type;
int64_t score_at(const Room *room, Py_ssize_t position, double lost_besides);
int may_be_wide(const Room *room, Py_ssize_t capacity, Py_ssize_t slot);

/* -- bounds.c: the bounds of one plan, free [row, zone, node] */

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

extern PyType_Spec bounds_spec;
extern PyTypeObject *bounds_type;
void bound_node(const Bounds *bounds, Py_ssize_t slot, Found *found, Py_ssize_t index,
                char *candidate, char *sure);

static inline int64_t free_at(const Bounds *bounds, const int64_t *free, Py_ssize_t row,
                              Py_ssize_t zone, Py_ssize_t slot)
{
    return free[(row * bounds->all_zones + zone) * bounds->capacity + slot];
}

static inline int holds(const Bounds *bounds, const int64_t *free, const int64_t *least,
                        Py_ssize_t zone, Py_ssize_t slot)
{
    for (Py_ssize_t row = 0; row < bounds->rows; row++)
        if (free_at(bounds, free, row, zone, slot) < least[row])
            return 0;
    return 1;
}

/* -- unaligned.c: the bounds of one plan under none or best-effort */

typedef struct {
    PyObject_HEAD
    Arrays arrays;
    const int64_t *free_min, *free_max, *totals, *sums, *taken, *memory;
    Py_ssize_t rows, all_zones, capacity, zones;
    int is_possible, may_be_sure, needs_search, has_memory, memory_fits;
} Unaligned;

extern PyType_Spec unaligned_spec;
void bound_unaligned(const Unaligned *plan, Py_ssize_t slot, char *candidate, char *sure);

/* -- spread.c: the least spread of one plan */

typedef struct {
    PyObject_HEAD
    Arrays arrays;
    const int64_t *free_min, *free_max, *zone_counts, *nearest, *distances;
    const int64_t *amounts, *together, *loose, *order, *device_rows;
    const double *whole;
    const int32_t *machines;
    const char *counts_cpus, *is_open, *is_listed;
    Py_ssize_t rows, all_zones, capacity, zones, parts, devices, memory_rows, cpu;
    Py_ssize_t machine_types, stride;
    int is_none, is_ready;
} Spread;

extern PyType_Spec spread_spec;
extern PyTypeObject *spread_type;
int spread_has(const Spread *spread, Py_ssize_t slot);
int64_t least_spread(const Spread *spread, Py_ssize_t slot);

/* -- ranks.c: the nodes of one plan that changed */

extern const char bounds_rank_doc[], bounds_best_zone_doc[], unaligned_rank_doc[];
PyObject *unaligned_rank(PyObject *self, PyObject *args);
PyObject *bounds_rank(PyObject *self, PyObject *args);
PyObject *bounds_best_zone(PyObject *self, PyObject *args);

/* -- score_cache.c, node_arrays.c and search.c */

extern PyMethodDef score_cache_methods[], node_arrays_methods[];
extern PyType_Spec reached_spec;
