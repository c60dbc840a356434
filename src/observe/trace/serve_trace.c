/* One process per server. Requests run at the same time, so each takes the first row that is free when it comes. Data
 * of the rings may be torn or untrusted: spans are cut to lie inside each other, as trace viewers want them. */
#include "observe/trace/serve_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { ROW_PASSES = 1, ROW_REQUESTS = 2 }; /* the latter: the first of them */

/* From when to when, in nanoseconds since 1970. */
struct span {
    int64_t from_ns, to_ns;
};

/* A request and its row. */
struct lane {
    const struct ash_request_record *request;
    struct span span;
    int64_t reached_ns; /* pieces up to here are written */
    size_t row;
};

struct writer {
    struct ash_str *out;
    bool has_event;
    int64_t start_ns;
    const struct ash_server_rings *server;
    struct lane *lanes; /* [lane_count], by the number of their requests */
    int64_t *row_ends;  /* [lane_count]: until when a row is taken */
    size_t lane_count, row_count;
};

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* All rings of a server are of one clock. Each noted its distance from 1970 on its own: one of them counts. */
static int64_t wall_of(const struct ash_server_rings *server, uint64_t clock_ns)
{
    return (int64_t)(clock_ns + (uint64_t)server->requests.wall_ns);
}

/* Microseconds between two times, which are untrusted. */
static double micros(int64_t from_ns, int64_t to_ns)
{
    return (double)(int64_t)((uint64_t)to_ns - (uint64_t)from_ns) * 1e-3;
}

static int64_t clamp(int64_t ns, struct span span)
{
    return ns < span.from_ns ? span.from_ns : ns > span.to_ns ? span.to_ns : ns;
}

static void begin_event(struct writer *writer)
{
    ash_str_adds(writer->out, writer->has_event ? ",\n" : "\n");
    writer->has_event = true;
}

/* How deep a span lies in others of its row. */
enum depth { DEPTH_REQUEST, DEPTH_PART, DEPTH_PASS };

/* Viewers add ts and dur as binary fractions. A span that ends where its neighbour begins, or where the one around it
 * ends, could end after that by a rounding: so each ends a nanosecond earlier for each level of depth. */
static struct span cut_end(struct span span, enum depth depth)
{
    span.to_ns = micros(span.from_ns, span.to_ns) > (double)depth * 1e-3 ? span.to_ns - (int64_t)depth : span.from_ns;
    return span;
}

/* The beginning of a span's event; its arguments and closing braces follow. */
static void begin_span(struct writer *writer, const char *name, const char *kind, struct span span, size_t row)
{
    begin_event(writer);
    ash_str_addf(
        writer->out,
        "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%lu,\"tid\":%zu,\"args\":{",
        name, kind, micros(writer->start_ns, span.from_ns), micros(span.from_ns, span.to_ns),
        (unsigned long)writer->server->pid, row);
}

static void write_name(struct writer *writer, const char *what, size_t row, const char *name)
{
    begin_event(writer);
    ash_str_addf(
        writer->out,
        "{\"name\":\"%s\",\"cat\":\"__metadata\",\"ph\":\"M\",\"pid\":%lu,\"tid\":%zu,\"args\":{\"name\":\"%s\"}}",
        what, (unsigned long)writer->server->pid, row, name);
}

