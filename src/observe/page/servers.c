/* Curves and percentiles come from the rings themselves: a page that is opened late sees the last minutes too. */
#include "observe/page/servers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"

#define WINDOW_S 300.0 /* of the curves */
#define BUCKET_S 5.0
#define BUCKETS 60
#define REQUESTS_SHOWN 20
#define LATENCIES 1024 /* requests that percentiles are of, at most */

/* ---- times ------------------------------------------------------------------------------------------------------- */

static double seconds_of(const struct ash_server_rings *server, uint64_t clock_ns)
{
    return (double)(int64_t)(clock_ns + (uint64_t)server->requests.wall_ns) * 1e-9;
}

/* Seconds between two times of a record; NaN where one has not come. */
static double between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns == 0 || to_ns < from_ns ? NAN : (double)(to_ns - from_ns) * 1e-9;
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* ---- percentiles ------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

/* [p50, p90, p99] of the numbers; nulls if there are none. */
static json_t *percentiles(double *values, size_t count)
{
    static const double shares[] = {0.5, 0.9, 0.99};
    json_t *list = json_array();
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) values[kept++] = values[i];
    qsort(values, kept, sizeof(*values), compare);
    for (size_t i = 0; i < 3; i++)
        json_array_append_new(list, number(kept > 0 ? values[(size_t)(shares[i] * (double)(kept - 1) + 0.5)] : NAN));
    return list;
}

static double first_token_s(const struct ash_request_record *request)
{
    return between(request->submit_ns, request->first_ns);
}

static double queue_s(const struct ash_request_record *request)
{
    return between(request->submit_ns, request->start_ns);
}

/* Mean time between its tokens. */
static double inter_token_s(const struct ash_request_record *request)
{
    return request->answer_tokens > 1
               ? between(request->first_ns, request->last_ns) / (double)(request->answer_tokens - 1)
               : NAN;
}

static json_t *latencies(const struct ash_server_rings *server, double (*of)(const struct ash_request_record *))
{
    size_t count = ash_min(server->requests.count, LATENCIES), skipped = server->requests.count - count;
    double values[LATENCIES];

    for (size_t i = 0; i < count; i++)
        values[i] = of(ash_server_request(server, skipped + i));
    return percentiles(values, count);
}

/* ---- curves ------------------------------------------------------------------------------------------------------ */

struct curve {
    double answer[BUCKETS], prompt[BUCKETS];   /* tokens */
    double running[BUCKETS], waiting[BUCKETS]; /* the most */
    double held[BUCKETS];                      /* share of the cache's pages, the most */
};

static void add_most(double *place, double value)
{
    if (value > *place) *place = value;
}

static void add_pass(struct curve *curve, const struct ash_pass_record *pass, double ago_s)
{
    size_t bucket;

    if (!(ago_s >= 0) || ago_s >= WINDOW_S) return;
    bucket = BUCKETS - 1 - (size_t)(ago_s / BUCKET_S);
    ash_assert(bucket < BUCKETS);
    curve->answer[bucket] += (double)pass->tokens;
    curve->prompt[bucket] += (double)pass->prefill_rows;
    add_most(&curve->running[bucket], (double)pass->requests);
    add_most(&curve->waiting[bucket], (double)pass->waiting);
    if (pass->pages > 0) add_most(&curve->held[bucket], (double)pass->pages_held / (double)pass->pages);
}

/* [[seconds from now (negative), value], ...] */
static json_t *points(const double *values, double scale)
{
    json_t *list = json_array();

    for (size_t i = 0; i < BUCKETS; i++)
        json_array_append_new(list, json_pack("[f,f]", ((double)i + 1 - BUCKETS) * BUCKET_S,
                                              isfinite(values[i]) ? values[i] * scale : 0));
    return list;
}

