/* The kubelet search if pods ended: ends.py on the states of plain_model.py.
 *
 * A state is what is free [zone, field], what each pod took that came since the report and will end
 * [taker, zone, field], and a bit set of the transitions that are ahead.
 */

#include "search.h"

/* Transitions of a search, which are bits of a word. */
#define MOST_STEPS 62

/* The columns of `steps`: the pod, whether it ends, the steps that may have happened before this
 * one was in the log, those that must come first, and those that are surely over after it. */
enum { POD, ENDS, BEGUN, BEFORE, OVER, STEP };

/* The columns of `pods`: its steps, the kind of a pending pod that may be rejected, whether the
 * report lists it, and what is known: it has run or came since the report, and it ended. The last
 * has the place of what it takes, if it ends. */
enum { OF, KIND, LISTED, KNOWN, ENDED, TAKER, POD_COLUMNS };

typedef struct {
    Reached *reached;
    Arrays arrays;
    const int64_t *steps, *pods, *held, *sizes;
    Py_ssize_t step_count, pod_count, amounts;
    int64_t everything, admissions, optional;
    Kind *needs;
    States states;
    int64_t *scratch;
} Search;

static int next_steps(const Search *search, int64_t ahead, int *steps)
{
    int count = 0, first = 0;
    if (!ahead)
        return 0;
    while (!(ahead >> first & 1))
        first++;
    int64_t possible = ahead & search->steps[first * STEP + BEGUN];
    for (int step = 0; step < search->step_count; step++)
        if (possible & search->admissions & (int64_t)1 << step)
            steps[count++] = step;
    int admissions = count;
    for (int step = 0; step < search->step_count; step++) {
        int64_t is_end = possible & ~search->admissions & (int64_t)1 << step;
        if (is_end && !(search->steps[step * STEP + BEFORE] & ahead)) {
            steps[count++] = step;
            /* The order of several ends between two admissions does not matter. */
            if (!admissions)
                break;
        }
    }
    return count;
}

/* Whether the search takes more than the budget in any states. */
static int exceeds(Search *search)
{
    States sets = {.width = 1};
    int steps[MOST_STEPS];
    long long count = 0;
    int failed = states_add(&sets, &search->everything);
    while (!failed && sets.left && count <= search->reached->left) {
        int64_t ahead = sets.words[sets.unexplored[--sets.left]];
        int nexts = next_steps(search, ahead, steps);
        for (int at = 0; at < nexts && !failed; at++) {
            count += !search->steps[steps[at] * STEP + ENDS];
            int64_t still_ahead = ahead & ~search->steps[steps[at] * STEP + OVER];
            failed = states_add(&sets, &still_ahead);
        }
    }
    states_clear(&sets);
    return failed ? -1 : count > search->reached->left;
}

static void copy_state(Search *search, Py_ssize_t number)
{
    memcpy(search->scratch, search->states.words + number * search->states.width,
           (size_t)search->states.width * sizeof(int64_t));
}

static int add_with(Search *search, int64_t ahead)
{
    search->scratch[search->states.width - 1] = ahead;
    return states_add(&search->states, search->scratch);
}

static int after_admission(Search *search, Py_ssize_t number, int step, int64_t ahead)
{
    int64_t pod_number = search->steps[step * STEP + POD];
    const int64_t *pod = search->pods + pod_number * POD_COLUMNS;
    int64_t later = ahead & ~((int64_t)1 << step);
    copy_state(search, number);
    int is_admitted = admit(search->reached, &search->needs[pod_number], search->scratch);
    if (is_admitted) {
        if (pod[ENDED]) {
            const int64_t *before = search->states.words + number * search->states.width;
            int64_t *taken = search->scratch + (1 + pod[TAKER]) * search->amounts;
            for (Py_ssize_t at = 0; at < search->amounts; at++)
                taken[at] = before[at] - search->scratch[at];
        }
        if (add_with(search, later) < 0)
            return -1;
    }
    if (pod[KNOWN] || (is_admitted && !pod[ENDED]))
        return 0;
    copy_state(search, number);
    if (pod[ENDED]) /* it may have come and gone before the report */
        return add_with(search, ahead & ~pod[OF]);
    if (!(later & ~search->optional))
        search->reached->kinds[pod[KIND]].rejected = 1;
    return add_with(search, later);
}

static int after_end(Search *search, Py_ssize_t number, int step, int64_t ahead)
{
    int64_t pod_number = search->steps[step * STEP + POD];
    const int64_t *pod = search->pods + pod_number * POD_COLUMNS;
    copy_state(search, number);
    for (Py_ssize_t at = 0; at < search->amounts; at++) {
        int64_t *free = search->scratch + at;
        if (pod[LISTED]) {
            int64_t room = search->sizes[at] - *free;
            int64_t held = search->held[pod_number * search->amounts + at];
            if (held < room)
                room = held;
            *free += room > 0 ? room : 0;
        } else {
            int64_t *taken = free + (1 + pod[TAKER]) * search->amounts;
            *free += *taken;
            *taken = 0;
        }
    }
    return add_with(search, ahead & ~((int64_t)1 << step));
}