static void write_names(struct writer *writer)
{
    struct ash_request_record plain = {0};
    char name[ASH_REQUEST_ID_BYTES + 1], title[ASH_REQUEST_ID_BYTES + 32];

    memcpy(plain.id, writer->server->name, strnlen(writer->server->name, sizeof(plain.id)));
    snprintf(title, sizeof(title), "server %s", ash_request_id_text(&plain, name));
    write_name(writer, "process_name", 0, title);
    write_name(writer, "thread_name", ROW_PASSES, "passes");
    for (size_t i = 0; i < writer->row_count; i++) {
        snprintf(title, sizeof(title), "requests %zu", i + 1);
        write_name(writer, "thread_name", ROW_REQUESTS + i, title);
    }
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* When the server last did something. */
static int64_t last_sign(const struct ash_server_rings *server)
{
    int64_t last = INT64_MIN;

    if (server->passes.count > 0) last = wall_of(server, ash_server_pass(server, server->passes.count - 1)->end_ns);
    for (size_t i = 0; i < server->requests.count; i++) {
        int64_t came = wall_of(server, ash_server_request(server, i)->submit_ns);

        last = came > last ? came : last;
    }
    return last;
}

/* One that has not ended is shown up to the server's last sign. */
static struct span span_of(const struct ash_server_rings *server, const struct ash_request_record *request)
{
    struct span span = {wall_of(server, request->submit_ns), wall_of(server, request->end_ns)};

    if (request->end_ns == 0) span.to_ns = last_sign(server);
    if (span.to_ns < span.from_ns) span.to_ns = span.from_ns;
    return span;
}

static void take_row(struct writer *writer, struct lane *lane)
{
    size_t row = 0;

    while (row < writer->row_count && writer->row_ends[row] > lane->span.from_ns)
        row++;
    ash_assert(row < writer->server->requests.count); /* at most a row per request */
    if (row == writer->row_count) writer->row_count++;
    writer->row_ends[row] = lane->span.to_ns;
    lane->row = ROW_REQUESTS + row;
}

static int lay_out(struct writer *writer, const char *id)
{
    const struct ash_server_rings *server = writer->server;
    char text[ASH_REQUEST_ID_BYTES + 1];

    writer->lanes = calloc(server->requests.count + 1, sizeof(*writer->lanes));
    writer->row_ends = calloc(server->requests.count + 1, sizeof(*writer->row_ends));
    if (writer->lanes == NULL || writer->row_ends == NULL) return -ENOMEM;
    for (size_t i = 0; i < server->requests.count; i++) {
        struct lane lane = {.request = ash_server_request(server, i)};

        if (id != NULL && strstr(ash_request_id_text(lane.request, text), id) == NULL) continue;
        lane.span = span_of(server, lane.request);
        lane.reached_ns = lane.span.from_ns;
        take_row(writer, &lane);
        writer->lanes[writer->lane_count++] = lane;
    }
    return 0;
}

static void write_part(struct writer *writer, const struct lane *lane, const char *name, int64_t from_ns, int64_t to_ns)
{
    struct span span = {clamp(from_ns, lane->span), clamp(to_ns, lane->span)};

    if (span.to_ns < span.from_ns) return;
    begin_span(writer, name, "part", cut_end(span, DEPTH_PART), lane->row);
    ash_str_adds(writer->out, "}}");
}

static void write_request(struct writer *writer, const struct lane *lane)
{
    const struct ash_server_rings *server = writer->server;
    const struct ash_request_record *request = lane->request;
    char id[ASH_REQUEST_ID_BYTES + 1];
    int64_t end_ns = lane->span.to_ns, start_ns, first_ns;

    ash_request_id_text(request, id);
    begin_span(writer, id[0] != '\0' ? id : "request", "request", cut_end(lane->span, DEPTH_REQUEST), lane->row);
    ash_str_addf(writer->out,
                 "\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"answer_tokens\":%llu,\"outcome\":\"%s\"}}",
                 (unsigned long long)request->prompt_tokens, (unsigned long long)request->cached_tokens,
                 (unsigned long long)request->answer_tokens, ash_request_outcome_name(request->outcome));
    start_ns = request->start_ns != 0 ? wall_of(server, request->start_ns) : end_ns;
    first_ns = request->first_ns != 0 ? wall_of(server, request->first_ns) : end_ns;
    write_part(writer, lane, "queue", lane->span.from_ns, start_ns);
    if (request->start_ns != 0) write_part(writer, lane, "prefill", start_ns, first_ns);
    if (request->first_ns != 0)
        write_part(writer, lane, "decode", first_ns,
                   request->last_ns != 0 ? wall_of(server, request->last_ns) : end_ns);
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

static struct lane *find_lane(const struct writer *writer, uint64_t number)
{
    size_t low = 0, high = writer->lane_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (writer->lanes[middle].request->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < writer->lane_count && writer->lanes[low].request->number == number ? &writer->lanes[low] : NULL;
}

static void write_piece(struct writer *writer, const struct ash_piece_record *piece)
{
    struct lane *lane = find_lane(writer, piece->request);
    struct span room, span;

    if (lane == NULL) return;
    room = (struct span){lane->reached_ns, lane->span.to_ns};
    span = (struct span){clamp(wall_of(writer->server, piece->start_ns), room),
                         clamp(wall_of(writer->server, piece->end_ns), room)};
    if (span.to_ns <= span.from_ns) return;
    lane->reached_ns = span.to_ns;
    begin_span(writer, "pass", "pass", cut_end(span, DEPTH_PASS), lane->row);
    ash_str_addf(writer->out, "\"rows\":%u,\"tokens\":%u,\"prefill\":%s}}", piece->rows, piece->tokens,
                 piece->is_prefill != 0 ? "true" : "false");
}

/* Did it run while one of the requests was there? */
static bool is_wanted(const struct writer *writer, struct span pass)
{
    for (size_t i = 0; i < writer->lane_count; i++)
        if (pass.from_ns <= writer->lanes[i].span.to_ns && pass.to_ns >= writer->lanes[i].span.from_ns) return true;
    return false;
}

static void write_passes(struct writer *writer, bool has_all)
{
    const struct ash_ring_view *view = &writer->server->passes;
    int64_t reached_ns = writer->start_ns;

    for (size_t i = 0; i < view->count; i++) {
        const struct ash_pass_record *pass = ash_server_pass(writer->server, i);
        struct span room = {reached_ns, INT64_MAX}, span = {0};
        int64_t schedule_ns = clamp(wall_of(writer->server, pass->schedule_ns), room);

        span.from_ns = clamp(wall_of(writer->server, pass->start_ns), (struct span){schedule_ns, INT64_MAX});
        span.to_ns = clamp(wall_of(writer->server, pass->end_ns), (struct span){span.from_ns, INT64_MAX});
        if (span.to_ns <= writer->start_ns || (!has_all && !is_wanted(writer, span))) continue;
        reached_ns = span.to_ns;
        begin_span(writer, "schedule", "schedule", cut_end((struct span){schedule_ns, span.from_ns}, DEPTH_PART),
                   ROW_PASSES);
        ash_str_adds(writer->out, "}}");
        begin_span(writer, "pass", "pass", cut_end(span, DEPTH_PART), ROW_PASSES);
        ash_str_addf(writer->out,
                     "\"rows\":%llu,\"prefill_rows\":%llu,\"tokens\":%llu,\"requests\":%llu,\"running\":%llu,"
                     "\"waiting\":%llu,\"pages_held\":%llu,\"pages\":%llu}}",
                     (unsigned long long)pass->rows, (unsigned long long)pass->prefill_rows,
                     (unsigned long long)pass->tokens, (unsigned long long)pass->requests,
                     (unsigned long long)pass->running, (unsigned long long)pass->waiting,
                     (unsigned long long)pass->pages_held, (unsigned long long)pass->pages);
    }
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Returns how many requests it wrote, or -ENOMEM. */
static int write_server(struct writer *writer, const char *id)
{
    int rc = lay_out(writer, id);

    if (rc == 0 && writer->lane_count > 0) {
        write_names(writer);
        write_passes(writer, id == NULL);
        for (size_t i = 0; i < writer->lane_count; i++)
            write_request(writer, &writer->lanes[i]);
        for (size_t i = 0; i < writer->server->pieces.count; i++)
            write_piece(writer, ash_server_piece(writer->server, i));
        rc = (int)writer->lane_count;
    }
    free(writer->lanes);
    free(writer->row_ends);
    return rc;
}

/* When the first request came that is still in a ring. */
static int64_t find_start(const struct ash_server_set *set)
{
    int64_t start = INT64_MAX;

    for (size_t s = 0; s < set->count; s++)
        for (size_t i = 0; i < set->servers[s].requests.count; i++) {
            int64_t came = wall_of(&set->servers[s], ash_server_request(&set->servers[s], i)->submit_ns);

            start = came < start ? came : start;
        }
    return start;
}

int ash_serve_trace_write(const struct ash_server_set *set, const char *id, struct ash_str *out, struct ash_err *err)
{
    int64_t start_ns = find_start(set);
    bool has_event = false;
    int requests = 0;

    ash_str_adds(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (size_t s = 0; s < set->count; s++) {
        struct writer writer = {.out = out, .has_event = has_event, .start_ns = start_ns, .server = &set->servers[s]};
        int rc = write_server(&writer, id);

        if (rc < 0) return ash_err_set(err, rc, "no memory for the trace");
        has_event = writer.has_event;
        requests += rc;
    }
    if (requests == 0)
        return ash_err_set(err, -ENOENT, "no server recorded %s%s: its rings keep the last %d requests",
                           id != NULL ? "a request with this id: " : "a request", id != NULL ? id : "",
                           ASH_REQUEST_RING_CAPACITY);
    return ash_str_adds(out, "\n]}\n") < 0 ? ash_err_set(err, -ENOMEM, "no memory for the trace") : requests;
}
