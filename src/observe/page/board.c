/* A few threads poll all agents in turn, so that one that does not answer delays few; the page gets the latest data. */
#include "observe/page/board.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/math.h"
#include "base/thread.h"
#include "http/http.h"
#include "infra/topology/topology.h"
#include "http/fetch.h"
#include "observe/page/page.h"
#include "observe/page/recent.h"
#include "observe/page/run_curves.h"
#include "observe/page/servers.h"
#include "observe/ranks/rank_steps.h"
#include "observe/ranks/run_id.h"

#define ASKERS_MAX 16
#define ANSWER_S 2.0
#define ANSWER_BYTES_MAX ((size_t)16 << 20)
#define PERIOD_NS 500000000u
#define BOARD_BYTES_MAX ((size_t)256 << 20)
#define STEPS_SHOWN 256

struct asker {
    struct ash_board *board;
    size_t first; /* polls agents first, first + askers, ... */
    pthread_t thread;
    bool has_thread;
};

struct ash_board {
    struct ash_board_opts opts;
    struct ash_keys_opts keys_opts;
    struct ash_keys *keys;
    struct ash_http *http;
    struct asker askers[ASKERS_MAX];
    size_t asker_count;
    pthread_mutex_t lock;
    pthread_cond_t stopping;
    bool is_stopping;
    json_t **answers; /* [agent_count], NULL: none yet or it does not answer */
    bool *was_asked;
    struct ash_run_curves *runs; /* [run_count]; one request at a time reads them */
    char (*ids)[ASH_RUN_ID_BYTES];
    const char **run_ids; /* [run_count], of ids */
    pthread_mutex_t runs_lock;
    struct ash_topology *topology; /* NULL: none */
    char *frozen;
    size_t frozen_bytes;
};

/* ---- agents ------------------------------------------------------------------------------------------------------ */

/* Add the domain right above a node, if the topology has the node: by its name, or by an agent's address. */
static void add_domain(const struct ash_topology *topology, json_t *node)
{
    const char *name = json_string_value(json_object_get(node, "node"));
    char host[ASH_TOPOLOGY_NAME_MAX];
    int index = topology != NULL && name != NULL ? ash_topology_host(topology, name) : -1;

    if (index < 0 && topology != NULL && name != NULL) {
        snprintf(host, sizeof(host), "%.*s", (int)strcspn(name, ":"), name);
        index = ash_topology_host(topology, host);
    }
    if (index > 0 && topology->nodes[index].parent > 0)
        json_object_set_new(node, "domain", json_string(topology->nodes[topology->nodes[index].parent].name));
}

static void ask(struct ash_board *board, size_t index)
{
    struct ash_str body = {0};
    json_t *answer = NULL, *old;
    char url[512];
    int rc;

    ash_assert(index < board->opts.agent_count);
    snprintf(url, sizeof(url), "%s/v1/board", board->opts.agents[index]);
    rc = ash_fetch(url, board->opts.token, ANSWER_S, ANSWER_BYTES_MAX, &body, NULL);
    if (rc == 0 && ash_json_parse(body.data != NULL ? body.data : "", body.size_bytes, url, &answer, NULL) < 0)
        answer = NULL;
    add_domain(board->topology, json_array_get(json_object_get(answer, "nodes"), 0)); /* before others see it */
    ash_str_fini(&body);
    pthread_mutex_lock(&board->lock);
    old = board->answers[index];
    board->answers[index] = answer;
    board->was_asked[index] = true;
    pthread_mutex_unlock(&board->lock);
    json_decref(old);
}

static void *asker_main(void *arg)
{
    struct asker *asker = arg;
    struct ash_board *board = asker->board;
    bool is_stopping = false;

    while (!is_stopping) {
        struct timespec deadline = ash_cond_deadline(PERIOD_NS);
        int rc = 0;

        for (size_t i = asker->first; i < board->opts.agent_count && !is_stopping; i += board->asker_count) {
            ask(board, i);
            pthread_mutex_lock(&board->lock);
            is_stopping = board->is_stopping;
            pthread_mutex_unlock(&board->lock);
        }
        pthread_mutex_lock(&board->lock);
        while (!board->is_stopping && rc == 0)
            rc = pthread_cond_timedwait(&board->stopping, &board->lock, &deadline);
        is_stopping = board->is_stopping;
        pthread_mutex_unlock(&board->lock);
    }
    return NULL;
}

/* ---- data of the page -------------------------------------------------------------------------------------------- */

/* Returns whether an agent has the folder of ranks on this machine: then they are there already. */
static bool add_agents(struct ash_board *board, json_t *nodes, json_t *ranks, json_t *servers)
{
    char own[ASH_FOLDER_ID_BYTES] = "";
    bool has_own = false;

    if (board->opts.pages != NULL) ash_folder_id(board->opts.pages, own);
    pthread_mutex_lock(&board->lock);
    for (size_t i = 0; i < board->opts.agent_count; i++) {
        const char *address = board->opts.agents[i];

        if (board->answers[i] != NULL) {
            json_array_extend(nodes, json_object_get(board->answers[i], "nodes"));
            json_array_extend(ranks, json_object_get(board->answers[i], "ranks"));
            json_array_extend(servers, json_object_get(board->answers[i], "servers"));
            const char *pages = json_string_value(json_object_get(board->answers[i], "pages"));
            has_own |= own[0] != '\0' && pages != NULL && strcmp(pages, own) == 0;
        } else if (board->was_asked[i]) {
            json_t *node = json_pack("{s:s, s:s, s:[]}", "node", address, "status", "not answering", "findings");

            add_domain(board->topology, node);
            json_array_append_new(nodes, node);
        }
    }
    pthread_mutex_unlock(&board->lock);
    return has_own;
}