/* Add what may follow a state. Return 1 if the budget ended. */
static int follow(Search *search, Py_ssize_t number)
{
    int64_t ahead = search->states.words[(number + 1) * search->states.width - 1];
    int steps[MOST_STEPS], count = next_steps(search, ahead, steps), failed = 0;
    for (int at = 0; at < count && !failed; at++) {
        if (search->steps[steps[at] * STEP + ENDS])
            failed = after_end(search, number, steps[at], ahead);
        else if (search->reached->left-- <= 0)
            return 1;
        else
            failed = after_admission(search, number, steps[at], ahead);
    }
    return failed;
}

/* Keep the states in which only unnecessary transitions are ahead, with the pods of each kind. */
static int keep(Search *search)
{
    Reached *reached = search->reached;
    for (Py_ssize_t number = 0; number < search->states.count; number++) {
        const int64_t *state = search->states.words + number * search->states.width;
        int64_t ahead = state[search->states.width - 1], pending = 0;
        if (ahead & ~search->optional)
            continue;
        for (Py_ssize_t at = 0; at < search->pod_count; at++) {
            const int64_t *pod = search->pods + at * POD_COLUMNS;
            if (ahead & pod[OF])
                pending += reached->kinds[pod[KIND]].radix;
        }
        memcpy(reached->scratch, state, (size_t)search->amounts * sizeof(int64_t));
        reached->scratch[search->amounts] = pending;
        if (states_add(&reached->states, reached->scratch) < 0)
            return -1;
    }
    return 0;
}

static int run(Search *search)
{
    const int64_t *bases = search->reached->arrays.views[0].buf;
    Py_ssize_t words = length(&search->reached->arrays, 0, 0);
    int ends = words ? exceeds(search) : 0;
    if (ends > 0)
        search->reached->left = 0;
    for (Py_ssize_t at = 0; at < words && !ends; at += search->amounts) {
        memset(search->scratch, 0, (size_t)search->states.width * sizeof(int64_t));
        memcpy(search->scratch, bases + at, (size_t)search->amounts * sizeof(int64_t));
        ends = add_with(search, search->everything);
    }
    while (search->states.left && !ends)
        ends = follow(search, search->states.unexplored[--search->states.left]);
    if (ends > 0)
        search->reached->left = -1;
    return ends ? (ends < 0 ? -1 : 0) : keep(search);
}

/* Read the needs of the pods, and check all numbers that are used as places. */
static int read_pods(Search *search, Py_ssize_t others)
{
    const Reached *reached = search->reached;
    const int64_t *needs = reached->arrays.views[1].buf;
    Py_ssize_t end = length(&reached->arrays, 1, 0);
    search->needs = PyMem_Calloc((size_t)search->pod_count + 1, sizeof(Kind));
    if (search->needs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < search->pod_count; at++) {
        const int64_t *pod = search->pods + at * POD_COLUMNS;
        int is_optional = !pod[ENDED] && !pod[KNOWN];
        others = read_kind(reached, needs, others, end, &search->needs[at]);
        if (others < 0 || (is_optional && !all_within(pod + KIND, 1, 0, reached->kind_count)))
            return misfit(&search->arrays);
    }
    for (Py_ssize_t at = 0; at < search->step_count; at++)
        if (!all_within(search->steps + at * STEP + POD, 1, 0, search->pod_count))
            return misfit(&search->arrays);
    return others == end ? 0 : misfit(&search->arrays);
}

static int start(Search *search, PyObject *ends, Py_ssize_t others)
{
    static const Form forms[] = {{1, 8, 0}, {1, 8, 0}, {1, 8, 0}, {1, 8, 0}};
    const Reached *reached = search->reached;
    PyObject *objects[4];
    long long takers, admissions, optional;
    if (!PyArg_ParseTuple(ends, "OOOOLLL", &objects[0], &objects[1], &objects[2], &objects[3],
                          &takers, &admissions, &optional)
        || take(&search->arrays, objects, forms, 4) < 0)
        return -1;
    const Arrays *arrays = &search->arrays;
    search->steps = arrays->views[0].buf, search->pods = arrays->views[1].buf;
    search->held = arrays->views[2].buf, search->sizes = arrays->views[3].buf;
    search->amounts = reached->zones * reached->fields;
    search->step_count = length(arrays, 0, 0) / STEP;
    search->pod_count = length(arrays, 1, 0) / POD_COLUMNS;
    search->admissions = admissions, search->optional = optional;
    if (search->step_count > MOST_STEPS || length(arrays, 0, 0) % STEP
        || length(arrays, 1, 0) % POD_COLUMNS || takers < 0 || takers > search->pod_count
        || length(arrays, 2, 0) != search->pod_count * search->amounts
        || length(arrays, 3, 0) != search->amounts)
        return misfit(&search->arrays);
    search->everything = ((int64_t)1 << search->step_count) - 1;
    search->states.width = search->amounts * (1 + (Py_ssize_t)takers) + 1;
    search->scratch = PyMem_Calloc((size_t)search->states.width, sizeof(int64_t));
    if (search->scratch == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < search->pod_count; at++)
        if (!all_within(search->pods + at * POD_COLUMNS + TAKER, 1, 0, takers ? takers : 1))
            return misfit(&search->arrays);
    return read_pods(search, others);
}

int reach_after_ends(Reached *reached, PyObject *ends, Py_ssize_t others)
{
    Search search = {.reached = reached};
    int result = start(&search, ends, others);
    if (!result)
        result = run(&search);
    states_clear(&search.states);
    PyMem_Free(search.scratch);
    PyMem_Free(search.needs);
    release(&search.arrays);
    return result;
}
