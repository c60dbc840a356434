/* desk: its life, and the calls of the thread that trains. */
#include "post/rl/desk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mac.h"
#include "base/socket.h"
#include "base/thread.h"
#include "post/rl/desk_priv.h"

#define FILE_NAME "samplers.json"
#define WAIT_NS 200000000u

static int file_path(const char *dir, char path[PATH_MAX])
{
    return ash_path_join(path, PATH_MAX, dir, FILE_NAME);
}

int ash_desk_find(const char *dir, struct ash_desk_place *place_out)
{
    struct ash_desk_place place = {0};
    char path[PATH_MAX];
    const char *host = NULL;
    json_t *json = NULL;
    int rc = file_path(dir, path);

    if (rc < 0 || !ash_path_exists(path)) return -ENOENT;
    if (ash_json_load(path, &json, NULL) < 0) return -EBADMSG;
    rc = ash_json_string(json, "host", &host, NULL) > 0 &&
                 ash_json_int(json, "port", 1, 65535, &place.port, NULL) > 0 &&
                 ash_json_int(json, "key", 0, INT64_MAX, &place.key, NULL) > 0
             ? 0
             : -EBADMSG;
    if (rc == 0) snprintf(place.host, sizeof(place.host), "%s", host);
    json_decref(json);
    if (rc == 0) *place_out = place;
    return rc;
}

/* A loopback address is reached from this machine alone, as the job's ranks are. */
static int write_place(const struct ash_desk *desk, struct ash_err *err)
{
    char host[ASH_SOCKET_ADDR_BYTES] = "127.0.0.1", path[PATH_MAX];
    uint64_t key = 0;
    json_t *json;
    int rc = file_path(desk->dir, path);

    if (rc == 0 && ash_socket_job_host(desk->opts.host) == NULL)
        rc = ash_socket_address_towards(desk->opts.host, host, sizeof(host));
    if (rc == 0) rc = ash_mac_random(&key, sizeof(key));
    if (rc < 0) return ash_err_set(err, rc, "samplers cannot be told where this rank is: %s", strerror(-rc));
    json = json_pack("{s:s, s:i, s:I}", "host", host, "port", ash_socket_port(desk->listen_fd), "key",
                     (json_int_t)(key >> 1));
    rc = ash_json_save(path, json, err);
    json_decref(json);
    return rc;
}

