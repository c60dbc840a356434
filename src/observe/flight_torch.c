/* PyTorch's format: one pickled dictionary per rank. The few opcodes of protocol 2 that it needs are written here. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/flight.h"

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

static void name_call(const struct ash_flight_call *call, char *buf, size_t buf_bytes)
{
    static const char *const names[ASH_FLIGHT_OPS] = {
        "all_reduce", "all_reduce", "_reduce_scatter_base", "_all_gather_base",
        "broadcast",  "all_to_all", "all_reduce",           "_reduce_scatter_base",
        "send",       "recv"};

    if (call->op == ASH_FLIGHT_SEND)
        snprintf(buf, buf_bytes, "nccl:send %u->%u", call->rank, call->peer);
    else if (call->op == ASH_FLIGHT_RECV)
        snprintf(buf, buf_bytes, "nccl:recv %u<-%u", call->rank, call->peer);
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

static void group_name(const struct ash_flight_call *call, char *buf, size_t buf_bytes)
{
    snprintf(buf, buf_bytes, "%016llx", (unsigned long long)call->group);
}

static void add_call(const struct ash_flight_call *call, int64_t wall_ns, struct ash_str *out)
{
    char name[64], group[32], desc[ASH_FLIGHT_NAME_BYTES + 1] = {0};

    memcpy(desc, call->name, sizeof(call->name));
    group_name(call, group, sizeof(group));
    ash_str_adds(out, "}(");
    add_text(out, "record_id"), add_int(out, call->number - 1);
    add_text(out, "pg_id"), add_int(out, call->group & 0x7fffffff);
    add_text(out, "process_group");
    add_text(out, group), add_text(out, desc), add_op(out, '\x86'); /* a pair */
    add_text(out, "collective_seq_id"), add_int(out, call->is_message ? 0 : call->sequence);
    add_text(out, "p2p_seq_id"), add_int(out, call->is_message ? call->sequence : 0);
    add_text(out, "op_id"), add_int(out, call->sequence);
    name_call(call, name, sizeof(name));
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

/* Is this the rank's first call of its group? */
static bool is_first(const struct ash_flight_rank *rank, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (ash_flight_call_at(rank, i)->group == ash_flight_call_at(rank, index)->group) return false;
    return true;
}

/* "[0, 1]": the ranks that have calls of a group. */
static void add_members(const struct ash_flight_set *set, uint64_t group, struct ash_str *out)
{
    struct ash_str text = {0};

    ash_str_adds(&text, "[");
    for (size_t r = 0; r < set->count; r++)
        for (size_t i = 0; i < set->ranks[r].view.count; i++)
            if (ash_flight_call_at(&set->ranks[r], i)->group == group) {
                ash_str_addf(&text, "%s%zu", text.size_bytes > 1 ? ", " : "", set->ranks[r].rank);
                break;
            }
    ash_str_adds(&text, "]");
    add_text(out, text.data != NULL ? text.data : "[]");
    ash_str_fini(&text);
}

static void add_groups(const struct ash_flight_set *set, const struct ash_flight_rank *rank, struct ash_str *out)
{
    add_text(out, "pg_config");
    ash_str_adds(out, "}(");
    for (size_t i = 0; i < rank->view.count; i++) {
        const struct ash_flight_call *call = ash_flight_call_at(rank, i);
        char group[32], desc[ASH_FLIGHT_NAME_BYTES + 1] = {0};

        if (!is_first(rank, i)) continue;
        group_name(call, group, sizeof(group));
        memcpy(desc, call->name, sizeof(call->name));
        add_text(out, group);
        ash_str_adds(out, "}(");
        add_text(out, "name"), add_text(out, group);
        add_text(out, "desc"), add_text(out, desc);
        add_text(out, "ranks"), add_members(set, call->group, out);
        add_op(out, 'u');
    }
    add_op(out, 'u');
}

int ash_flight_torch(const struct ash_flight_set *set, size_t index, struct ash_str *out)
{
    const struct ash_flight_rank *rank = &set->ranks[index];

    ash_str_adds(out, "\x80\x02}(");
    add_text(out, "version"), add_text(out, "2.10");
    add_text(out, "rank"), add_int(out, rank->rank);
    add_groups(set, rank, out);
    add_text(out, "pg_status"), ash_str_adds(out, "}");
    add_text(out, "entries"), ash_str_adds(out, "](");
    for (size_t i = 0; i < rank->view.count; i++)
        if (ash_flight_call_at(rank, i)->op < ASH_FLIGHT_OPS)
            add_call(ash_flight_call_at(rank, i), rank->view.wall_ns, out);
    return ash_str_adds(out, "eu.");
}
