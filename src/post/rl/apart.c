/* apart: weights and orders. The first rank has the desk; the second one the same weights, to open a desk where the
 * first one is lost. */
#include "post/rl/apart.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/math.h"
#include "collective/member/launch_env.h"
#include "post/rl/rl_priv.h"
#include "train/job/agree.h"

#define HOLDERS 2 /* ranks that have the published weights */

int ash_apart_open(const struct ash_policy_run *rl, struct ash_apart **apart_out, struct ash_err *err)
{
    struct ash_apart *apart;

    if (rl->job->rollout.mode != ASH_ROLLOUT_APART) return 0;
    apart = calloc(1, sizeof(*apart));
    if (apart == NULL) return ash_err_set(err, -ENOMEM, "out of memory for samplers");
    *apart_out = apart;
    return 0;
}

void ash_apart_close(struct ash_apart *apart)
{
    if (apart == NULL) return;
    ash_desk_close(apart->desk);
    ash_publisher_close(&apart->publisher);
    free(apart->orders);
    free(apart);
}

int ash_apart_facts(const struct ash_policy_run *rl, const char *arithmetic, size_t weights, struct ash_str *facts)
{
    const struct ash_job_rollout *rollout = &rl->job->rollout;

    return ash_str_addf(
        facts,
        "precision %d\narithmetic %s\nweights %zu\ntokenizer %016" PRIx64
        "\nrollout.temperature %.17g\nrollout.top_k %lld\nrollout.top_p %.17g\nrollout.max_tokens %lld\n"
        "rollout.max_prompt_tokens %lld\n",
        rl->job->train.precision, arithmetic, weights, ash_tokenizer_hash(rl->text.tokenizer), rollout->temperature,
        (long long)rollout->top_k, rollout->top_p, (long long)rollout->max_tokens,
        (long long)rollout->max_prompt_tokens);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

size_t ash_apart_slot(const struct ash_policy_run *rl, uint64_t version)
{
    return (size_t)(version / ash_rl_steps_per_rollout(&rl->shape)) % (size_t)ash_max(rl->job->rollout.lag, 1);
}

static int open_desk(struct ash_policy_run *rl, struct ash_err *err)
{
    struct ash_apart *apart = rl->apart;
    char arithmetic[ASH_ARITHMETIC_BYTES];
    struct ash_launch_env env;
    struct ash_str facts = {0};
    int rc = ash_launch_env_read(&env, err);

    if (rc < 0) return rc;
    ash_agree_name_arithmetic(rl->job, rl->exec, arithmetic);
    rc = ash_apart_facts(rl, arithmetic, apart->publisher.count, &facts);
    if (rc == 0)
        rc = ash_desk_open(&(struct ash_desk_opts){.dir = rl->dir,
                                                   .host = env.host,
                                                   .facts = facts.data,
                                                   .port = apart->publisher.port,
                                                   .weights = apart->publisher.descriptions,
                                                   .weights_bytes = apart->publisher.slot_count *
                                                                    sizeof(*apart->publisher.descriptions),
                                                   .silence_s = rl->job->rollout.silence,
                                                   .patience_s = rl->job->rollout.patience},
                           &apart->desk, err);
    ash_str_fini(&facts);
    return rc;
}

int ash_apart_settle_desk(struct ash_policy_run *rl, struct ash_err *err)
{
    struct ash_apart *apart = rl->apart;

    if (ash_group_rank(rl->group) == 0)
        return apart->desk == NULL && apart->publisher.port != NULL ? open_desk(rl, err) : 0;
    ash_desk_close(apart->desk);
    apart->desk = NULL;
    apart->order_count = 0;
    return 0;
}

int ash_apart_publish(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t version, struct ash_err *err)
{
    struct ash_publisher *publisher = &rl->apart->publisher;
    struct ash_launch_env env;
    struct ash_model *model = NULL;
    uint64_t start_ns = ash_clock_ns();
    int rc = ash_rl_find_sampled(rl, trainer, &model, err);

    if (rc == 0 && ash_group_rank(rl->group) < HOLDERS) {
        if (publisher->port == NULL) rc = ash_launch_env_read(&env, err);
        if (rc == 0 && publisher->port == NULL)
            rc = ash_publisher_open(publisher, env.host, model, (size_t)ash_max(rl->job->rollout.lag, 1), err);
        ash_desk_hold(rl->apart->desk);
        if (rc == 0) rc = ash_publisher_publish(publisher, ash_apart_slot(rl, version), version, model, err);
        ash_desk_release(rl->apart->desk);
    }
    rl->seconds[ASH_RL_HANDOVER] += (double)(ash_clock_ns() - start_ns) * 1e-9;
    return rc < 0 ? rc : ash_apart_settle_desk(rl, err);
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

/* Those that begin, go on after a turn, or have got all that the weights before had to draw. */
static bool is_wanted(const struct ash_policy_run *rl, const struct ash_answer_row *row,
                      const struct ash_apart_turn *turn)
{
    if (turn->is_open != NULL && !turn->is_open[row->prompt]) return false;
    if (rl->job->rollout.chunk > 0) return !row->has_ended && row->count < turn->reach;
    return row->count == 0 || ash_rl_goes_on(row);
}

/* Tasks of the wanted answers. */
static int write_tasks(const struct ash_policy_run *rl, const struct ash_rollout *rollout,
                       const struct ash_apart_turn *turn, uint64_t order, struct ash_str *tasks)
{
    size_t samples = (size_t)rl->job->rl.samples;
    struct ash_str ids = {0};
    int rc = 0;

    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++) {
        const struct ash_answer_row *row = &rollout->answers[a];
        const struct ash_ids *prompt = &rollout->prompts[a / samples].ids;

        if (!is_wanted(rl, row, turn)) continue;
        ash_str_clear(&ids);
        rc = ash_str_add(&ids, prompt->data, prompt->count * sizeof(int32_t));
        if (rc == 0 && row->count > 0) rc = ash_str_add(&ids, row->ids, row->count * sizeof(int32_t));
        if (rc == 0)
            rc = ash_wire_add_task(tasks,
                                   &(struct ash_wire_task){.order = order,
                                                           .seed = ash_rl_sampler_of(rl, rollout, turn->round, a).seed,
                                                           .group = (uint32_t)(a / samples),
                                                           .answer = (uint32_t)a,
                                                           .more = (uint32_t)(turn->reach - row->count),
                                                           .count = (uint32_t)(prompt->count + row->count),
                                                           .ids = (const int32_t *)(const void *)ids.data});
    }
    ash_str_fini(&ids);
    return rc;
}

/* The order of a turn, or NULL. */
static const struct ash_apart_order *find_order(const struct ash_apart *apart, uint64_t number,
                                                const struct ash_apart_turn *turn)
{
    for (size_t i = 0; i < apart->order_count; i++) {
        const struct ash_apart_order *order = &apart->orders[i];

        if (order->number == number && order->version == turn->version && order->round == turn->round &&
            order->turn == turn->number)
            return order;
    }
    return NULL;
}

/* Hand it out as the next order. Returns 1, or 0 if there is nothing to draw. */
static int hand_out(struct ash_policy_run *rl, const struct ash_rollout *rollout, const struct ash_apart_turn *turn,
                    struct ash_err *err)
{
    struct ash_apart *apart = rl->apart;
    size_t slot = ash_apart_slot(rl, turn->version);
    struct ash_wire_work work = {.serial = apart->publisher.serials[slot], .slot = (uint32_t)slot};
    struct ash_str tasks = {0};
    int rc;

    if (turn->follows > 0) {
        rc = ash_desk_follow(apart->desk, apart->last_order + 1, &work,
                             &(struct ash_desk_continued){turn->follows, (uint32_t)turn->more}, err);
        return rc < 0 ? rc : 1;
    }
    rc = write_tasks(rl, rollout, turn, apart->last_order + 1, &tasks);
    if (rc < 0) ash_err_set(err, rc, "out of memory for the tasks of samplers");
    if (rc == 0 && tasks.size_bytes > 0) rc = ash_desk_submit(apart->desk, apart->last_order + 1, &work, &tasks, err);
    if (rc == 0) rc = tasks.size_bytes > 0;
    ash_str_fini(&tasks);
    return rc;
}

int ash_apart_begin(struct ash_policy_run *rl, const struct ash_rollout *rollout, const struct ash_apart_turn *turn,
                    uint64_t *order_out, struct ash_err *err)
{
    struct ash_apart *apart = rl->apart;
    const struct ash_apart_order *order = find_order(apart, rollout->number, turn);
    int rc;

    *order_out = order != NULL ? order->id : 0;
    if (order != NULL) return 0;
    if (apart->desk == NULL || apart->has_failed ||
        !ash_publisher_has(&apart->publisher, ash_apart_slot(rl, turn->version), turn->version))
        return ash_err_set(err, -ENODATA, "the weights after step %" PRIu64 " are lost, which answers are drawn with",
                           turn->version);
    if (ash_array_reserve(&apart->orders, &apart->order_room, apart->order_count + 1, sizeof(*apart->orders)) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for samplers");
    rc = hand_out(rl, rollout, turn, err);
    if (rc <= 0) return rc;
    *order_out = ++apart->last_order;
    apart->orders[apart->order_count++] = (struct ash_apart_order){.number = rollout->number,
                                                                   .version = turn->version,
                                                                   .id = apart->last_order,
                                                                   .round = turn->round,
                                                                   .turn = turn->number};
    return 0;
}

/* Where drawn answers go. */
struct drawn {
    const struct ash_policy_run *rl;
    struct ash_rollout *rollout;
};

static int take_answer(void *ctx, const struct ash_wire_answer *answer)
{
    const struct drawn *drawn = ctx;
    struct ash_answer_row *row;
    uint32_t first = 0;
    int rc = 0;

    if (answer->answer >= drawn->rl->shape.answers) return -EBADMSG;
    row = &drawn->rollout->answers[answer->answer];
    if (answer->count > drawn->rl->shape.max_tokens - row->count) return -EBADMSG;
    for (uint32_t t = 0; rc == 0 && t < answer->count; t++) {
        uint32_t end = answer->kept_count > 0 ? (uint32_t)answer->kept_ends[t] : 0;

        row->ids[row->count] = answer->ids[t];
        row->logps[row->count] = answer->logps[t];
        if (row->given != NULL) row->given[row->count] = 0;
        if (row->kept.ends != NULL) rc = ash_rl_kept_add(row, row->count, answer->kept + first, end - first);
        row->count++;
        first = end;
    }
    row->has_ended = answer->has_ended;
    return rc;
}

int ash_apart_take(struct ash_policy_run *rl, struct ash_rollout *rollout, uint64_t order, struct ash_err *err)
{
    struct ash_apart *apart = rl->apart;
    struct drawn drawn = {rl, rollout};
    int rc = ash_desk_wait(apart->desk, order, take_answer, &drawn, err);

    for (size_t i = 0; i < apart->order_count; i++)
        if (apart->orders[i].id == order) apart->orders[i--] = apart->orders[--apart->order_count];
    if (rc == -ETIMEDOUT) apart->has_failed = true;
    return rc;
}

int ash_apart_agree(struct ash_policy_run *rl, int own, struct ash_err *err)
{
    int32_t code = ash_group_rank(rl->group) == 0 ? own : 0;
    int rc = ash_group_all_reduce(rl->group, &code, &code, 1, ASH_COLL_I32, ASH_COLL_SUM, err);

    if (rc < 0 || code == 0) return rc;
    if (own == 0) ash_err_set(err, code, "the first rank has no answers of samplers");
    return code == -ENODATA ? -ENOTRECOVERABLE : code; /* the newest checkpoint has all that it needs */
}

int ash_apart_sample(struct ash_policy_run *rl, struct ash_rollout *rollout, const struct ash_apart_turn *turn,
                     struct ash_err *err)
{
    uint64_t order = 0;
    int own = 0;

    if (ash_group_rank(rl->group) == 0) {
        own = ash_apart_begin(rl, rollout, turn, &order, err);
        if (own == 0 && order > 0) own = ash_apart_take(rl, rollout, order, err);
    }
    return ash_apart_agree(rl, own, err);
}
