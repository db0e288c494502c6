/* The least spread that a prediction may find: least_spread.py. */

#include "kernel.h"

/* As in zone_distances.py and ranks.py. */
#define FAR 1024
#define QUARTERS 4
#define WIDEST ((1 << 16) - 1)

enum {
    FREE_MIN, FREE_MAX, WHOLE, ZONE_COUNTS, NEAREST, DISTANCES, MACHINES, COUNTS_CPUS, IS_OPEN,
    AMOUNTS, TOGETHER, LOOSE, IS_LISTED, ORDER, DEVICES, COUNT
};

static int64_t in_zone(const Spread *spread, const int64_t *free, Py_ssize_t row, Py_ssize_t zone,
                       Py_ssize_t slot)
{
    return free[(row * spread->all_zones + zone) * spread->capacity + slot];
}

/* Whether a zone has these amounts [row] of the first rows in order: memory, then the others. */
static int zone_holds(const Spread *spread, const int64_t *free, const int64_t *least,
                      Py_ssize_t rows, Py_ssize_t zone, Py_ssize_t slot)
{
    for (Py_ssize_t at = 0; at < rows; at++)
        if (in_zone(spread, free, spread->order[at], zone, slot) < least[spread->order[at]])
            return 0;
    return 1;
}

/* How many of the freest zones hold an amount of a resource; all of them if that is not enough. */
static Py_ssize_t freest_zones(const Spread *spread, Py_ssize_t row, int64_t amount,
                               Py_ssize_t zones, Py_ssize_t slot)
{
    int64_t freest[MASK_ZONES], total;
    Py_ssize_t count = 1;
    for (Py_ssize_t zone = 0; zone < zones; zone++) {
        int64_t free = in_zone(spread, spread->free_max, row, zone, slot);
        Py_ssize_t at = zone;
        for (; at > 0 && freest[at - 1] < free; at--)
            freest[at] = freest[at - 1];
        freest[at] = free > 0 ? free : 0;
    }
    for (total = freest[0]; total < amount && count < zones; count++)
        total += freest[count];
    return count;
}

/* How many zones at least hold a part; all of them if that is not enough. */
static Py_ssize_t fewest_zones(const Spread *spread, Py_ssize_t part, Py_ssize_t zones,
                               Py_ssize_t slot)
{
    const int64_t *amounts = spread->amounts + part * spread->rows;
    const int64_t *loose = spread->loose + part * spread->rows;
    Py_ssize_t fewest = 1;
    if (!spread->is_listed[part])
        return zones;
    for (Py_ssize_t row = 0; row < spread->rows; row++) {
        int64_t with_some = 0;
        for (Py_ssize_t zone = 0; loose[row] && zone < zones; zone++)
            with_some += in_zone(spread, spread->free_max, row, zone, slot) > 0;
        with_some = with_some < loose[row] ? with_some : loose[row];
        fewest = with_some > fewest ? (Py_ssize_t)with_some : fewest;
    }
    for (Py_ssize_t zone = 0; zone < zones; zone++)
        if (zone_holds(spread, spread->free_max, amounts, spread->rows, zone, slot))
            return fewest;
    fewest = fewest < 2 ? 2 : fewest;
    for (Py_ssize_t row = 0; row < spread->rows; row++)
        if (amounts[row] != NOTHING) {
            Py_ssize_t count = freest_zones(spread, row, amounts[row], zones, slot);
            fewest = count > fewest ? count : fewest;
        }
    return fewest;
}

static int64_t nearness(const Spread *spread, uint64_t mask, Py_ssize_t zones, Py_ssize_t slot)
{
    const int64_t *distances =
        spread->distances + spread->machines[slot] * spread->stride * spread->stride;
    int64_t total = 0, pairs = 0;
    for (Py_ssize_t zone = 0; zone < zones; zone++)
        for (Py_ssize_t other = 0; other < zones; other++)
            if (zone != other && mask >> zone & mask >> other & 1)
                total += distances[zone * spread->stride + other], pairs++;
    total = pairs ? total * QUARTERS / pairs : 0;
    return total < FAR - 1 ? total : FAR - 1;
}