static void set_curves(json_t *json, const struct ash_server_rings *server, double now_s)
{
    struct curve curve = {0};

    for (size_t i = 0; i < server->passes.count; i++) {
        const struct ash_pass_record *pass = ash_server_pass(server, i);

        add_pass(&curve, pass, now_s - seconds_of(server, pass->end_ns));
    }
    json_object_set_new(json, "answer_tokens_s", points(curve.answer, 1 / BUCKET_S));
    json_object_set_new(json, "prompt_tokens_s", points(curve.prompt, 1 / BUCKET_S));
    json_object_set_new(json, "running", points(curve.running, 1));
    json_object_set_new(json, "waiting", points(curve.waiting, 1));
    json_object_set_new(json, "held", points(curve.held, 1));
}

/* ---- how it stands ----------------------------------------------------------------------------------------------- */

static json_t *now_json(const struct ash_server_rings *server)
{
    struct ash_pass_record last = {0};
    double hits, queries;

    if (server->passes.count > 0) last = *ash_server_pass(server, server->passes.count - 1);
    hits = (double)last.prefix_hits, queries = (double)last.prefix_queries;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:o, s:f}", "running", (double)last.running, "waiting",
                     (double)last.waiting, "pages", (double)last.pages, "held", (double)last.pages_held, "passes",
                     (double)server->passes.added, "hit_share", number(queries > 0 ? hits / queries : NAN),
                     "preemptions", (double)last.preemptions);
}

static json_t *requests_json(const struct ash_server_rings *server, double now_s)
{
    size_t count = ash_min(server->requests.count, REQUESTS_SHOWN);
    json_t *list = json_array();
    char id[ASH_REQUEST_ID_BYTES + 1];

    for (size_t i = 0; i < count; i++) {
        const struct ash_request_record *request = ash_server_request(server, server->requests.count - 1 - i);

        json_array_append_new(
            list, json_pack("{s:s, s:s, s:o, s:f, s:f, s:f, s:o, s:o, s:o}", "id", ash_request_id_text(request, id),
                            "outcome", ash_request_outcome_name(request->outcome), "ago",
                            number(now_s - seconds_of(server, request->submit_ns)), "prompt",
                            (double)request->prompt_tokens, "cached", (double)request->cached_tokens, "answer",
                            (double)request->answer_tokens, "queue", number(queue_s(request)), "first",
                            number(first_token_s(request)), "inter", number(inter_token_s(request))));
    }
    return list;
}

/* The end of the last pass, in seconds since 1970; 0: there was none. */
static double seen_s(const struct ash_server_rings *server)
{
    return server->passes.count > 0 ? seconds_of(server, ash_server_pass(server, server->passes.count - 1)->end_ns) : 0;
}

json_t *ash_server_json(const struct ash_server_rings *server, double now_s)
{
    struct ash_request_record plain = {0};
    char name[ASH_REQUEST_ID_BYTES + 1];
    json_t *json;

    memcpy(plain.id, server->name, strnlen(server->name, sizeof(plain.id)));
    json = json_pack("{s:s, s:i, s:b, s:f, s:o, s:o}", "name", ash_request_id_text(&plain, name), "pid",
                     (int)server->pid, "alive", server->is_alive, "requests", (double)server->requests.added, "now",
                     now_json(server), "last", requests_json(server, now_s));
    if (json == NULL) return NULL;
    json_object_set_new(json, "first", latencies(server, first_token_s));
    json_object_set_new(json, "inter", latencies(server, inter_token_s));
    json_object_set_new(json, "queue", latencies(server, queue_s));
    json_object_set_new(json, "seen", json_real(isfinite(seen_s(server)) ? seen_s(server) : 0));
    set_curves(json, server, now_s);
    return json;
}

void ash_servers_json(const char *dir, json_t *servers)
{
    struct ash_server_set set = {0};
    double now_s = ash_clock_wall_s();

    if (ash_server_set_load(&set, dir, false, NULL) < 0) return;
    for (size_t i = 0; i < set.count; i++)
        json_array_append_new(servers, ash_server_json(&set.servers[i], now_s));
    ash_server_set_fini(&set);
}
