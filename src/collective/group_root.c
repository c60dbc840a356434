/* What all groups of a job share: what each rank sent at the rendezvous, the watch, and the losses that it
 * reports to all groups. */
#include "collective/group_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "collective/net/join.h"
#include "collective/member/reform.h"
#include "collective/member/rendezvous.h"

void ash_group_root_lose(struct ash_group_root *root, size_t rank, int code, const char *why)
{
    pthread_mutex_lock(&root->lock);
    if (!root->lost) {
        root->lost = true;
        root->failed_rank = rank;
        root->code = code;
        snprintf(root->why, sizeof(root->why), "%s", why);
    }
    for (struct ash_group *group = root->groups; group != NULL; group = group->next)
        if (group->local != NULL) ash_local_fail(group->local, root->code, root->failed_rank, root->why, NULL);
    pthread_mutex_unlock(&root->lock);
}

/* Runs on the watching thread. */
static void on_loss(void *ctx, size_t rank, int code, const char *why)
{
    ash_group_root_lose(ctx, rank, code, why);
}

void ash_group_root_add(struct ash_group_root *root, struct ash_group *group)
{
    pthread_mutex_lock(&root->lock);
    group->next = root->groups;
    root->groups = group;
    if (root->lost && group->local != NULL)
        ash_local_fail(group->local, root->code, root->failed_rank, root->why, NULL);
    pthread_mutex_unlock(&root->lock);
}

void ash_group_root_remove(struct ash_group_root *root, struct ash_group *group)
{
    pthread_mutex_lock(&root->lock);
    for (struct ash_group **at = &root->groups; *at != NULL; at = &(*at)->next)
        if (*at == group) {
            *at = group->next;
            break;
        }
    pthread_mutex_unlock(&root->lock);
}

static void fill_info(const struct ash_group_root *root, const char *address, struct ash_member_info *info)
{
    memset(info, 0, sizeof(*info)); /* it is compared and sent as bytes */
    snprintf(info->watch.address, sizeof(info->watch.address), "%s", address);
    if (gethostname(info->watch.host, sizeof(info->watch.host) - 1) < 0)
        snprintf(info->watch.host, sizeof(info->watch.host), "unknown");
    info->watch.pid = getpid();
    info->cost = root->cost;
    info->watch.port = ash_socket_port(root->listen_fd);
    info->machine = ash_segment_machine();
    snprintf(info->node, sizeof(info->node), "%s",
             root->opts.node != NULL ? root->opts.node
             : root->node[0] != '\0' ? root->node
                                     : info->watch.host);
}

/* Infos come from other processes: every string in them must end. */
static void terminate_strings(struct ash_group_root *root)
{
    for (size_t i = 0; i < root->size; i++) {
        struct ash_member_info *info = &root->infos[i];

        info->node[sizeof(info->node) - 1] = '\0';
        info->watch.address[sizeof(info->watch.address) - 1] = '\0';
        info->watch.host[sizeof(info->watch.host) - 1] = '\0';
        root->watched[i] = info->watch;
    }
}

bool ash_group_same_node(const struct ash_group_root *root, size_t a, size_t b)
{
    const struct ash_member_info *infos = root->infos;

    return strcmp(infos[a].node, infos[b].node) == 0 && infos[a].machine == infos[b].machine;
}

/* Are there ranks that do not share memory? */
static bool several_nodes(const struct ash_group_root *root)
{
    for (size_t r = 1; r < root->size; r++)
        if (!ash_group_same_node(root, r, 0)) return true;
    return false;
}

/* own_address: numeric, or empty where it is not known. known: ranks that the progress engine knew in an earlier
 * epoch. */
static int join_net(struct ash_group_root *root, const char *own_address, size_t known, struct ash_err *err)
{
    const struct ash_member_info *first = &root->infos[0], *own = &root->infos[root->rank];
    struct ash_net_join_opts join = {.fabric = root->opts.fabric,
                                     .node = own->node,
                                     .address = own_address[0] != '\0' ? own_address : NULL,
                                     .job = root->job,
                                     .epoch = root->epoch,
                                     .rank = root->rank,
                                     .size = root->size,
                                     .host = first->watch.address,
                                     .port = first->watch.port,
                                     .listen_fd = root->rank == 0 ? root->listen_fd : -1,
                                     .timeout_s = root->opts.join_timeout,
                                     .progress = root->progress,
                                     .known = known};

    return ash_net_join(&join, &root->progress, &root->mailboxes, &root->addresses, err);
}