/* The zones of CPUs by counts: whole zones first, then those with the fewest free. */
static uint64_t packed_zones(const Spread *spread, int64_t amount, Py_ssize_t zones,
                             Py_ssize_t slot)
{
    uint64_t mask = 0, left = 0;
    for (Py_ssize_t zone = 0; zone < zones; zone++) {
        int64_t free = in_zone(spread, spread->free_max, spread->cpu, zone, slot);
        int64_t size = (int64_t)spread->whole[(spread->cpu * spread->all_zones + zone)
                                              * spread->capacity + slot];
        if (0 < size && size <= amount && free >= size)
            amount -= free, mask |= (uint64_t)1 << zone;
        else if (free > 0)
            left |= (uint64_t)1 << zone;
    }
    while (amount > 0 && left) {
        Py_ssize_t fullest = NOWHERE;
        int64_t least = 0;
        for (Py_ssize_t zone = 0; zone < zones; zone++) {
            int64_t free = in_zone(spread, spread->free_max, spread->cpu, zone, slot);
            if (left >> zone & 1 && (fullest == NOWHERE || free < least))
                fullest = zone, least = free;
        }
        amount -= least;
        mask |= (uint64_t)1 << fullest, left &= ~((uint64_t)1 << fullest);
    }
    return mask;
}

/* The zones of a part whose known zones are `mask`. */
static uint64_t with_further_zones(const Spread *spread, Py_ssize_t part, uint64_t mask,
                                   uint64_t cpus, Py_ssize_t zones, Py_ssize_t slot)
{
    const int64_t *loose = spread->loose + part * spread->rows;
    const int64_t *amounts = spread->amounts + part * spread->rows;
    for (Py_ssize_t at = 0; at < spread->devices; at++) {
        Py_ssize_t row = spread->device_rows[at];
        int64_t amount = loose[row] ? amounts[row] : 0;
        for (Py_ssize_t zone = 0; zone < zones && amount > 0; zone++)
            if (!(mask >> zone & 1) && in_zone(spread, spread->free_max, row, zone, slot) > 0)
                mask |= (uint64_t)1 << zone, amount--;
    }
    mask |= cpus;
    return mask ? mask : 1;
}

/* The zones one of which surely is among those of a part; 0 if it may have none of them. */
static uint64_t first_zones(const Spread *spread, Py_ssize_t part, Py_ssize_t zones,
                            Py_ssize_t slot)
{
    const int64_t *amounts = spread->amounts + part * spread->rows;
    const int64_t *together = spread->together + part * spread->rows;
    uint64_t every = zones < MASK_ZONES ? ((uint64_t)1 << zones) - 1 : ~(uint64_t)0, with_room = 0;
    int has_memory = 0, has_cpus = spread->cpu != NOWHERE && amounts[spread->cpu] != NOTHING;
    for (Py_ssize_t row = 0; row < spread->memory_rows; row++)
        has_memory |= amounts[spread->order[row]] != NOTHING;
    if (!has_memory)
        return has_cpus && !spread->counts_cpus[slot] ? every : 0;
    for (Py_ssize_t zone = 0; zone < zones; zone++) {
        if (zone_holds(spread, spread->free_max, amounts, spread->memory_rows, zone, slot))
            with_room |= (uint64_t)1 << zone;
        if (zone_holds(spread, spread->free_min, together, spread->memory_rows, zone, slot))
            return with_room | (uint64_t)1 << zone;
    }
    return every;
}

/* The fewest zones of a part under policy none, and the least nearness of so many. */
static Py_ssize_t zones_under_none(const Spread *spread, Py_ssize_t part, Py_ssize_t zones,
                                   Py_ssize_t slot, int64_t *near)
{
    int64_t cpu = spread->cpu == NOWHERE ? 0 : spread->amounts[part * spread->rows + spread->cpu];
    Py_ssize_t fewest = fewest_zones(spread, part, zones, slot), least = zones + 1;
    uint64_t first = first_zones(spread, part, zones, slot), cpus = 0;
    if (cpu > 0 && spread->counts_cpus[slot])
        cpus = packed_zones(spread, cpu, zones, slot);
    for (Py_ssize_t zone = 0; zone < (first ? zones : 1); zone++) {
        uint64_t known = first & (uint64_t)1 << zone;
        Py_ssize_t count = 0;
        if (first && !known)
            continue;
        uint64_t mask = with_further_zones(spread, part, known, cpus, zones, slot);
        for (uint64_t rest = mask; rest; rest &= rest - 1)
            count++;
        if (count > least)
            continue;
        int64_t distance = nearness(spread, mask, zones, slot);
        *near = count < least || distance < *near ? distance : *near;
        least = count;
    }
    if (least < fewest)
        *near = spread->nearest[(fewest - 1) * spread->capacity + slot];
    return least < fewest ? fewest : least;
}