/* Ranks of the runs that are named, ended or not; without names those that run, and those that have just ended. */
static void add_processes(struct ash_board *board, json_t *nodes, json_t *ranks, json_t *servers)
{
    bool has_own = add_agents(board, nodes, ranks, servers);

    if (!has_own && board->opts.pages != NULL) {
        ash_rank_steps_json(board->opts.pages, STEPS_SHOWN, ranks);
        ash_servers_json(board->opts.pages, servers);
    }
    if (board->opts.run_count > 0)
        ash_recent_keep_runs(ranks, board->run_ids, board->opts.run_count);
    else
        ash_recent_keep(ranks, ash_clock_wall_s());
    ash_recent_keep(servers, ash_clock_wall_s());
}

static void add_runs(struct ash_board *board, json_t *runs)
{
    pthread_mutex_lock(&board->runs_lock);
    for (size_t i = 0; i < board->opts.run_count; i++) {
        ash_run_curves_read(&board->runs[i], NULL);
        json_array_append_new(runs, ash_run_curves_json(&board->runs[i]));
    }
    pthread_mutex_unlock(&board->runs_lock);
}

static void send_board(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_board *board = ctx;
    json_t *nodes = json_array(), *ranks = json_array(), *runs = json_array(), *servers = json_array(), *json;
    struct ash_str body = {0};
    char *text = NULL;

    if (board->frozen == NULL) {
        add_processes(board, nodes, ranks, servers);
        add_runs(board, runs);
        json = json_pack("{s:O, s:O, s:O, s:O}", "nodes", nodes, "ranks", ranks, "runs", runs, "servers", servers);
        text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
        json_decref(json);
        if (text != NULL)
            body = (struct ash_str){.data = text, .size_bytes = strlen(text), .capacity_bytes = strlen(text) + 1};
    } else {
        ash_str_add(&body, board->frozen, board->frozen_bytes);
    }
    json_decref(nodes), json_decref(ranks), json_decref(runs), json_decref(servers);
    ash_http_add_header(exchange, "Cache-Control", "no-store");
    ash_http_respond(exchange, body.data != NULL ? 200 : 503, "application/json", &body);
}

/* The agent of a node, by the node's name, in address; whether there is one. */
static bool find_agent(struct ash_board *board, const char *node, char *address, size_t address_bytes)
{
    bool is_found = false;

    pthread_mutex_lock(&board->lock);
    for (size_t i = 0; i < board->opts.agent_count && !is_found; i++) {
        const json_t *first = json_array_get(json_object_get(board->answers[i], "nodes"), 0);
        const char *name = json_string_value(json_object_get(first, "node"));

        is_found = name != NULL && strcmp(name, node) == 0;
        if (is_found) snprintf(address, address_bytes, "%s/v1/parts", board->opts.agents[i]);
    }
    pthread_mutex_unlock(&board->lock);
    return is_found;
}

/* Parts of a node, from its agent. */
static void send_parts(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_board *board = ctx;
    const char *node = ash_http_query(exchange, "node");
    struct ash_str body = {0};
    char url[512];
    int rc = node != NULL && find_agent(board, node, url, sizeof(url)) ? 0 : -ENOENT;

    if (rc == 0) rc = ash_fetch(url, board->opts.token, ANSWER_S, ANSWER_BYTES_MAX, &body, NULL);
    if (rc < 0) {
        ash_str_clear(&body);
        ash_str_adds(&body, "{\"parts\":[]}");
    }
    ash_http_add_header(exchange, "Cache-Control", "no-store");
    ash_http_respond(exchange, 200, "application/json", &body);
}

static void send_refusal(void *ctx, struct ash_http_exchange *exchange, unsigned status, const char *code,
                         const char *text)
{
    struct ash_str body = {0};

    (void)ctx, (void)code;
    ash_str_addf(&body, "%s\n", text);
    ash_http_respond(exchange, status, ASH_HTTP_TYPE_TEXT, &body);
}

