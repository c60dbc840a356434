/* One process per rank, with a row for steps and one for calls. Parts of a step are counters of the ring: their places
 * inside it are not known, so they are arguments of the step's event. */
#include "observe/trace/trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"

enum { ROW_STEPS = 1, ROW_CALLS = 2, ROW_OPS = 3, ROW_MORE_CALLS = 4 };
enum { CALL_ROWS = 16 }; /* calls that run at the same time lie in rows of their own */
#define CUT_US 1e-3      /* viewers add ts and dur as binary fractions: an end must not pass the next beginning */

struct writer {
    struct ash_str *out;
    bool has_event;
    int64_t start_ns;           /* of the trace, since 1970 */
    double row_ends[CALL_ROWS]; /* of the current rank: until when each row of calls is taken */
};

static void begin_event(struct writer *writer)
{
    ash_str_adds(writer->out, writer->has_event ? ",\n" : "\n");
    writer->has_event = true;
}

static double micros(const struct writer *writer, uint64_t clock_ns, int64_t wall_ns)
{
    return (double)((int64_t)clock_ns + wall_ns - writer->start_ns) * 1e-3;
}

/* A row's name, or with row 0 the rank's. Readers want a category of every event: Chrome gives names that one. */
static void write_name(struct writer *writer, size_t rank, int row, const char *name)
{
    begin_event(writer);
    ash_str_addf(writer->out,
                 "{\"name\":\"%s\",\"cat\":\"__metadata\",\"ph\":\"M\",\"pid\":%zu,\"tid\":%d,"
                 "\"args\":{\"name\":\"%s\"}}",
                 row == 0 ? "process_name" : "thread_name", rank, row, name);
}

static void name_rank(struct writer *writer, size_t rank)
{
    static const char *const rows[] = {"steps", "collectives", "ops"};
    char name[32];

    snprintf(name, sizeof(name), "rank %zu", rank);
    write_name(writer, rank, 0, name);
    for (int row = 0; row < 3; row++)
        write_name(writer, rank, row + 1, rows[row]);
}

static double cut(double duration)
{
    return duration > CUT_US ? duration - CUT_US : 0;
}

/* The first row of calls that is free at start; the last one where none is. */
static int find_row(struct writer *writer, size_t rank, double start, double end)
{
    int row = 0;

    while (row + 1 < CALL_ROWS && writer->row_ends[row] > start)
        row++;
    if (row > 0 && writer->row_ends[row] == 0) {
        char name[32];

        snprintf(name, sizeof(name), "collectives %d", row + 1);
        write_name(writer, rank, ROW_MORE_CALLS + row - 1, name);
    }
    writer->row_ends[row] = end;
    return row == 0 ? ROW_CALLS : ROW_MORE_CALLS + row - 1;
}

static uint64_t step_ns(const struct ash_step_record *step)
{
    uint64_t ns = 0;

    for (int kind = 0; kind < ASH_METER_KINDS; kind++)
        ns += step->ns[kind];
    return ns;
}

static void write_step(struct writer *writer, const struct ash_rank_steps *rank, const struct ash_step_record *step)
{
    begin_event(writer);
    ash_str_addf(
        writer->out,
        "{\"name\":\"step %llu\",\"cat\":\"step\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%zu,\"tid\":%d,"
        "\"args\":{\"compute_ms\":%.6g,\"data_ms\":%.6g,\"comm_ms\":%.6g,\"idle_ms\":%.6g,\"before_ms\":%.6g}}",
        (unsigned long long)step->step, micros(writer, step->start_ns, rank->view.wall_ns),
        cut((double)step_ns(step) * 1e-3), rank->rank, ROW_STEPS, (double)step->ns[ASH_METER_COMPUTE] * 1e-6,
        (double)step->ns[ASH_METER_DATA] * 1e-6, (double)step->ns[ASH_METER_COMM] * 1e-6,
        (double)step->ns[ASH_METER_IDLE] * 1e-6, (double)step->after_ns * 1e-6);
}

/* An arrow's number: equal for a send and its receive. */
static uint64_t flow_of(const struct ash_flight_call *call)
{
    bool is_send = call->op == ASH_FLIGHT_SEND;
    uint64_t from = is_send ? call->rank : call->peer, to = is_send ? call->peer : call->rank;

    return ash_hash_mix(call->group ^ ash_hash_mix(from << 32 | to) ^ ash_hash_mix(call->sequence)) >> 16;
}

/* Names are ours or of eight bytes: other characters become '?'. */
static void plain_name(const char *name, char *buf)
{
    for (size_t i = 0; i < ASH_FLIGHT_NAME_BYTES; i++)
        buf[i] =
            (char)(name[i] == '\0' || (name[i] >= ' ' && name[i] <= '~' && name[i] != '"' && name[i] != '\\') ? name[i]
                                                                                                              : '?');
    buf[ASH_FLIGHT_NAME_BYTES] = '\0';
}