static int open_sockets(struct ash_desk *desk, struct ash_err *err)
{
    desk->listen_fd = ash_socket_listen(ash_socket_job_host(desk->opts.host), 0, err);
    if (desk->listen_fd < 0) return desk->listen_fd;
    fcntl(desk->listen_fd, F_SETFL, fcntl(desk->listen_fd, F_GETFL) | O_NONBLOCK);
    if (pipe2(desk->wake_fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return ash_err_set(err, -errno, "no pipe for samplers: %s", strerror(errno));
    return write_place(desk, err);
}

int ash_desk_open(const struct ash_desk_opts *opts, struct ash_desk **desk_out, struct ash_err *err)
{
    struct ash_desk *desk = calloc(1, sizeof(*desk));
    int rc;

    if (desk == NULL) return ash_err_set(err, -ENOMEM, "out of memory for samplers");
    desk->listen_fd = desk->wake_fds[0] = desk->wake_fds[1] = -1;
    desk->opts = *opts;
    desk->dir = strdup(opts->dir);
    desk->facts = strdup(opts->facts);
    desk->weights = malloc(opts->weights_bytes + 1);
    desk->seen_ns = ash_clock_ns();
    rc = desk->dir == NULL || desk->facts == NULL || desk->weights == NULL || ash_cond_init(&desk->changed) < 0
             ? ash_err_set(err, -ENOMEM, "out of memory for samplers")
             : 0;
    if (rc < 0) goto fail;
    pthread_mutex_init(&desk->lock, NULL);
    desk->has_lock = true;
    if (opts->weights_bytes > 0) memcpy(desk->weights, opts->weights, opts->weights_bytes);
    rc = open_sockets(desk, err);
    if (rc < 0) goto fail;
    rc = ash_thread_start(&desk->thread, ash_desk_serve, desk);
    if (rc < 0) {
        ash_err_set(err, rc, "no thread for samplers: %s", strerror(-rc));
        goto fail;
    }
    desk->has_thread = true;
    *desk_out = desk;
    return 0;

fail:
    ash_desk_close(desk);
    return rc;
}

static void wake(const struct ash_desk *desk)
{
    if (write(desk->wake_fds[1], "", 1) < 0) return; /* it is full: the thread wakes all the same */
}

void ash_desk_close(struct ash_desk *desk)
{
    if (desk == NULL) return;
    if (desk->has_thread) {
        pthread_mutex_lock(&desk->lock);
        desk->ends = true;
        pthread_mutex_unlock(&desk->lock);
        wake(desk);
        pthread_join(desk->thread, NULL);
    }
    for (size_t i = 0; i < desk->sampler_count; i++) {
        if (desk->samplers[i].fd >= 0) close(desk->samplers[i].fd);
        ash_str_fini(&desk->samplers[i].in);
        ash_str_fini(&desk->samplers[i].out);
    }
    free(desk->samplers);
    if (desk->has_lock) {
        ash_desk_forget(desk);
        pthread_mutex_destroy(&desk->lock);
        pthread_cond_destroy(&desk->changed);
    }
    if (desk->listen_fd >= 0) close(desk->listen_fd);
    for (size_t i = 0; i < 2; i++)
        if (desk->wake_fds[i] >= 0) close(desk->wake_fds[i]);
    free(desk->dir);
    free(desk->facts);
    free(desk->weights);
    free(desk);
}

void ash_desk_hold(struct ash_desk *desk)
{
    if (desk != NULL) pthread_mutex_lock(&desk->lock);
}

void ash_desk_release(struct ash_desk *desk)
{
    if (desk != NULL) pthread_mutex_unlock(&desk->lock);
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

/* The groups of an order's tasks. */
static int list_groups(struct ash_desk_order *order)
{
    struct ash_wire_reader reader = {(const uint8_t *)order->tasks.data, order->tasks.size_bytes, 0};
    struct ash_wire_task task;
    size_t first = 0;
    int rc;

    while ((rc = ash_wire_next_task(&reader, &task)) > 0) {
        struct ash_desk_group *group = order->count > 0 ? &order->groups[order->count - 1] : NULL;

        if (group == NULL || group->number != task.group) {
            if (ash_array_reserve(&order->groups, &order->room, order->count + 1, sizeof(*group)) < 0) return -ENOMEM;
            group = &order->groups[order->count++];
            *group = (struct ash_desk_group){.number = task.group, .first = first};
        }
        group->count++;
        group->bytes = reader.at - group->first;
        first = reader.at;
    }
    return rc;
}

/* The last one of all. */
static void append(struct ash_desk *desk, struct ash_desk_order *order)
{
    struct ash_desk_order **end = &desk->orders;

    while (*end != NULL) {
        ash_assert((*end)->id < order->id);
        end = &(*end)->next;
    }
    *end = order;
}

int ash_desk_submit(struct ash_desk *desk, uint64_t id, const struct ash_wire_work *work, const struct ash_str *tasks,
                    struct ash_err *err)
{
    struct ash_desk_order *order = calloc(1, sizeof(*order));
    int rc = order == NULL ? -ENOMEM : ash_str_add(&order->tasks, tasks->data, tasks->size_bytes);

    if (rc == 0) rc = list_groups(order);
    if (rc < 0) {
        ash_desk_free_order(order);
        return ash_err_set(err, rc, "answers cannot be handed out: %s", strerror(-rc));
    }
    order->id = id;
    order->work = *work;
    pthread_mutex_lock(&desk->lock);
    append(desk, order);
    pthread_mutex_unlock(&desk->lock);
    wake(desk);
    return 0;
}

/* Under the lock: the same groups, without tasks. */
static int copy_groups(const struct ash_desk_order *before, struct ash_desk_order *order)
{
    ash_assert(before != NULL);
    if (ash_array_reserve(&order->groups, &order->room, before->count, sizeof(*order->groups)) < 0) return -ENOMEM;
    for (size_t g = 0; g < before->count; g++)
        order->groups[g] = (struct ash_desk_group){.number = before->groups[g].number, .state = ASH_DESK_BLOCKED};
    order->count = before->count;
    return 0;
}

int ash_desk_follow(struct ash_desk *desk, uint64_t id, const struct ash_wire_work *work,
                    const struct ash_desk_continued *continued, struct ash_err *err)
{
    struct ash_desk_order *order = calloc(1, sizeof(*order)), *before;
    int rc = order == NULL ? -ENOMEM : 0;

    pthread_mutex_lock(&desk->lock);
    before = desk->orders;
    while (before != NULL && before->id != continued->order)
        before = before->next;
    if (rc == 0) rc = copy_groups(before, order);
    if (rc == 0) {
        order->id = id;
        order->work = *work;
        order->continued = *continued;
        append(desk, order);
    } else {
        ash_desk_free_order(order);
    }
    pthread_mutex_unlock(&desk->lock);
    if (rc < 0) return ash_err_set(err, rc, "answers cannot be handed out: %s", strerror(-rc));
    wake(desk);
    return 0;
}

/* Under the lock: until all groups are drawn. */
static int await_done(struct ash_desk *desk, const struct ash_desk_order *order, struct ash_err *err)
{
    uint64_t limit_ns = (uint64_t)(desk->opts.patience_s * 1e9);

    while (order->done < order->count) {
        struct timespec deadline = ash_cond_deadline(WAIT_NS);

        if (ash_clock_ns() - desk->seen_ns > limit_ns && ash_clock_ns() > desk->seen_ns)
            return ash_err_set(err, -ETIMEDOUT,
                               "no sampler has answered for %g s (rollout.patience): start some with `ashlar rl "
                               "--sampler --out %s`, or all of the job again with --resume",
                               desk->opts.patience_s, desk->dir);
        pthread_cond_timedwait(&desk->changed, &desk->lock, &deadline);
    }
    return 0;
}

static int take_all(const struct ash_desk_order *order, int (*take)(void *ctx, const struct ash_wire_answer *answer),
                    void *ctx)
{
    int rc = 0;

    for (size_t g = 0; rc == 0 && g < order->count; g++) {
        const struct ash_str *answers = &order->groups[g].answers;
        struct ash_wire_reader reader = {(const uint8_t *)answers->data, answers->size_bytes, 0};
        struct ash_wire_answer answer;

        while (rc == 0 && (rc = ash_wire_next_answer(&reader, &answer)) > 0)
            rc = take(ctx, &answer);
    }
    return rc;
}

int ash_desk_wait(struct ash_desk *desk, uint64_t id, int (*take)(void *ctx, const struct ash_wire_answer *answer),
                  void *ctx, struct ash_err *err)
{
    struct ash_desk_order **at = &desk->orders, *order;
    int rc;

    pthread_mutex_lock(&desk->lock);
    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    order = *at;
    rc = order == NULL ? ash_err_set(err, -EINVAL, "there is no order %llu", (unsigned long long)id)
                       : await_done(desk, order, err);
    if (rc == 0) rc = ash_desk_unblock(desk); /* what continues these answers needs them */
    if (rc == 0) {
        *at = order->next;
        rc = take_all(order, take, ctx);
        if (rc < 0) ash_err_set(err, rc, "drawn answers cannot be taken: %s", strerror(-rc));
        ash_desk_free_order(order);
    }
    pthread_mutex_unlock(&desk->lock);
    return rc;
}

void ash_desk_forget(struct ash_desk *desk)
{
    pthread_mutex_lock(&desk->lock);
    while (desk->orders != NULL) {
        struct ash_desk_order *order = desk->orders;

        desk->orders = order->next;
        ash_desk_free_order(order);
    }
    pthread_mutex_unlock(&desk->lock);
}

struct ash_desk_figures ash_desk_get_figures(struct ash_desk *desk)
{
    struct ash_desk_figures figures;

    pthread_mutex_lock(&desk->lock);
    figures = desk->figures;
    pthread_mutex_unlock(&desk->lock);
    return figures;
}