static const struct ash_http_route routes[] = {
    {.method = "GET", .path = "/v1/board", .handle = send_board},
    {.method = "GET", .path = "/v1/parts", .handle = send_parts},
    {.method = "GET", .path = "/", .handle = ash_board_page_respond, .is_open = true, .is_quick = true},
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int read_frozen(struct ash_board *board, struct ash_err *err)
{
    json_t *json = NULL;
    int rc;

    if (board->opts.frozen == NULL) return 0;
    rc = ash_file_read(board->opts.frozen, BOARD_BYTES_MAX, &board->frozen, &board->frozen_bytes, err);
    if (rc == 0) rc = ash_json_parse(board->frozen, board->frozen_bytes, board->opts.frozen, &json, err);
    if (rc == 0 && !json_is_array(json_object_get(json, "nodes")))
        rc = ash_err_set(err, -EINVAL, "%s: this is no board: it has no nodes", board->opts.frozen);
    json_decref(json);
    return rc;
}

static int serve(struct ash_board *board, struct ash_err *err)
{
    struct ash_http_opts opts = ash_http_defaults();
    int rc = ash_keys_open(&board->keys_opts, &board->keys, err);

    if (rc < 0) return rc;
    opts.host = board->opts.host;
    opts.port = board->opts.port;
    opts.names = board->opts.names;
    opts.name_count = board->opts.name_count;
    opts.connections_max = 64;
    opts.body_bytes_max = 4096;
    opts.logs_access = false;
    opts.keys = board->keys;
    opts.routes = routes;
    opts.route_count = ASH_COUNT(routes);
    opts.refuse = send_refusal;
    opts.ctx = board;
    return ash_http_open(&opts, &board->http, err);
}

static int start_askers(struct ash_board *board, struct ash_err *err)
{
    int rc = 0;

    board->asker_count = ash_min(board->opts.agent_count, (size_t)ASKERS_MAX);
    for (size_t i = 0; i < board->asker_count && rc == 0; i++) {
        board->askers[i] = (struct asker){.board = board, .first = i};
        rc = ash_thread_start(&board->askers[i].thread, asker_main, &board->askers[i]);
        board->askers[i].has_thread = rc == 0;
    }
    return rc < 0 ? ash_err_set(err, rc, "cannot start a thread: %s", strerror(-rc)) : 0;
}

/* All of a log that is there, so that the first request finds it read. */
static int read_whole(struct ash_run_curves *run, struct ash_err *err)
{
    uint64_t before;
    int rc;

    do {
        before = run->offset;
        rc = ash_run_curves_read(run, err);
    } while (rc == 0 && run->offset > before);
    return rc;
}

int ash_board_open(const struct ash_board_opts *opts, struct ash_board **board_out, struct ash_err *err)
{
    struct ash_board *board = calloc(1, sizeof(*board));
    int rc;

    if (board == NULL) return ash_err_set(err, -ENOMEM, "no memory for the page");
    board->opts = *opts;
    pthread_mutex_init(&board->lock, NULL);
    pthread_mutex_init(&board->runs_lock, NULL);
    ash_cond_init(&board->stopping);
    board->answers = calloc(opts->agent_count + 1, sizeof(*board->answers));
    board->was_asked = calloc(opts->agent_count + 1, sizeof(*board->was_asked));
    board->runs = calloc(opts->run_count + 1, sizeof(*board->runs));
    board->ids = calloc(opts->run_count + 1, sizeof(*board->ids));
    board->run_ids = calloc(opts->run_count + 1, sizeof(*board->run_ids));
    rc = board->answers != NULL && board->was_asked != NULL && board->runs != NULL && board->ids != NULL &&
                 board->run_ids != NULL
             ? 0
             : ash_err_set(err, -ENOMEM, "no memory for the page");
    for (size_t i = 0; rc == 0 && i < opts->run_count; i++) {
        board->run_ids[i] = ash_run_id(opts->runs[i], board->ids[i]);
        ash_run_curves_init(&board->runs[i], opts->runs[i]);
        rc = read_whole(&board->runs[i], err);
    }
    if (rc == 0 && opts->topology != NULL) rc = ash_topology_open(opts->topology, &board->topology, err);
    if (rc == 0) rc = read_frozen(board, err);
    if (rc == 0) rc = serve(board, err);
    if (rc == 0) rc = start_askers(board, err);
    if (rc < 0) goto fail;
    *board_out = board;
    return 0;

fail:
    ash_board_close(board);
    return rc;
}

void ash_board_close(struct ash_board *board)
{
    if (board == NULL) return;
    pthread_mutex_lock(&board->lock);
    board->is_stopping = true;
    pthread_cond_broadcast(&board->stopping);
    pthread_mutex_unlock(&board->lock);
    for (size_t i = 0; i < board->asker_count; i++)
        if (board->askers[i].has_thread) pthread_join(board->askers[i].thread, NULL);
    ash_http_close(board->http);
    ash_keys_close(board->keys);
    for (size_t i = 0; board->answers != NULL && i < board->opts.agent_count; i++)
        json_decref(board->answers[i]);
    for (size_t i = 0; board->runs != NULL && i < board->opts.run_count; i++)
        ash_run_curves_fini(&board->runs[i]);
    free(board->answers);
    free(board->was_asked);
    free(board->runs);
    free(board->ids);
    free(board->run_ids);
    ash_topology_close(board->topology);
    free(board->frozen);
    pthread_cond_destroy(&board->stopping);
    pthread_mutex_destroy(&board->lock);
    pthread_mutex_destroy(&board->runs_lock);
    free(board);
}

int ash_board_port(const struct ash_board *board)
{
    return ash_http_port(board->http);
}