static void write_call(struct writer *writer, const struct ash_flight_rank *rank, const struct ash_flight_call *call)
{
    double start = micros(writer, call->start_ns, rank->view.wall_ns);
    double duration = call->end_ns > call->start_ns ? (double)(call->end_ns - call->start_ns) * 1e-3 : 0;
    char group[ASH_FLIGHT_NAME_BYTES + 1], dtype[ASH_FLIGHT_NAME_BYTES + 1];
    int row = find_row(writer, rank->rank, start, start + duration);

    plain_name(call->name, group);
    plain_name(call->dtype, dtype);
    begin_event(writer);
    ash_str_addf(
        writer->out,
        "{\"name\":\"%s %s\",\"cat\":\"collective\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%zu,\"tid\":%d,"
        "\"args\":{\"group\":\"%s\",\"sequence\":%llu,\"bytes\":%llu,\"type\":\"%s\",\"ended\":%s}}",
        ash_flight_op_name(call->op), group, start, cut(duration), rank->rank, row, group,
        (unsigned long long)call->sequence, (unsigned long long)call->bytes, dtype,
        call->end_ns != 0 ? "true" : "false");
    if (!call->is_message || call->end_ns == 0) return;
    begin_event(writer);
    ash_str_addf(
        writer->out,
        "{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"id\":%llu,\"ts\":%.3f,\"pid\":%zu,\"tid\":%d%s}",
        call->op == ASH_FLIGHT_SEND ? "s" : "f", (unsigned long long)flow_of(call),
        call->op == ASH_FLIGHT_SEND ? start : start + cut(duration), rank->rank, row,
        call->op == ASH_FLIGHT_SEND ? "" : ",\"bp\":\"e\"");
}

/* When the wanted steps begin and end, over all ranks. */
static bool find_span(const struct ash_rank_set *steps, uint64_t first, uint64_t last, int64_t *from_out,
                      int64_t *to_out)
{
    int64_t from = INT64_MAX, to = INT64_MIN;

    for (size_t r = 0; r < steps->count; r++)
        for (size_t i = 0; i < steps->ranks[r].view.count; i++) {
            const struct ash_step_record *step = ash_rank_step(&steps->ranks[r], i);
            int64_t start = (int64_t)step->start_ns + steps->ranks[r].view.wall_ns,
                    end = start + (int64_t)step_ns(step);

            if (step->step < first || step->step > last) continue;
            from = start < from ? start : from;
            to = end > to ? end : to;
        }
    *from_out = from;
    *to_out = to;
    return from <= to;
}

static void write_rank(struct writer *writer, const struct ash_rank_steps *rank, uint64_t first, uint64_t last)
{
    name_rank(writer, rank->rank);
    for (size_t i = 0; i < rank->view.count; i++) {
        const struct ash_step_record *step = ash_rank_step(rank, i);

        if (step->step >= first && step->step <= last) write_step(writer, rank, step);
    }
}

/* One op of a rank's file. Its times count from clock_ns. */
static void write_op(struct writer *writer, const struct ash_rank_steps *rank, const json_t *op, uint64_t clock_ns)
{
    const char *name = json_string_value(json_object_get(op, "name"));
    double start = json_number_value(json_object_get(op, "ts")),
           duration = json_number_value(json_object_get(op, "dur"));
    const json_t *args = json_object_get(op, "args");

    if (name == NULL || strpbrk(name, "\"\\") != NULL ||
        !(start >= 0 && start < 1e15 && duration >= 0 && duration < 1e15))
        return;
    begin_event(writer);
    ash_str_addf(writer->out,
                 "{\"name\":\"%s\",\"cat\":\"op\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%zu,\"tid\":%d", name,
                 micros(writer, clock_ns, rank->view.wall_ns) + start, cut(duration), rank->rank, ROW_OPS);
    if (args != NULL)
        ash_str_addf(writer->out, ",\"args\":{\"M\":%lld,\"N\":%lld,\"K\":%lld}",
                     (long long)json_integer_value(json_object_get(args, "M")),
                     (long long)json_integer_value(json_object_get(args, "N")),
                     (long long)json_integer_value(json_object_get(args, "K")));
    ash_str_adds(writer->out, "}");
}

static void write_ops(struct writer *writer, const struct ash_rank_steps *rank, const char *dir, int64_t to_ns)
{
    json_t *trace = NULL;
    const json_t *ops;
    uint64_t clock_ns;
    char path[4200];

    snprintf(path, sizeof(path), "%s/rank-%zu.ops.json", dir, rank->rank);
    if (ash_json_load(path, &trace, NULL) < 0) return;
    clock_ns = (uint64_t)json_integer_value(json_object_get(json_object_get(trace, "otherData"), "clock_ns"));
    ops = json_object_get(trace, "traceEvents");
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *op = json_array_get(ops, i);
        double at = micros(writer, clock_ns, rank->view.wall_ns) + json_number_value(json_object_get(op, "ts"));

        if (at >= 0 && at <= (double)(to_ns - writer->start_ns) * 1e-3) write_op(writer, rank, op, clock_ns);
    }
    json_decref(trace);
}

int ash_trace_write(const struct ash_trace_sources *sources, uint64_t first, uint64_t last, struct ash_str *out,
                    struct ash_err *err)
{
    const struct ash_flight_set *calls = sources->calls;
    const struct ash_rank_set *steps = sources->steps;
    struct writer writer = {.out = out};
    int64_t to;

    if (!find_span(steps, first, last, &writer.start_ns, &to))
        return ash_err_set(err, -ENOENT, "no rank has such a step: its ring keeps the last 4096");
    ash_str_adds(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (size_t r = 0; r < steps->count; r++) {
        write_rank(&writer, &steps->ranks[r], first, last);
        if (sources->ops_dir != NULL) write_ops(&writer, &steps->ranks[r], sources->ops_dir, to);
    }
    for (size_t r = 0; r < calls->count; r++) {
        memset(writer.row_ends, 0, sizeof(writer.row_ends));
        for (size_t i = 0; i < calls->ranks[r].view.count; i++) {
            const struct ash_flight_call *call = ash_flight_call_at(&calls->ranks[r], i);
            int64_t start = (int64_t)call->start_ns + calls->ranks[r].view.wall_ns;

            if (start >= writer.start_ns && start <= to) write_call(&writer, &calls->ranks[r], call);
        }
    }
    return ash_str_adds(out, "\n]}\n") < 0 ? ash_err_set(err, -ENOMEM, "no memory for the trace") : 0;
}
