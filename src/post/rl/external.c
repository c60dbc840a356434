/* external: requests to servers. An answer is one request; threads send as many at once as the job allows, each to the
 * next server. Where one does not answer, the next one is asked. */
#include "post/rl/external.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/json_put.h"
#include "base/log.h"
#include "base/math.h"
#include "base/thread.h"
#include "http/fetch.h"
#include "post/rl/external_priv.h"
#include "post/rl/rl_priv.h"

#define BODY_MAX ((size_t)64 << 20)
#define ASK_S 30.0    /* for a list of models, or ids of a text */
#define PAUSE_MS 100u /* after the first try; twice as long after each */
#define PAUSE_MAX_MS 5000u

/* ---- servers ----------------------------------------------------------------------------------------------------- */

int ash_external_open(struct ash_policy_run *rl, struct ash_external **external_out, struct ash_err *err)
{
    const struct ash_opt_list *url = &rl->job->rollout.url;
    struct ash_external *external;

    if (url->count == 0) return 0;
    external = calloc(1, sizeof(*external));
    if (external == NULL) return ash_err_set(err, -ENOMEM, "out of memory for servers");
    external->rl = rl;
    pthread_mutex_init(&external->lock, NULL);
    *external_out = external;
    return 0;
}

void ash_external_close(struct ash_external *external)
{
    if (external == NULL) return;
    ash_external_end(external);
    pthread_mutex_destroy(&external->lock);
    free(external->model);
    free(external);
}

/* An address of a server: with or without a slash, or /v1, at its end. */
static int add_url(const struct ash_external *external, size_t server, const char *path, struct ash_str *url)
{
    const char *base = external->rl->job->rollout.url.items[server];
    size_t length = strlen(base);

    while (length > 0 && base[length - 1] == '/')
        length--;
    if (length >= 3 && strncmp(base + length - 3, "/v1", 3) == 0) length -= 3;
    return ash_str_addf(url, "%.*s%s", (int)length, base, path);
}