int64_t least_spread(const Spread *spread, Py_ssize_t slot)
{
    int64_t further = 0, farthest = 0, least, widest;
    Py_ssize_t zones = (Py_ssize_t)spread->zone_counts[slot];
    zones = zones < spread->zones ? zones : spread->zones;
    if (zones < 2)
        return 0;
    for (Py_ssize_t part = 0; part < spread->parts; part++) {
        int64_t near;
        Py_ssize_t count;
        if (spread->is_none)
            count = zones_under_none(spread, part, zones, slot, &near);
        else {
            count = fewest_zones(spread, part, zones, slot);
            near = spread->nearest[(count - 1) * spread->capacity + slot];
        }
        further += count - 1;
        farthest = near > farthest ? near : farthest;
    }
    least = further * FAR + farthest;
    if (spread->is_none && spread->is_open[slot]) {
        uint64_t every = zones < MASK_ZONES ? ((uint64_t)1 << zones) - 1 : ~(uint64_t)0;
        widest = (zones - 1) * spread->parts * FAR + nearness(spread, every, zones, slot);
        least += least >= FAR ? FAR : 1;
        least = least < widest ? least : widest;
    }
    return least < WIDEST ? least : WIDEST;
}

PyDoc_STRVAR(spread_doc,
"Spread(free_min, free_max, whole, zone_counts, nearest, distances, machines, counts_cpus, is_open,\n"
"       amounts, together, loose, is_listed, order, devices, zones, memory_rows, cpu, is_none)\n"
"--\n\n"
"The least spread of a plan. By part and row: `amounts`, those of memory `together` with the parts\n"
"before it, and the most zones that `loose` devices widen it to. `order` has the rows, memory\n"
"first; `devices` are rows in order of name, `cpu` is -1 without one. `is_listed` is false for a\n"
"part that requests a resource without a row. `is_none`: see paragraph 2 of least_spread.py.");

