/* worker: a process that samples (rollout.mode=apart). It has the model, and nothing of the run but the folder in which
 * it finds the desk; tasks say what to draw. If the desk is lost, it looks for the next one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/log.h"
#include "base/math.h"
#include "base/socket.h"
#include "collective/member/membership.h"
#include "model/files/open.h"
#include "model/lora.h"
#include "post/rl/rl_priv.h"
#include "post/rl/worker.h"
#include "storage/namespace/attach.h"
#include "storage/tier/tier.h"
#include "train/job/agree.h"
#include "train/job/gpus.h"
#include "train/run/control.h"

#define LOOK_S 0.5        /* between two looks for another desk */
#define REFUSED_S 2.0     /* all ranks that train have refused: the job is over */
#define UNANSWERED_S 60.0 /* none has answered */
#define ANSWER_S 1.0      /* for one of them to answer */

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int open_model(struct ash_worker *worker, const struct ash_lora *lora, struct ash_err *err)
{
    const struct ash_job *job = worker->rl->job;
    struct ash_model_config config = {0};
    struct ash_str from = {0};
    int rc = 0;

    if (lora == NULL && ash_tier_is_url(job->model.from)) rc = ash_attach_url(job->model.from, NULL, &from, err);
    if (rc == 0)
        rc = ash_model_config_load(lora != NULL        ? lora->base_dir
                                   : from.data != NULL ? from.data
                                                       : job->model.from,
                                   &config, err);
    ash_str_fini(&from);
    if (rc < 0) return rc;
    config.lora = lora;
    rc = ash_model_blank_slice(&config, NULL, &worker->model, err);
    if (rc < 0) {
        ash_model_config_fini(&config);
        return rc;
    }
    ash_model_round_bf16(worker->model, job->train.precision != ASH_JOB_FP32);
    return 0;
}

static int open_port(struct ash_worker *worker, const char *host, struct ash_err *err)
{
    size_t bytes = ash_model_weight_count(worker->model) * sizeof(float);
    int rc = worker->port != NULL ? 0 : ash_publish_open_port(host, &worker->port, err);

    if (rc < 0 || worker->memory != NULL) return rc;
    return ash_port_register_versions(worker->port, bytes, &worker->memory, err);
}

static int open_exec(struct ash_worker *worker, struct ash_err *err)
{
    const struct ash_job *job = worker->rl->job;
    size_t here = ash_max(worker->opts.here, 1), cores = (size_t)ash_cores_usable();
    int threads = job->runtime.threads > 0 ? (int)job->runtime.threads : (int)ash_max(cores / here, 1);
    struct ash_backend_choice choice;
    int rc;

    ash_gpus_choose_joining(job, here, &choice);
    rc = ash_backend_start(&worker->exec, &choice, threads, err);
    if (rc < 0) return rc;
    worker->has_exec = true;
    if (ash_backend_device_memory(&worker->exec) != NULL)
        return ash_err_set(err, -ENOTSUP, "rollout.mode=apart samples on CPUs alone: set runtime.backend");
    return 0;
}

static int open_worker(struct ash_worker *worker, const struct ash_lora *lora, struct ash_err *err)
{
    struct ash_policy_run *rl = worker->rl;
    const struct ash_job *job = rl->job;
    struct ash_core_opts opts = {.max_seqs = ash_min(rl->shape.answers, 256),
                                 .max_tokens = (size_t)(job->rollout.max_prompt_tokens + job->rollout.max_tokens),
                                 .logprob_sharpness = (float)(1.0 / job->rollout.temperature)};
    char arithmetic[ASH_ARITHMETIC_BYTES];
    int rc = open_exec(worker, err);

    if (rc == 0) rc = open_model(worker, lora, err);
    if (rc == 0) rc = ash_core_open(worker->model, &worker->exec, &opts, &rl->sampler.core, err);
    if (rc < 0) return rc;
    ash_agree_name_arithmetic(job, &worker->exec, arithmetic);
    rc = ash_apart_facts(rl, arithmetic, ash_model_weight_count(worker->model), &worker->facts);
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}