/* Close the progress engine of an earlier epoch. Its peers are forgotten first: what was sent to a lost one last
 * would be waited for. */
static void leave_net(struct ash_group_root *root, size_t known)
{
    for (size_t r = 0; root->progress != NULL && r < known; r++)
        ash_progress_disconnect(root->progress, (uint32_t)r);
    ash_progress_close(root->progress);
    root->progress = NULL;
}

static int start_watch(struct ash_group_root *root, struct ash_err *err)
{
    struct ash_watch_opts opts = {.rank = root->rank,
                                  .size = root->size,
                                  .job = root->job,
                                  .epoch = root->epoch,
                                  .listen_fd = root->listen_fd,
                                  .members = root->watched,
                                  .silent_s = root->opts.silent_timeout,
                                  .on_loss = on_loss,
                                  .ctx = root};

    return ash_watch_open(&opts, &root->watch, err);
}

/* Once the info of all ranks is there: reach other nodes, and watch. */
static int settle(struct ash_group_root *root, const char *own_address, size_t known, struct ash_err *err)
{
    int rc = 0;

    root->watched = calloc(root->size, sizeof(*root->watched));
    if (root->watched == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", root->size);
    terminate_strings(root);
    if (several_nodes(root))
        rc = join_net(root, own_address, known, err);
    else
        leave_net(root, known);
    return rc == 0 && root->size > 1 ? start_watch(root, err) : rc;
}

static int join(struct ash_group_root *root, const struct ash_local *local, struct ash_err *err)
{
    struct ash_rendezvous meeting = {.job = root->job,
                                     .rank = root->rank,
                                     .size = root->size,
                                     .host = root->host,
                                     .port = root->port,
                                     .timeout_s = root->opts.join_timeout,
                                     .fd = -1};
    struct ash_member_info info;
    int rc = ash_rendezvous_open(&meeting, -1, err);

    root->infos = calloc(root->size, sizeof(*root->infos));
    if (rc == 0 && root->infos == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", root->size);
    if (rc == 0) {
        fill_info(root, meeting.own_address, &info);
        info.control = ash_local_key(local);
        rc = ash_rendezvous_exchange(&meeting, &info, sizeof(info), root->infos, err);
    }
    ash_rendezvous_close(&meeting);
    return rc < 0 ? rc : settle(root, root->rank == 0 ? meeting.met_address : meeting.own_address, 0, err);
}

/* Meet what is left of `old`, as one of it or (NULL) as one that takes a lost rank's place. */
static int join_again(struct ash_group_root *root, const struct ash_group_root *old, double wait_s,
                      const struct ash_local *local, struct ash_err *err)
{
    struct ash_reform reform = {.job = root->job,
                                .epoch = old != NULL ? old->epoch : 0,
                                .rank = root->rank,
                                .size = root->size,
                                .failed_rank = old != NULL && old->lost ? old->failed_rank : SIZE_MAX,
                                .rejoins = old == NULL,
                                .members = old != NULL ? old->watched : NULL,
                                .listen_fd = root->listen_fd,
                                .host = root->host,
                                .port = root->port,
                                .wait_s = wait_s,
                                .timeout_s = root->opts.join_timeout,
                                .address_offset = offsetof(struct ash_member_info, watch.address)};
    struct ash_member_info info;
    void *infos = NULL;
    const char *address;
    int rc;

    fill_info(root, old != NULL ? old->infos[old->rank].watch.address : "", &info);
    info.control = ash_local_key(local);
    rc = ash_reform_exchange(&reform, &info, sizeof(info), &infos, err);
    if (rc < 0) return rc;
    root->infos = infos;
    root->epoch = reform.new_epoch;
    root->rank = reform.new_rank;
    root->size = reform.new_size;
    address = root->infos[root->rank].watch.address;
    return settle(root, strspn(address, "0123456789abcdef.:") == strlen(address) ? address : "",
                  old != NULL ? old->size : 0, err);
}

/* Take the place of a lost rank. Whoever may have to wait for the loss opens its endpoint before, because that takes
 * longer than all the rest. */
static int rejoin(struct ash_group_root *root, const struct ash_local *local, struct ash_err *err)
{
    char address[ASH_SOCKET_ADDR_BYTES];
    struct ash_member_info own;

    fill_info(root, "", &own); /* for the name of this node */
    if (ash_socket_address_towards(root->host, address, sizeof(address)) == 0 &&
        ash_progress_open(root->opts.fabric, own.node, address, &root->progress, NULL) < 0)
        root->progress = NULL; /* a job on one node does without; one on several will report why it cannot */
    ash_log(ASH_LOG_INFO, "rank %zu is ready to replace the lost one", root->rank);
    return join_again(root, NULL, 0, local, err);
}

static struct ash_group_root *new_root(const struct ash_group_opts *opts, size_t rank, size_t size, struct ash_err *err)
{
    struct ash_group_root *root = calloc(1, sizeof(*root));

    if (root == NULL) {
        ash_err_set(err, -ENOMEM, "out of memory for a group");
        return NULL;
    }
    pthread_mutex_init(&root->lock, NULL);
    root->opts = *opts;
    root->rank = rank;
    root->size = size;
    root->listen_fd = -1;
    return root;
}

/* A group of one needs no socket. */
static int be_alone(struct ash_group_root *root, struct ash_err *err)
{
    root->infos = calloc(1, sizeof(*root->infos));
    if (root->infos == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a group");
    fill_info(root, root->host, &root->infos[0]);
    return settle(root, "", 0, err);
}

int ash_group_root_open(const struct ash_launch_env *env, const struct ash_group_opts *opts, struct ash_local *local,
                        struct ash_group_root **root_out, struct ash_err *err)
{
    struct ash_group_root *root = new_root(opts, env->rank, env->size, err);
    int rc = 0;

    ash_assert(env->rank < env->size);
    if (root == NULL) return -ENOMEM;
    root->job = env->job;
    root->port = env->port;
    snprintf(root->node, sizeof(root->node), "%.*s", (int)sizeof(root->node) - 1, env->node);
    memcpy(root->host, env->host, sizeof(root->host));
    root->cost = ash_cost_default;
    if (opts->cost != NULL) rc = ash_cost_load(opts->cost, &root->cost, err);
    if (rc < 0) goto fail;
    if (env->size == 1) {
        rc = be_alone(root, err);
    } else {
        rc = root->listen_fd = ash_socket_listen(NULL, 0, err);
        if (rc < 0) goto fail;
        rc = opts->rejoin ? rejoin(root, local, err) : join(root, local, err);
    }
    if (rc < 0) goto fail;
    *root_out = root;
    return 0;

fail:
    ash_group_root_close(root);
    return rc;
}

int ash_group_root_reform(struct ash_group_root *old, double wait_s, const struct ash_local *local,
                          struct ash_group_root **root_out, struct ash_err *err)
{
    struct ash_group_root *root = new_root(&old->opts, old->rank, old->size, err);
    int rc;

    if (root == NULL) return -ENOMEM;
    root->job = old->job;
    root->cost = old->cost;
    root->port = old->port;
    memcpy(root->node, old->node, sizeof(root->node));
    memcpy(root->host, old->host, sizeof(root->host));
    root->listen_fd = old->listen_fd;
    root->progress = old->progress;
    old->listen_fd = -1;
    old->progress = NULL;
    rc = join_again(root, old, wait_s, local, err);
    if (rc < 0) {
        ash_group_root_close(root);
        return rc;
    }
    *root_out = root;
    return 0;
}

void ash_group_root_close(struct ash_group_root *root)
{
    if (root == NULL) return;
    ash_watch_close(root->watch);
    ash_net_mailboxes_close(&root->mailboxes);
    free(root->addresses);
    ash_progress_close(root->progress);
    if (root->listen_fd >= 0) close(root->listen_fd);
    pthread_mutex_destroy(&root->lock);
    free(root->watched);
    free(root->infos);
    free(root);
}
