/* What both forms of the kubelet search share: `search.c`, and `search_ends.c` if pods ended. */

#include "kernel.h"

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

void states_clear(States *states);

/* Add a state that is not in `states`, and explore it later. -1 without memory. */
int states_add(States *states, const int64_t *words);

/* Admit a pod: each container takes the lowest zone that has all it needs. Return 0 if one has no
 * zone. */
int admit(const Reached *reached, const Kind *kind, int64_t *state);

/* Read the needs of one kind at `at`; return where the next begins, -1 for a misfit. */
Py_ssize_t read_kind(const Reached *reached, const int64_t *needs, Py_ssize_t at, Py_ssize_t end,
                     Kind *kind);

/* Fill `states` of a search with these `ends`; `others` is where the needs of its pods begin. */
int reach_after_ends(Reached *reached, PyObject *ends, Py_ssize_t others);