static void leave_desk(struct ash_worker *worker)
{
    for (size_t i = 0; i < worker->slot_count; i++)
        ash_port_detach(worker->slots[i]);
    free(worker->slots);
    worker->slots = NULL;
    worker->slot_count = 0;
    worker->serial = 0;
    if (worker->fd >= 0) close(worker->fd);
    worker->fd = -1;
}

static void close_worker(struct ash_worker *worker)
{
    leave_desk(worker);
    ash_core_close(worker->rl->sampler.core);
    worker->rl->sampler.core = NULL;
    ash_port_memory_close(worker->memory);
    ash_port_close(worker->port);
    ash_model_close(worker->model);
    if (worker->has_exec) ash_exec_fini(&worker->exec);
    ash_str_fini(&worker->facts);
    ash_str_fini(&worker->out);
    free(worker->body);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The next message, its body in worker->body. Returns 1, 0 if none has begun within LOOK_S, or a negative errno. */
static int receive(struct ash_worker *worker, struct ash_wire_head *head_out)
{
    uint64_t deadline_ns;
    int rc = ash_socket_wait(worker->fd, ash_deadline_in(LOOK_S));

    if (rc < 0) return rc == -ETIMEDOUT ? 0 : rc;
    deadline_ns = ash_deadline_in(ASH_WORKER_MESSAGE_S);
    rc = ash_socket_recv(worker->fd, head_out, sizeof(*head_out), deadline_ns);
    if (rc < 0) return rc;
    rc = ash_wire_peek((const uint8_t *)head_out, sizeof(*head_out), head_out);
    if (rc < 0) return rc;
    if (head_out->size_bytes > worker->body_room) {
        free(worker->body);
        worker->body = malloc(head_out->size_bytes);
        worker->body_room = worker->body != NULL ? head_out->size_bytes : 0;
        if (worker->body == NULL) return -ENOMEM;
    }
    rc = ash_socket_recv(worker->fd, worker->body, head_out->size_bytes, deadline_ns);
    return rc < 0 ? rc : 1;
}

/* Where weights are, as the desk says. */
static int attach(struct ash_worker *worker, size_t size_bytes)
{
    struct ash_wire_reader body = {worker->body, size_bytes, 0};
    size_t count = size_bytes / sizeof(struct ash_port_description);
    int rc = 0;

    worker->slots = calloc(count + 1, sizeof(*worker->slots));
    if (worker->slots == NULL) return -ENOMEM;
    while (rc == 0 && worker->slot_count < count) {
        struct ash_port_description description;

        rc = ash_wire_read(&body, &description, sizeof(description));
        if (rc == 0) rc = ash_port_attach(worker->port, &description, &worker->slots[worker->slot_count], NULL);
        if (rc == 0) worker->slot_count++;
    }
    return rc;
}

/* ---- the desk ---------------------------------------------------------------------------------------------------- */

/* Connect and say hello. Returns 1, 0 if there is no desk yet, or a negative errno: it refuses this process. */
static int find_desk(struct ash_worker *worker, struct ash_err *err)
{
    struct ash_desk_place place = {0}, again = {0};
    struct ash_wire_head head;
    int rc;

    if (ash_desk_find(worker->rl->dir, &place) < 0) return 0;
    rc = open_port(worker, place.host, err);
    if (rc < 0) return rc;
    worker->fd = ash_socket_connect(place.host, (int)place.port, ash_deadline_in(LOOK_S), NULL);
    if (worker->fd < 0) return 0;
    worker->key = place.key;
    rc = ash_wire_add_text(&worker->out, ASH_WIRE_HELLO, worker->facts.data);
    if (rc == 0) rc = ash_worker_send(worker);
    for (uint64_t limit_ns = ash_deadline_in(ASH_WORKER_MESSAGE_S); rc == 0 && ash_clock_ns() < limit_ns;) {
        rc = receive(worker, &head);
        if (ash_desk_find(worker->rl->dir, &again) == 0 && again.key != place.key) rc = -ECONNRESET;
    }
    if (rc > 0 && head.kind == ASH_WIRE_REFUSED)
        return ash_err_set(err, -EBADE, "this sampler does not fit the run in %s: %.*s", worker->rl->dir,
                           (int)head.size_bytes, (const char *)worker->body);
    if (rc > 0 && head.kind == ASH_WIRE_WELCOME && attach(worker, head.size_bytes) == 0) return 1;
    leave_desk(worker);
    return 0;
}

/* Draw what the desk hands out, until it is lost, says bye, or another one is there. Returns 0 or an error of this
 * process. */
static int serve(struct ash_worker *worker, struct ash_err *err)
{
    struct ash_desk_place place;
    struct ash_wire_head head;
    int rc = 0;

    while (rc == 0) {
        rc = receive(worker, &head);
        if (rc == 0 && ash_desk_find(worker->rl->dir, &place) == 0 && place.key != worker->key) break;
        if (rc <= 0) continue;
        if (head.kind == ASH_WIRE_BYE) break;
        rc = head.kind == ASH_WIRE_WORK ? ash_worker_draw(worker, head.size_bytes, err) : -EBADMSG;
    }
    ash_str_clear(&worker->out);
    leave_desk(worker);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for answers") : 0;
}

/* Is the run that this process has sampled for over, as its folder says? Returns 1, 0, or -ENOTCONN where it has
 * failed: then this process must not count as one that has ended well. */
static int is_over(const struct ash_worker *worker, struct ash_err *err)
{
    struct ash_run_status status = {0};

    if (!worker->was_known || ash_run_status_read(worker->rl->dir, &status, NULL) < 0 ||
        strcmp(status.state, "running") == 0)
        return 0;
    if (strcmp(status.state, "failed") != 0) return 1;
    return ash_err_set(err, -ENOTCONN, "the run in %s has failed", worker->rl->dir);
}

/* Do ranks that train answer? Where all have refused there are none, but for those that start again now; where none has
 * answered in time they may be busy. */
static bool is_alone(struct ash_worker *worker)
{
    double limit_s = worker->rl->job->rollout.patience;
    uint64_t start_ns = ash_clock_ns();

    if (worker->was_known && worker->opts.job_dir != NULL) {
        if (ash_membership_is_answered(worker->opts.job_dir, ANSWER_S)) worker->met_ns = ash_clock_ns();
        limit_s = ash_clock_ns() - start_ns < (uint64_t)(ANSWER_S * 5e8) ? REFUSED_S : UNANSWERED_S;
    }
    return (double)(ash_clock_ns() - worker->met_ns) * 1e-9 > limit_s;
}

int ash_rl_work(struct ash_policy_run *rl, const struct ash_lora *lora, const struct ash_worker_opts *opts,
                struct ash_err *err)
{
    struct ash_worker worker = {.rl = rl, .opts = *opts, .fd = -1, .met_ns = ash_clock_ns()};
    int rc = open_worker(&worker, lora, err);

    while (rc == 0) {
        rc = is_over(&worker, err);
        if (rc != 0) break;
        rc = find_desk(&worker, err);
        if (rc > 0) {
            worker.was_known = true;
            if (opts->placed != NULL) opts->placed(opts->ctx);
            rc = serve(&worker, err);
            worker.met_ns = ash_clock_ns();
        } else if (rc == 0 && is_alone(&worker)) {
            rc = ash_err_set(err, -ENOTCONN, "no rank that trains into %s answers", rl->dir);
        } else {
            usleep((useconds_t)(LOOK_S * 1e6 / 5));
        }
    }
    close_worker(&worker);
    return rc < 0 ? rc : 0;
}
