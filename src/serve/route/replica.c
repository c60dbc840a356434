/* Replicas: added, drained, lost, chosen. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "serve/route/route_priv.h"

ASH_COUNTER(requests_family, "ashlar_route_requests_total", "requests sent to a replica");
ASH_COUNTER(errors_family, "ashlar_route_errors_total", "requests that a replica lost, or looks that failed");
ASH_GAUGE(in_flight_family, "ashlar_route_in_flight", "requests that a replica is answering");
ASH_GAUGE(up_family, "ashlar_route_up", "1 if a replica takes requests");
ASH_COUNTER(prompt_family, "ashlar_route_prompt_tokens_total", "tokens of prompts, as a replica counts them");
ASH_COUNTER(cached_family, "ashlar_route_cached_tokens_total", "those of them that a replica had in its cache");

ASH_GAUGE(events_family, "ashlar_route_kv_events", "1 if a replica says what its cache holds");
ASH_GAUGE(known_family, "ashlar_route_known_blocks", "blocks of prompts that a replica holds, as the router knows");

static const char *const state_names[] = {"new", "up", "busy", "lost"};

const char *ash_replica_state_name(const struct ash_replica *replica)
{
    if (!replica->is_draining && !replica->is_held) return state_names[replica->state];
    return replica->in_flight > 0 ? "draining" : "drained";
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int open_metrics(struct ash_replica *replica)
{
    struct ash_str labels = {0};
    struct ash_route_models *models = replica->router->opts.models;
    int rc;

    if (models == NULL)
        rc = ash_metric_add_label(&labels, "replica", replica->target.name);
    else /* its server has another port each time: they would never end */
        rc = ash_metric_add_label(&labels, "model", ash_route_models_get(models, replica->target.model).name);

    if (rc == 0) {
        replica->requests_total = ash_metric_with(&requests_family, labels.data);
        replica->errors_total = ash_metric_with(&errors_family, labels.data);
        replica->in_flight_gauge = ash_metric_with(&in_flight_family, labels.data);
        replica->up_gauge = ash_metric_with(&up_family, labels.data);
        replica->prompt_total = ash_metric_with(&prompt_family, labels.data);
        replica->cached_total = ash_metric_with(&cached_family, labels.data);
        replica->events_gauge = ash_metric_with(&events_family, labels.data);
        replica->known_gauge = ash_metric_with(&known_family, labels.data);
        ash_metric_set(replica->up_gauge, 0);
        ash_metric_set(replica->events_gauge, 0);
        ash_metric_set(replica->known_gauge, 0);
        ash_metric_set(replica->in_flight_gauge, 0);
    }
    ash_str_fini(&labels);
    return rc;
}

struct ash_replica *ash_replica_add(struct ash_router *router, const struct ash_route_target *target, bool is_listed)
{
    struct ash_replica *replica = calloc(1, sizeof(*replica)), **end = &router->replicas;

    if (replica == NULL) return NULL;
    replica->router = router;
    replica->target = *target;
    replica->is_listed = is_listed;
    replica->id = ++router->next_id;
    if (ash_route_index_open(router->opts.index_blocks, &replica->index) < 0 || open_metrics(replica) < 0) {
        ash_route_index_close(replica->index);
        free(replica);
        return NULL;
    }
    while (*end != NULL)
        end = &(*end)->next;
    *end = replica;
    ash_log(ASH_LOG_INFO, "replica %s is added", target->name);
    return replica;
}

struct ash_replica *ash_replica_find(struct ash_router *router, const char *name)
{
    struct ash_replica *replica = router->replicas;

    while (replica != NULL && strcmp(replica->target.name, name) != 0)
        replica = replica->next;
    return replica;
}

void ash_replica_drain(struct ash_replica *replica)
{
    if (!replica->is_draining && !replica->is_held)
        ash_log(ASH_LOG_INFO, "replica %s gets no new requests; it is answering %zu", replica->target.name,
                replica->in_flight);
    replica->is_held = replica->is_listed;
    replica->is_draining = !replica->is_listed;
    ash_router_recount(replica->router);
}