/* The first model that a server lists. */
static int read_model(struct ash_external *external, size_t server, struct ash_err *err)
{
    struct ash_str url = {0}, body = {0};
    json_t *json = NULL;
    const char *id;
    int rc = add_url(external, server, "/v1/models", &url);

    if (rc == 0) rc = ash_fetch(url.data, NULL, ASK_S, BODY_MAX, &body, err);
    if (rc == 0) rc = ash_json_parse(body.data, body.size_bytes, url.data, &json, err);
    id = json_string_value(json_object_get(json_array_get(json_object_get(json, "data"), 0), "id"));
    if (rc == 0 && id == NULL) rc = ash_err_set(err, -EBADMSG, "%s lists no model: set rollout.url_model", url.data);
    if (rc == 0) external->model = strdup(id);
    if (rc == 0 && external->model == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory");
    json_decref(json);
    ash_str_fini(&url);
    ash_str_fini(&body);
    return rc;
}

static void pause_before(int64_t try)
{
    unsigned pause_ms = try == 0 ? 0 : ash_min(PAUSE_MS << ash_min(try - 1, 10), PAUSE_MAX_MS);

    if (pause_ms > 0) usleep(pause_ms * 1000);
}

/* The model that requests name. Servers may start still. */
static int find_model(struct ash_external *external, struct ash_err *err)
{
    const struct ash_job_rollout *opts = &external->rl->job->rollout;
    int rc = -EAGAIN;

    if (opts->url_model != NULL) {
        external->model = strdup(opts->url_model);
        return external->model != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory");
    }
    for (int64_t try = 0; rc < 0 && rc != -ENOTSUP && try < opts->url_tries; try++) {
        pause_before(try);
        rc = read_model(external, (size_t)try % opts->url.count, err);
    }
    return rc < 0 ? ash_err_prefix(err, rc, "rollout.url, tried %lld times", (long long)opts->url_tries) : 0;
}

/* Ids that a server has for a text, into *json_out; NULL: it does not say. */
static int ask_ids(const struct ash_external *external, size_t server, const char *text, json_t **json_out,
                   struct ash_err *err)
{
    struct ash_str url = {0}, body = {0}, asked = {0};
    long status = 0;
    int rc = add_url(external, server, "/tokenize", &url);

    ash_json_put_begin(&asked, NULL, '{');
    ash_json_put_text(&asked, "model", external->model);
    ash_json_put_text(&asked, "prompt", text);
    ash_json_put_text(&asked, "content", text); /* llama.cpp */
    ash_json_put_bool(&asked, "add_special_tokens", false);
    ash_json_put_end(&asked, '}');
    if (rc == 0) rc = asked.rc;
    if (rc == 0) rc = ash_fetch_post(url.data, &asked, ASK_S, &body, &status, err);
    if (rc == 0 && status == 200) (void)ash_json_parse(body.data, body.size_bytes, url.data, json_out, NULL);
    ash_str_fini(&url);
    ash_str_fini(&body);
    ash_str_fini(&asked);
    return rc;
}

/* The first place at which they are others; SIZE_MAX: they are the same. */
static size_t find_difference(const json_t *theirs, const struct ash_ids *ids)
{
    for (size_t i = 0; i < ash_max(ids->count, json_array_size(theirs)); i++)
        if (i >= ids->count || !json_is_integer(json_array_get(theirs, i)) ||
            json_integer_value(json_array_get(theirs, i)) != ids->data[i])
            return i;
    return SIZE_MAX;
}

/* Has a server the policy's ids for a text? One that cannot say is asked no further. */
static int check_ids(const struct ash_external *external, size_t server, const struct ash_prompt *prompt,
                     struct ash_err *err)
{
    struct ash_ids ids = {0};
    json_t *json = NULL, *theirs;
    size_t at;
    int rc = ash_tokenizer_encode(external->rl->text.tokenizer, prompt->text, strlen(prompt->text), false, &ids, err);

    if (rc == 0) rc = ask_ids(external, server, prompt->text, &json, err);
    theirs = json_object_get(json, "tokens");
    at = json_is_array(theirs) ? find_difference(theirs, &ids) : SIZE_MAX;
    if (rc == 0 && at != SIZE_MAX)
        rc = ash_err_set(err, -EBADE,
                         "rollout.url, %s has another vocabulary than the policy: '%.40s' has other ids from number "
                         "%zu on",
                         external->rl->job->rollout.url.items[server], prompt->text, at);
    json_decref(json);
    ash_ids_fini(&ids);
    return rc;
}

/* Once: the model that requests name, and whether servers mean the same by ids. One that is away is no error yet. */
static int meet(struct ash_external *external, const struct ash_prompt *prompt, struct ash_err *err)
{
    int rc = external->model == NULL ? find_model(external, err) : 0;

    for (size_t i = 0; rc == 0 && !external->is_met && i < external->rl->job->rollout.url.count; i++) {
        rc = check_ids(external, i, prompt, err);
        if (rc < 0 && rc != -EBADE && rc != -ENOMEM) {
            ash_log(ASH_LOG_WARN, "rollout.url: %s", err != NULL ? err->text : "a server does not answer");
            rc = 0;
        }
    }
    external->is_met = rc == 0;
    return rc;
}

/* ---- one answer -------------------------------------------------------------------------------------------------- */

/* The rest of an answer. */
struct wanted {
    const struct ash_prompt *prompt;
    struct ash_answer_row *row;
    uint64_t seed;
};

static void write_request(const struct ash_external *external, const struct wanted *wanted, struct ash_str *out)
{
    const struct ash_answer_row *row = wanted->row;

    ash_json_put_begin(out, NULL, '{');
    ash_json_put_text(out, "model", external->model);
    ash_json_put_begin(out, "prompt", '[');
    for (size_t i = 0; i < wanted->prompt->ids.count; i++)
        ash_json_put_int(out, NULL, wanted->prompt->ids.data[i]);
    for (size_t i = 0; i < row->count; i++)
        ash_json_put_int(out, NULL, row->ids[i]);
    ash_json_put_end(out, ']');
    ash_json_put_int(out, "max_tokens", (int64_t)(external->rl->shape.max_tokens - row->count));
    ash_json_put_int(out, "seed", (int64_t)(wanted->seed & INT32_MAX));
    ash_json_put_int(out, "temperature", 1);
    ash_json_put_int(out, "top_p", 1); /* defaults of a server or a folder would be another policy */
    ash_json_put_int(out, "top_k", -1);
    ash_json_put_int(out, "min_p", 0);
    ash_json_put_int(out, "repetition_penalty", 1);
    ash_json_put_int(out, "logprobs", 1);
    ash_json_put_bool(out, "return_token_ids", true);
    ash_json_put_bool(out, "return_tokens_as_token_ids", true);
    ash_json_put_bool(out, "skip_special_tokens", false);
    ash_json_put_end(out, '}');
}

static bool is_end(const struct ash_policy_run *rl, int64_t id)
{
    for (size_t i = 0; i < rl->text.eos_count; i++)
        if (rl->text.eos[i] == id) return true;
    return false;
}

/* An answer that has ended has its end as its last token, which some servers leave out. */
static int append(const struct ash_policy_run *rl, struct ash_answer_row *row, const struct ash_external_answer *answer,
                  struct ash_err *err)
{
    size_t vocab = ash_tokenizer_vocab_size(rl->text.tokenizer), count = answer->count;
    bool has_end = count > 0 && is_end(rl, answer->ids[count - 1]);

    ash_assert(count <= answer->room && row->count + answer->room <= rl->shape.max_tokens);
    for (size_t t = 0; t < count; t++)
        if ((size_t)answer->ids[t] >= vocab)
            return ash_err_set(err, -EBADE, "it has another vocabulary than the policy: id %d, and there are %zu",
                               answer->ids[t], vocab);
    if (!has_end && answer->has_ended && count < answer->room && rl->text.eos_count > 0) {
        answer->ids[count] = is_end(rl, answer->end_id) ? (int32_t)answer->end_id : rl->text.eos[0];
        answer->logps[count++] = NAN;
        has_end = true;
    }
    for (size_t t = 0; t < count; t++) {
        row->ids[row->count] = answer->ids[t];
        row->logps[row->count] = answer->logps[t];
        if (row->given != NULL) row->given[row->count] = 0;
        row->count++;
    }
    row->has_ended = has_end;
    return 0;
}

/* The sentence of an answer with an error. */
static int refused(long status, const struct ash_str *body, struct ash_err *err)
{
    json_t *json = NULL, *error;
    const char *text = NULL;
    int rc;

    (void)ash_json_parse(body->data != NULL ? body->data : "", body->size_bytes, "the answer", &json, NULL);
    error = json_object_get(json, "error");
    text = json_string_value(json_object_get(error, "message"));
    if (text == NULL) text = json_string_value(json_object_get(json, "message"));
    rc = ash_err_set(err, status == 429 || status >= 500 ? -EAGAIN : -EINVAL, "it answers with status %ld%s%.200s",
                     status, text != NULL ? ": " : "", text != NULL ? text : "");
    json_decref(json);
    return rc;
}

/* Ask one server. Returns 0, or an error: -EBADE, -EBADMSG and -EINVAL are the same next time. */
static int ask_server(const struct ash_external *external, size_t server, const struct wanted *wanted,
                      struct ash_external_answer *answer, struct ash_err *err)
{
    struct ash_str url = {0}, body = {0}, asked = {0};
    long status = 0;
    int rc = add_url(external, server, "/v1/completions", &url);

    write_request(external, wanted, &asked);
    if (rc == 0) rc = asked.rc;
    if (rc == 0) rc = ash_fetch_post(url.data, &asked, external->rl->job->rollout.url_timeout, &body, &status, err);
    if (rc == 0 && status != 200) rc = refused(status, &body, err);
    if (rc == 0) rc = ash_external_parse(body.data != NULL ? body.data : "", body.size_bytes, answer, err);
    if (rc == 0) rc = append(external->rl, wanted->row, answer, err);
    ash_str_fini(&url);
    ash_str_fini(&body);
    ash_str_fini(&asked);
    return rc;
}

static bool is_final(int rc)
{
    return rc == 0 || rc == -EBADE || rc == -EBADMSG || rc == -EINVAL || rc == -ENOMEM || rc == -ENOTSUP;
}

/* Have one answer, of a server that gives it. */
static int have_answer(struct ash_external *external, size_t index, const struct wanted *wanted, struct ash_err *err)
{
    const struct ash_job_rollout *opts = &external->rl->job->rollout;
    size_t room = external->rl->shape.max_tokens - wanted->row->count, server = 0;
    struct ash_external_answer answer = {
        .ids = calloc(room, sizeof(int32_t)), .logps = calloc(room, sizeof(float)), .room = room};
    int rc = answer.ids == NULL || answer.logps == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : -EAGAIN;

    for (int64_t try = 0; !is_final(rc) && try < opts->url_tries && !atomic_load(&external->has_failed); try++) {
        pause_before(try);
        if (try > 0) atomic_fetch_add(&external->tries, 1);
        server = (index + (size_t)try) % opts->url.count;
        rc = ask_server(external, server, wanted, &answer, err);
    }
    free(answer.ids);
    free(answer.logps);
    if (rc == 0) return 0;
    if (is_final(rc)) return ash_err_prefix(err, rc, "rollout.url, %s", opts->url.items[server]);
    return ash_err_prefix(err, rc, "rollout.url, %s, after %lld tries (rollout.url_tries)", opts->url.items[server],
                          (long long)opts->url_tries);
}

/* ---- all of a rank's answers ------------------------------------------------------------------------------------- */

/* What threads share. */
struct asking {
    struct ash_external *external;
    struct wanted *list;
    size_t count;
    atomic_size_t next;
    int rc;             /* the first error, under the lock */
    struct ash_err err; /* likewise */
};

static void *ask_some(void *arg)
{
    struct asking *asking = arg;
    size_t i;

    while ((i = atomic_fetch_add(&asking->next, 1)) < asking->count && !atomic_load(&asking->external->has_failed)) {
        struct ash_err err = {0};
        int rc = have_answer(asking->external, i, &asking->list[i], &err);

        if (rc == 0) continue;
        pthread_mutex_lock(&asking->external->lock);
        if (asking->rc == 0) {
            asking->rc = rc;
            asking->err = err;
        }
        pthread_mutex_unlock(&asking->external->lock);
        atomic_store(&asking->external->has_failed, true);
    }
    return NULL;
}

static int ask_all(struct asking *asking, struct ash_err *err)
{
    size_t most = ash_min((size_t)asking->external->rl->job->rollout.url_requests, asking->count), started = 0;
    pthread_t *threads = calloc(most + 1, sizeof(*threads));

    if (threads == NULL) return ash_err_set(err, -ENOMEM, "out of memory for requests");
    atomic_store(&asking->external->has_failed, false);
    while (started < most && ash_thread_start(&threads[started], ask_some, asking) == 0)
        started++;
    if (started == 0) ask_some(asking);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    if (asking->rc < 0 && err != NULL) *err = asking->err;
    return asking->rc;
}

/* Other ranks' trouble is the run's, too. */
static int agree(const struct ash_policy_run *rl, int own, struct ash_err *err)
{
    int32_t code = own;
    int rc = ash_group_all_reduce(rl->group, &code, &code, 1, ASH_COLL_I32, ASH_COLL_MIN, err);

    if (rc < 0 || code == 0) return rc;
    return own < 0 ? own : ash_err_set(err, code, "another rank has no answers of servers");
}

int ash_external_sample(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round, const bool *is_open,
                        const bool *is_own, struct ash_err *err)
{
    struct asking asking = {.external = rl->external, .list = calloc(rl->shape.answers, sizeof(struct wanted))};
    int rc = asking.list == NULL ? ash_err_set(err, -ENOMEM, "out of memory for the answers of a step")
                                 : meet(rl->external, &rollout->prompts[0], err);

    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++) {
        struct ash_answer_row *row = &rollout->answers[a];

        if (!is_open[row->prompt] || !is_own[a] || (row->count > 0 && !ash_rl_goes_on(row))) continue;
        asking.list[asking.count++] = (struct wanted){.prompt = &rollout->prompts[row->prompt],
                                                      .row = row,
                                                      .seed = ash_rl_sampler_of(rl, rollout, round, a).seed};
    }
    if (rc == 0 && asking.count > 0) rc = ask_all(&asking, err);
    free(asking.list);
    return agree(rl, rc, err);
}