static int spread_init(PyObject *self, PyObject *args, PyObject *named)
{
    static const Form forms[COUNT] = {
        {3, 8, 0}, {3, 8, 0}, {3, 8, 0}, {1, 8, 0}, {2, 8, 0}, {3, 8, 0}, {1, 4, 0}, {1, 1, 0},
        {1, 1, 0}, {2, 8, 0}, {2, 8, 0}, {2, 8, 0}, {1, 1, 0}, {1, 8, 0}, {1, 8, 0}};
    Spread *spread = (Spread *)self;
    Arrays *arrays = &spread->arrays;
    PyObject *objects[COUNT];
    if (named || arrays->count || !PyArg_ParseTuple(
            args, "OOOOOOOOOOOOOOOnnnp", &objects[FREE_MIN], &objects[FREE_MAX], &objects[WHOLE],
            &objects[ZONE_COUNTS], &objects[NEAREST], &objects[DISTANCES], &objects[MACHINES],
            &objects[COUNTS_CPUS], &objects[IS_OPEN], &objects[AMOUNTS], &objects[TOGETHER],
            &objects[LOOSE], &objects[IS_LISTED], &objects[ORDER], &objects[DEVICES],
            &spread->zones, &spread->memory_rows, &spread->cpu, &spread->is_none)
        || take(arrays, objects, forms, COUNT) < 0)
        return -1;
    const void *buffers[COUNT];
    for (int at = 0; at < COUNT; at++)
        buffers[at] = arrays->views[at].buf;
    spread->free_min = buffers[FREE_MIN], spread->free_max = buffers[FREE_MAX];
    spread->whole = buffers[WHOLE], spread->zone_counts = buffers[ZONE_COUNTS];
    spread->nearest = buffers[NEAREST], spread->distances = buffers[DISTANCES];
    spread->machines = buffers[MACHINES], spread->counts_cpus = buffers[COUNTS_CPUS];
    spread->is_open = buffers[IS_OPEN], spread->amounts = buffers[AMOUNTS];
    spread->together = buffers[TOGETHER], spread->loose = buffers[LOOSE];
    spread->is_listed = buffers[IS_LISTED], spread->order = buffers[ORDER];
    spread->device_rows = buffers[DEVICES], spread->devices = length(arrays, DEVICES, 0);
    spread->rows = length(arrays, FREE_MIN, 0), spread->all_zones = length(arrays, FREE_MIN, 1);
    spread->capacity = length(arrays, FREE_MIN, 2), spread->parts = length(arrays, AMOUNTS, 0);
    spread->stride = length(arrays, DISTANCES, 1);
    int sound = spread->zones >= 0 && spread->zones <= spread->all_zones
        && spread->zones <= MASK_ZONES && spread->zones <= spread->stride
        && length(arrays, NEAREST, 0) >= spread->zones
        && length(arrays, NEAREST, 1) == spread->capacity && spread->memory_rows >= 0
        && spread->memory_rows <= spread->rows && length(arrays, ORDER, 0) == spread->rows
        && all_within(spread->order, spread->rows, 0, spread->rows)
        && all_within(spread->device_rows, spread->devices, 0, spread->rows)
        && spread->cpu >= NOWHERE && spread->cpu < spread->rows
        && length(arrays, IS_LISTED, 0) == spread->parts
        && length(arrays, DISTANCES, 2) == spread->stride;
    for (int array = FREE_MAX; array <= WHOLE; array++)
        for (int dimension = 0; dimension < 3; dimension++)
            sound = sound && length(arrays, array, dimension) == length(arrays, FREE_MIN, dimension);
    for (int array = AMOUNTS; array <= LOOSE; array++)
        sound = sound && length(arrays, array, 0) == spread->parts
            && length(arrays, array, 1) == spread->rows;
    for (int array = MACHINES; array <= IS_OPEN; array++)
        sound = sound && length(arrays, array, 0) == spread->capacity;
    spread->is_ready = sound && length(arrays, ZONE_COUNTS, 0) == spread->capacity;
    spread->machine_types = length(arrays, DISTANCES, 0);
    return spread->is_ready ? 0 : misfit(arrays);
}

static void spread_free(PyObject *self)
{
    release(&((Spread *)self)->arrays);
    discard(self);
}

/* Whether least_spread may be asked for a slot: the arrays of machines grow with new types. */
int spread_has(const Spread *spread, Py_ssize_t slot)
{
    return spread->is_ready && slot >= 0 && slot < spread->capacity
        && spread->machines[slot] >= 0 && spread->machines[slot] < spread->machine_types;
}

PyDoc_STRVAR(spread_least_doc,
"least($self, slots, spreads, /)\n--\n\n"
"Write the least spread of the nodes in `slots` into `spreads`.");

static PyObject *spread_least(PyObject *self, PyObject *args)
{
    static const Form forms[] = {{1, 8, 0}, {1, 8, 1}};
    PyObject *objects[2];
    Arrays arrays = {0};
    const Spread *spread = (Spread *)self;
    if (!PyArg_ParseTuple(args, "OO", &objects[0], &objects[1])
        || take(&arrays, objects, forms, 2) < 0)
        return NULL;
    const int64_t *slots = arrays.views[0].buf;
    int64_t *spreads = arrays.views[1].buf;
    Py_ssize_t count = length(&arrays, 0, 0);
    int sound = length(&arrays, 1, 0) == count;
    for (Py_ssize_t index = 0; index < count && sound; index++) {
        sound = spread_has(spread, slots[index]);
        spreads[index] = sound ? least_spread(spread, slots[index]) : 0;
    }
    if (!sound) {
        misfit(&arrays);
        return NULL;
    }
    release(&arrays);
    return Py_NewRef(Py_None);
}

static PyMethodDef spread_methods[] = {
    {"least", spread_least, METH_VARARGS, spread_least_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot spread_slots[] = {
    {Py_tp_doc, (void *)spread_doc},
    {Py_tp_init, (void *)spread_init},
    {Py_tp_dealloc, (void *)spread_free},
    {Py_tp_methods, spread_methods},
    {0, NULL},
};

PyType_Spec spread_spec = {
    .name = "_kernel.Spread", .basicsize = sizeof(Spread), .flags = Py_TPFLAGS_DEFAULT,
    .slots = spread_slots,
};