void ash_replica_free(struct ash_replica *replica)
{
    struct ash_replica **link = &replica->router->replicas;

    ash_assert(replica->in_flight == 0);
    while (*link != replica)
        link = &(*link)->next;
    *link = replica->next;
    while (replica->conns != NULL)
        ash_route_conn_close(replica->conns);
    ash_metric_set(replica->up_gauge, 0);
    ash_metric_set(replica->events_gauge, 0);
    ash_metric_set(replica->known_gauge, 0);
    ash_route_index_close(replica->index);
    ash_route_held_fini(&replica->held);
    ash_route_held_fini(&replica->computing);
    ash_str_fini(&replica->events_part);
    json_decref(replica->models);
    free(replica);
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

void ash_replica_set_state(struct ash_replica *replica, enum ash_replica_state state, const char *why)
{
    enum ash_replica_state before = replica->state;

    snprintf(replica->why, sizeof(replica->why), "%s", why != NULL ? why : "");
    replica->state = state;
    if (before == state) return;
    ash_metric_set(replica->up_gauge, state == ASH_REPLICA_UP);
    if (state == ASH_REPLICA_UP && replica->router->opts.models != NULL)
        ash_route_models_note_loaded(replica->router->opts.models, replica->target.model);
    if (state == ASH_REPLICA_UP)
        ash_log(ASH_LOG_INFO, "replica %s is up", replica->target.name);
    else
        ash_log(before == ASH_REPLICA_UP ? ASH_LOG_WARN : ASH_LOG_INFO, "replica %s is %s: %s", replica->target.name,
                before == ASH_REPLICA_NEW ? "not up yet" : state_names[state], replica->why);
    if (state == ASH_REPLICA_LOST) ash_replica_forget(replica);
    ash_router_recount(replica->router);
}

void ash_replica_count_error(struct ash_replica *replica)
{
    replica->errors++;
    ash_metric_add(replica->errors_total, 1);
}

void ash_replica_suspect(struct ash_replica *replica, int rc)
{
    ash_replica_count_error(replica);
    replica->probe_due_ns = 0;
    if (replica->state == ASH_REPLICA_UP) ash_replica_set_state(replica, ASH_REPLICA_LOST, strerror(-rc));
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */

static bool was_tried(const struct ash_route_call *call, const struct ash_replica *replica)
{
    for (size_t i = 0; i < call->try_count; i++)
        if (call->tried[i] == replica->id) return true;
    return false;
}

/* Does its list have the model? Of a replica without a list it is not known. */
static bool has_model(const struct ash_replica *replica, const char *model)
{
    if (replica->models == NULL || model[0] == '\0') return true;
    for (size_t i = 0; i < json_array_size(replica->models); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(replica->models, i), "id"));

        if (id != NULL && strcmp(id, model) == 0) return true;
    }
    return false;
}

static size_t count_all(const struct ash_router *router)
{
    size_t count = 0;

    for (const struct ash_replica *replica = router->replicas; replica != NULL; replica = replica->next)
        count++;
    return count;
}

/* Which ones of the replicas may get the call: those with its model, or also others; of one role, or of all. */
struct choice {
    bool by_model, prefills, answers;
};

/* Does it do what the choice is about? Admins' calls are for all. */
static bool has_role(const struct ash_replica *replica, const struct ash_route_call *call, struct choice choice)
{
    bool prefills = replica->role == ASH_API_PREFILL;

    return call->goes_to_all || (prefills && choice.prefills) || (!prefills && choice.answers);
}

/* Returns how many. */
static size_t list_candidates(struct ash_router *router, const struct ash_route_call *call, struct choice choice,
                              struct ash_route_candidate *candidates)
{
    const struct ash_route_prompt *prompt = &call->prompt;
    size_t i = 0, usable = 0;

    for (struct ash_replica *replica = router->replicas; replica != NULL; replica = replica->next, i++) {
        struct ash_route_candidate *one = &candidates[i];

        *one = (struct ash_route_candidate){.in_flight = replica->in_flight, .turn = replica->turn};
        one->is_usable = ash_replica_is_usable(replica) && !was_tried(call, replica) &&
                         (call->model == ASH_ROUTE_NO_MODEL || call->model == replica->target.model) &&
                         has_role(replica, call, choice) && (!choice.by_model || has_model(replica, prompt->model));
        usable += one->is_usable;
        if (one->is_usable && router->opts.policy == ASH_ROUTE_PREFIX)
            one->known_blocks = ash_replica_match(replica, &prompt->blocks);
    }
    return usable;
}

/* Choose among those that the first of choices [count] finds. */
static struct ash_replica *choose(struct ash_router *router, struct ash_route_call *call, const struct choice *choices,
                                  size_t choice_count)
{
    struct ash_route_candidate few[16] = {{0}};
    size_t count = count_all(router), chosen, usable = 0;
    struct ash_route_candidate *candidates = count <= 16 ? few : calloc(count, sizeof(*candidates));
    struct ash_replica *replica = router->replicas;

    if (candidates == NULL) return NULL;
    for (size_t i = 0; i < choice_count && usable == 0; i++)
        usable = list_candidates(router, call, choices[i], candidates);
    chosen = ash_route_choose(router->opts.policy, candidates, count);
    if (chosen != ASH_ROUTE_NONE) call->known_blocks = candidates[chosen].known_blocks;
    if (candidates != few) free(candidates);
    if (chosen == ASH_ROUTE_NONE) return NULL;
    for (size_t i = 0; i < chosen; i++)
        replica = replica->next;
    replica->turn = ++router->turn;
    return replica;
}

struct ash_replica *ash_replica_choose(struct ash_router *router, struct ash_route_call *call)
{
    /* a prefill server answers, too, if there is no other */
    static const struct choice choices[] = {
        {true, false, true}, {false, false, true}, {true, true, false}, {false, true, false}};

    return choose(router, call, choices, ASH_COUNT(choices));
}

struct ash_replica *ash_replica_choose_prefill(struct ash_router *router, struct ash_route_call *call)
{
    static const struct choice choices[] = {{true, true, false}, {false, true, false}};

    return choose(router, call, choices, ASH_COUNT(choices));
}
