/* PyTorch's format: one pickled dictionary per rank. The few opcodes of protocol 2 that it needs are written here. What
 * torchfrtrace compares must be comparable: a group's calls begin with the first that all of its rings still have, and
 * records are counted from there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "observe/flight/flight.h"

#define WAY_CALLS UINT64_MAX

/* ---- pickle ------------------------------------------------------------------------------------------------------ */

static void add_op(struct ash_str *out, char op)
{
    ash_str_add(out, &op, 1);
}

static void add_le(struct ash_str *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        add_op(out, (char)(value >> (8 * i) & 255));
}

static void add_text(struct ash_str *out, const char *text)
{
    add_op(out, 'X');
    add_le(out, strlen(text), 4);
    ash_str_adds(out, text);
}

static void add_int(struct ash_str *out, uint64_t value)
{
    add_op(out, '\x8a'); /* LONG1: 9 bytes, so that the sign bit is never a value's */
    add_op(out, 9);
    add_le(out, value, 8);
    add_op(out, 0);
}

static void add_double(struct ash_str *out, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    add_op(out, 'G');
    for (int shift = 56; shift >= 0; shift -= 8)
        add_op(out, (char)(bits >> shift & 255));
}

/* [[value]], or [] for nothing. */
static void add_sizes(struct ash_str *out, bool has_value, uint64_t value)
{
    ash_str_adds(out, "](");
    if (has_value) {
        ash_str_adds(out, "](");
        add_int(out, value);
        add_op(out, 'e');
    }
    add_op(out, 'e');
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* A rank's part in a group. Messages of a pair in one direction are a separate group, as readers compare the calls of a
 * group in order: way is the sender and the receiver, or WAY_CALLS for the group itself. */
struct member {
    uint64_t group, way;
    size_t rank;                      /* of the job */
    uint32_t group_rank;              /* in the group */
    uint64_t first;                   /* oldest call that its ring still has */
    char name[ASH_FLIGHT_NAME_BYTES]; /* of the group */
};

struct ash_flight_torch {
    const struct ash_flight_set *set;
    struct member *members; /* sorted by group, way and rank */
    size_t count;
};

static uint64_t way_of(const struct ash_flight_call *call)
{
    bool is_send = call->op == ASH_FLIGHT_SEND;
    uint64_t from = is_send ? call->rank : call->peer, to = is_send ? call->peer : call->rank;

    return call->is_message ? from << 32 | to : WAY_CALLS;
}

static int compare_keys(uint64_t group, uint64_t way, const struct member *b)
{
    if (group != b->group) return group < b->group ? -1 : 1;
    return way == b->way ? 0 : way < b->way ? -1 : 1;
}

static int compare_members(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    int order = compare_keys(a->group, a->way, b);

    return order != 0 ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

static int add_member(struct ash_flight_torch *torch, const struct member *member, size_t *capacity)
{
    ash_assert(torch->count <= *capacity);
    if (ash_array_reserve(&torch->members, &*capacity, torch->count + 1, sizeof(*torch->members)) < 0) return -ENOMEM;
    torch->members[torch->count++] = *member;
    return 0;
}

/* The groups of one rank, each once. */
static int find_groups(struct ash_flight_torch *torch, const struct ash_flight_rank *rank, size_t *capacity)
{
    size_t own = torch->count;

    for (size_t i = 0; i < rank->view.count; i++) {
        const struct ash_flight_call *call = ash_flight_call_at(rank, i);
        struct member member = {.group = call->group,
                                .way = way_of(call),
                                .rank = rank->rank,
                                .group_rank = call->rank,
                                .first = call->sequence};
        size_t m = own;

        if (call->op >= ASH_FLIGHT_OPS) continue;
        while (m < torch->count && compare_keys(member.group, member.way, &torch->members[m]) != 0)
            m++;
        if (m < torch->count) continue;
        memcpy(member.name, call->name, sizeof(member.name));
        if (add_member(torch, &member, capacity) < 0) return -ENOMEM;
    }
    return 0;
}

int ash_flight_torch_open(const struct ash_flight_set *set, struct ash_flight_torch **torch_out)
{
    struct ash_flight_torch *torch = calloc(1, sizeof(*torch));
    size_t capacity = 0;
    int rc = torch != NULL ? 0 : -ENOMEM;

    for (size_t r = 0; rc == 0 && r < set->count; r++)
        rc = find_groups(torch, &set->ranks[r], &capacity);
    if (rc < 0) {
        ash_flight_torch_close(torch);
        return rc;
    }
    torch->set = set;
    if (torch->count > 0) qsort(torch->members, torch->count, sizeof(*torch->members), compare_members);
    *torch_out = torch;
    return 0;
}

void ash_flight_torch_close(struct ash_flight_torch *torch)
{
    if (torch == NULL) return;
    free(torch->members);
    free(torch);
}

/* The members of a group: *count_out from the returned one on. */
static const struct member *members_of(const struct ash_flight_torch *torch, uint64_t group, uint64_t way,
                                       size_t *count_out)
{
    size_t low = 0, high = torch->count, end;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (compare_keys(group, way, &torch->members[middle]) > 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (end = low; end < torch->count && compare_keys(group, way, &torch->members[end]) == 0;)
        end++;
    *count_out = end - low;
    return torch->members + low;
}

/* The first call that all members still have. */
static uint64_t common_start(const struct member *members, size_t count)
{
    uint64_t start = 0;

    for (size_t i = 0; i < count; i++)
        if (members[i].first > start) start = members[i].first;
    ash_assert(count > 0); /* a call's group has at least the rank that made it */
    return start;
}

static void name_group(uint64_t group, uint64_t way, char *buf, size_t buf_bytes)
{
    if (way == WAY_CALLS)
        snprintf(buf, buf_bytes, "%016llx", (unsigned long long)group);
    else
        snprintf(buf, buf_bytes, "%016llx_%u_%u", (unsigned long long)group, (unsigned)(way >> 32), (unsigned)way);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static size_t dtype_bytes(const char *dtype)
{
    return strncmp(dtype, "f64", 3) == 0 || strncmp(dtype, "i64", 3) == 0   ? 8
           : strncmp(dtype, "f32", 3) == 0 || strncmp(dtype, "i32", 3) == 0 ? 4
           : strncmp(dtype, "bf16", 4) == 0                                 ? 2
                                                                            : 1;
}

static const char *torch_dtype(const char *dtype)
{
    return strncmp(dtype, "f32", 3) == 0    ? "Float"
           : strncmp(dtype, "f64", 3) == 0  ? "Double"
           : strncmp(dtype, "bf16", 4) == 0 ? "BFloat16"
           : strncmp(dtype, "i32", 3) == 0  ? "Int"
           : strncmp(dtype, "i64", 3) == 0  ? "Long"
                                            : "Byte";
}

/* The rank of the job that is `group_rank` in a group; SIZE_MAX: it left no calls. */
static size_t job_rank(const struct ash_flight_torch *torch, uint64_t group, uint64_t group_rank)
{
    for (size_t i = 0; i < torch->count; i++)
        if (torch->members[i].group == group && torch->members[i].group_rank == group_rank)
            return torch->members[i].rank;
    return SIZE_MAX;
}

/* The ends of a message as ranks of the job. Returns whether both are known. */
static bool find_ends(const struct ash_flight_torch *torch, uint64_t group, uint64_t way, size_t ends_out[2])
{
    ends_out[0] = job_rank(torch, group, way >> 32);
    ends_out[1] = job_rank(torch, group, way & UINT32_MAX);
    return ends_out[0] != SIZE_MAX && ends_out[1] != SIZE_MAX;
}

static void name_call(const struct ash_flight_call *call, const size_t ends[2], char *buf, size_t buf_bytes)
{
    static const char *const names[ASH_FLIGHT_OPS] = {
        "all_reduce", "all_reduce", "_reduce_scatter_base", "_all_gather_base",
        "broadcast",  "all_to_all", "all_reduce",           "_reduce_scatter_base",
        "send",       "recv"};
    int from = ends[0] < ends[1] ? 0 : 1; /* places among the two, in order */

    ash_assert(call->op < ASH_FLIGHT_OPS); /* is_shown() refuses others */
    if (call->op == ASH_FLIGHT_SEND)
        snprintf(buf, buf_bytes, "nccl:send %d->%d", from, 1 - from);
    else if (call->op == ASH_FLIGHT_RECV)
        snprintf(buf, buf_bytes, "nccl:recv %d<-%d", 1 - from, from);
    else
        snprintf(buf, buf_bytes, "nccl:%s", names[call->op]);
}

static void add_shape(const struct ash_flight_call *call, struct ash_str *out)
{
    uint64_t elements = call->bytes / dtype_bytes(call->dtype), size = call->size > 0 ? call->size : 1;
    bool is_gather = call->op == ASH_FLIGHT_ALL_GATHER;
    bool is_scatter = call->op == ASH_FLIGHT_REDUCE_SCATTER || call->op == ASH_FLIGHT_WINDOW_REDUCE;

    add_text(out, "input_sizes");
    add_sizes(out, true, is_scatter ? elements / size * size : elements);
    add_text(out, "output_sizes");
    add_sizes(out, true, is_gather ? elements * size : is_scatter ? elements / size : elements);
    for (int i = 0; i < 2; i++) {
        add_text(out, i == 0 ? "input_dtypes" : "output_dtypes");
        ash_str_adds(out, "](");
        add_text(out, torch_dtype(call->dtype));
        add_op(out, 'e');
    }
}

static void add_times(const struct ash_flight_call *call, int64_t wall_ns, struct ash_str *out)
{
    bool is_done = call->end_ns != 0;

    add_text(out, "time_created_ns");
    add_int(out, call->start_ns + (uint64_t)wall_ns);
    add_text(out, "duration_ms");
    if (is_done)
        add_double(out, (double)(call->end_ns - call->start_ns) * 1e-6);
    else
        add_op(out, 'N');
    add_text(out, "state");
    add_text(out, is_done ? "completed" : "started");
    add_text(out, "time_discovered_started_ns");
    add_int(out, call->start_ns + (uint64_t)wall_ns);
    add_text(out, "time_discovered_completed_ns");
    if (is_done)
        add_int(out, call->end_ns + (uint64_t)wall_ns);
    else
        add_op(out, 'N');
    add_text(out, "retired");
    add_op(out, is_done ? '\x88' : '\x89');
}

static void add_call(const struct ash_flight_call *call, const char *name, uint64_t record, int64_t wall_ns,
                     struct ash_str *out)
{
    char group[64], desc[ASH_FLIGHT_NAME_BYTES + 1] = {0};

    ash_assert(strncmp(name, "nccl:", 5) == 0); /* cut off for the frame's name below */
    memcpy(desc, call->name, sizeof(call->name));
    name_group(call->group, way_of(call), group, sizeof(group));
    ash_str_adds(out, "}(");
    add_text(out, "record_id"), add_int(out, record);
    add_text(out, "pg_id"), add_int(out, call->group & 0x7fffffff);
    add_text(out, "process_group");
    add_text(out, group), add_text(out, desc), add_op(out, '\x86'); /* a pair */
    add_text(out, "collective_seq_id"), add_int(out, call->sequence);
    add_text(out, "p2p_seq_id"), add_int(out, call->is_message ? call->sequence : 0);
    add_text(out, "op_id"), add_int(out, call->sequence);
    add_text(out, "profiling_name"), add_text(out, name);
    add_shape(call, out);
    add_times(call, wall_ns, out);
    add_text(out, "timeout_ms"), add_int(out, 0);
    add_text(out, "is_p2p"), add_op(out, call->is_message ? '\x88' : '\x89');
    add_text(out, "frames"), ash_str_adds(out, "](}(");
    add_text(out, "name"), add_text(out, name + 5);
    add_text(out, "filename"), add_text(out, "ashlar");
    add_text(out, "line"), add_int(out, 0);
    ash_str_adds(out, "ueu");
}

/* ---- a rank ------------------------------------------------------------------------------------------------------ */

/* "[0, 1]": the ranks of a group, or the two ends of a message. */
static void add_members(const struct ash_flight_torch *torch, const struct member *own, struct ash_str *out)
{
    struct ash_str text = {0};
    size_t count, ends[2];

    if (own->way == WAY_CALLS) {
        const struct member *members = members_of(torch, own->group, own->way, &count);

        for (size_t i = 0; i < count; i++)
            ash_str_addf(&text, "%s%zu", i > 0 ? ", " : "[", members[i].rank);
        ash_str_adds(&text, "]");
    } else if (find_ends(torch, own->group, own->way, ends)) {
        ash_str_addf(&text, "[%zu, %zu]", ends[0] < ends[1] ? ends[0] : ends[1], ends[0] < ends[1] ? ends[1] : ends[0]);
    } else {
        ash_str_addf(&text, "[%zu]", own->rank);
    }
    add_text(out, text.data != NULL ? text.data : "[]");
    ash_str_fini(&text);
}

static void add_groups(const struct ash_flight_torch *torch, const struct ash_flight_rank *rank, struct ash_str *out)
{
    add_text(out, "pg_config");
    ash_str_adds(out, "}(");
    for (size_t i = 0; i < torch->count; i++) {
        const struct member *own = &torch->members[i];
        char group[64], desc[ASH_FLIGHT_NAME_BYTES + 1] = {0};

        if (own->rank != rank->rank) continue;
        name_group(own->group, own->way, group, sizeof(group));
        memcpy(desc, own->name, sizeof(own->name));
        add_text(out, group);
        ash_str_adds(out, "}(");
        add_text(out, "name"), add_text(out, group);
        add_text(out, "desc"), add_text(out, desc);
        add_text(out, "ranks"), add_members(torch, own, out);
        add_op(out, 'u');
    }
    add_op(out, 'u');
}

/* Is it one that all of its group still have? Of messages, both ends must be known: places of the ends. */
static bool is_shown(const struct ash_flight_torch *torch, const struct ash_flight_call *call, size_t ends[2])
{
    const struct member *members;
    size_t count;

    if (call->op >= ASH_FLIGHT_OPS) return false;
    members = members_of(torch, call->group, way_of(call), &count);
    if (call->sequence < common_start(members, count)) return false;
    return !call->is_message || find_ends(torch, call->group, way_of(call), ends);
}

int ash_flight_torch_write(const struct ash_flight_torch *torch, size_t index, struct ash_str *out)
{
    const struct ash_flight_rank *rank = &torch->set->ranks[index];
    uint64_t record = 0;

    ash_assert(index < torch->set->count);
    ash_str_adds(out, "\x80\x02}(");
    add_text(out, "version"), add_text(out, "2.10");
    add_text(out, "rank"), add_int(out, rank->rank);
    add_groups(torch, rank, out);
    add_text(out, "pg_status"), ash_str_adds(out, "}");
    add_text(out, "entries"), ash_str_adds(out, "](");
    for (size_t i = 0; i < rank->view.count; i++) {
        const struct ash_flight_call *call = ash_flight_call_at(rank, i);
        size_t ends[2] = {0, 1};
        char name[64];

        if (!is_shown(torch, call, ends)) continue;
        name_call(call, ends, name, sizeof(name));
        add_call(call, name, record++, rank->view.wall_ns, out);
    }
    return ash_str_adds(out, "eu.");
}
