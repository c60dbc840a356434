/* List and watch: the stream of one request, line by line, through libcurl's multi interface. */
#include "orchestrate/kubernetes/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "orchestrate/kubernetes/client_priv.h"
#include "orchestrate/kubernetes/status.h"

#define LINE_MAX_BYTES ((size_t)16 << 20)
#define SERVER_LIMIT_S 290 /* the server ends the stream, and it is taken up again */
#define CLIENT_LIMIT_S 330
#define BUDGET_S 30.0 /* without a good answer */
#define WAIT_FIRST_MS 200
#define WAIT_MAX_MS 5000
#define LIVED_S 1.0 /* a stream that ends sooner is taken up after a wait */

struct ash_kube_watch {
    struct ash_kube_client *client;
    char *path, *query;
    ash_kube_seen_fn seen;
    void *ctx;
    CURLM *multi;
    CURL *easy; /* of the stream; NULL: none */
    struct curl_slist *headers;
    struct ash_kube_answer answer; /* text: the incomplete line; the body if it is refused */
    char *version;                 /* to go on from; NULL: list first */
    double good_s, opened_s, retry_s;
    int wait_ms, told;
    int rc; /* of a line: -EIO, -ENOMEM */
};

int ash_kube_watch_open(struct ash_kube_client *client, const struct ash_kube_watch_opts *opts,
                        struct ash_kube_watch **watch_out, struct ash_err *err)
{
    struct ash_kube_watch *watch = calloc(1, sizeof(*watch));

    if (watch == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    watch->client = client;
    watch->seen = opts->seen;
    watch->ctx = opts->ctx;
    watch->wait_ms = WAIT_FIRST_MS;
    watch->path = strdup(opts->path);
    watch->query = strdup(opts->query != NULL ? opts->query : "");
    watch->multi = client->curl->multi_init();
    if (watch->path == NULL || watch->query == NULL || watch->multi == NULL) {
        ash_kube_watch_close(watch);
        return ash_err_set(err, -ENOMEM, "out of memory");
    }
    *watch_out = watch;
    return 0;
}

static double now_s(void)
{
    return (double)ash_clock_ns() * 1e-9;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static int set_version(struct ash_kube_watch *watch, const char *version)
{
    char *copy = strdup(version);

    if (copy == NULL) return -ENOMEM;
    free(watch->version);
    watch->version = copy;
    return 0;
}

static int list(struct ash_kube_watch *watch, struct ash_err *err)
{
    struct ash_str path = {0};
    json_t *answer = NULL;
    const json_t *items;
    const char *version;
    int rc = ash_str_addf(&path, "%s?%s", watch->path, watch->query);

    if (rc == 0) rc = ash_kube_client_call(watch->client, "GET", path.data, NULL, &answer, err);
    ash_str_fini(&path);
    if (rc < 0) return rc;
    items = json_object_get(answer, "items");
    version = json_string_value(json_object_get(json_object_get(answer, "metadata"), "resourceVersion"));
    for (size_t i = 0; i < json_array_size(items); i++, watch->told++)
        watch->seen(watch->ctx, json_array_get(items, i), false);
    if (json_array_size(items) == 0) {
        watch->seen(watch->ctx, NULL, true);
        watch->told++;
    }
    rc = set_version(watch, version != NULL ? version : "0");
    watch->good_s = now_s();
    json_decref(answer);
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static void forget_version(struct ash_kube_watch *watch)
{
    free(watch->version);
    watch->version = NULL;
}

/* One line: an object, a bookmark, or that the version is too old. */
static int take_line(struct ash_kube_watch *watch, const char *text, size_t size_bytes)
{
    json_t *json = NULL;
    struct ash_kube_event event;
    int rc = ash_json_parse(text, size_bytes, "an event of Kubernetes", &json, NULL);

    if (rc < 0) return rc == -ENOMEM ? rc : -EIO;
    rc = ash_kube_read_event(json, &event);
    if (rc == 0) watch->good_s = now_s();
    if (rc == 0 && event.change == ASH_KUBE_TOO_OLD) forget_version(watch);
    if (rc == 0 && event.version != NULL) rc = set_version(watch, event.version);
    if (rc == 0 && (event.change == ASH_KUBE_CHANGED || event.change == ASH_KUBE_GONE)) {
        watch->seen(watch->ctx, event.object, event.change == ASH_KUBE_GONE);
        watch->told++;
    }
    json_decref(json);
    return rc;
}

static size_t on_stream(char *data, size_t size, size_t count, void *ctx)
{
    struct ash_kube_watch *watch = ctx;
    struct ash_str *text = &watch->answer.text;
    size_t begin = 0, bytes = size * count;
    long status = 0;

    watch->client->curl->easy_getinfo(watch->easy, CURLINFO_RESPONSE_CODE, &status);
    if (text->size_bytes + bytes > LINE_MAX_BYTES || ash_str_add(text, data, bytes) < 0) return 0;
    for (size_t at = text->size_bytes - bytes; status == 200 && at < text->size_bytes; at++) {
        if (text->data[at] != '\n') continue;
        watch->rc = take_line(watch, text->data + begin, at - begin);
        begin = at + 1;
        if (watch->rc < 0) return 0;
    }
    if (begin > 0) {
        ash_assert(begin <= text->size_bytes);
        memmove(text->data, text->data + begin, text->size_bytes - begin);
        text->size_bytes -= begin;
    }
    return bytes;
}

static void end_stream(struct ash_kube_watch *watch)
{
    const struct ash_curl *curl = watch->client->curl;

    if (watch->easy == NULL) return;
    curl->multi_remove_handle(watch->multi, watch->easy);
    curl->easy_cleanup(watch->easy);
    curl->slist_free_all(watch->headers);
    watch->easy = NULL;
    watch->headers = NULL;
}

static int begin_stream(struct ash_kube_watch *watch, struct ash_err *err)
{
    const struct ash_curl *curl = watch->client->curl;
    struct ash_str path = {0};
    int rc =
        ash_str_addf(&path, "%s?%s%swatch=true&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=%s",
                     watch->path, watch->query, watch->query[0] != '\0' ? "&" : "", SERVER_LIMIT_S, watch->version);

    watch->easy = curl->easy_init();
    if (rc < 0 || watch->easy == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory");
    if (rc == 0) rc = ash_kube_client_aim(watch->client, watch->easy, path.data, &watch->headers, err);
    ash_str_fini(&path);
    if (rc < 0) return rc;
    ash_str_clear(&watch->answer.text);
    curl->easy_setopt(watch->easy, CURLOPT_HTTPGET, 1L);
    curl->easy_setopt(watch->easy, CURLOPT_TIMEOUT, (long)CLIENT_LIMIT_S);
    curl->easy_setopt(watch->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl->easy_setopt(watch->easy, CURLOPT_WRITEFUNCTION, on_stream);
    curl->easy_setopt(watch->easy, CURLOPT_WRITEDATA, watch);
    curl->multi_add_handle(watch->multi, watch->easy);
    watch->opened_s = now_s();
    return 0;
}

/* ---- its end ----------------------------------------------------------------------------------------------------- */

/* After a failure: again after a wait, as long as the budget lasts. */
static int put_off(struct ash_kube_watch *watch, struct ash_err *err)
{
    const struct ash_kube_answer *answer = &watch->answer;
    double now = now_s();
    int rc = watch->rc < 0 ? ash_err_set(err, -EIO, "Kubernetes tells of a change in a form that is not known")
                           : ash_kube_client_judge(watch->client, answer, err);

    if (rc < 0 && watch->rc == 0 && !ash_kube_client_may_retry(answer)) return rc;
    if (now - watch->good_s > BUDGET_S) return rc < 0 ? rc : ash_err_set(err, -EIO, "watches end at once");
    watch->rc = 0;
    watch->retry_s = now + watch->wait_ms * 1e-3;
    watch->wait_ms = 2 * watch->wait_ms < WAIT_MAX_MS ? 2 * watch->wait_ms : WAIT_MAX_MS;
    return 0;
}

/* The stream is over: resume it, now or after a wait; list again; or give up. */
static int judge_end(struct ash_kube_watch *watch, CURLcode code, struct ash_err *err)
{
    struct ash_kube_answer *answer = &watch->answer;

    answer->code = code;
    watch->client->curl->easy_getinfo(watch->easy, CURLINFO_RESPONSE_CODE, &answer->status);
    end_stream(watch);
    if (watch->rc == -ENOMEM || ash_str_adds(&answer->text, "") < 0) return ash_err_set(err, -ENOMEM, "out of memory");
    if (answer->status == 410) forget_version(watch);
    if (watch->version == NULL) return 0;
    if (answer->status != 200 || watch->rc != 0 || now_s() - watch->opened_s < LIVED_S) return put_off(watch, err);
    watch->wait_ms = WAIT_FIRST_MS;
    return 0;
}

/* Let libcurl work. Returns 0 or a negative errno. */
static int work(struct ash_kube_watch *watch, struct ash_err *err)
{
    const struct ash_curl *curl = watch->client->curl;
    int running = 0, left = 0;
    CURLMsg *message;

    if (curl->multi_perform(watch->multi, &running) != CURLM_OK)
        return ash_err_set(err, -EIO, "libcurl does not follow the watch");
    while ((message = curl->multi_info_read(watch->multi, &left)) != NULL) {
        int rc = message->msg == CURLMSG_DONE ? judge_end(watch, message->data.result, err) : 0;

        if (rc < 0) return rc;
    }
    return 0;
}

int ash_kube_watch_poll(struct ash_kube_watch *watch, int limit_ms, struct ash_err *err)
{
    double end_s = now_s() + limit_ms * 1e-3;
    int rc = 0;

    watch->told = 0;
    while (rc == 0 && watch->told == 0) {
        double now = now_s(), until_s = watch->easy == NULL && watch->retry_s < end_s ? watch->retry_s : end_s;

        if (watch->version == NULL) {
            end_stream(watch); /* the server may leave it open after an error */
            rc = list(watch, err);
            continue;
        }
        if (watch->easy == NULL && now >= watch->retry_s) rc = begin_stream(watch, err);
        if (rc == 0) rc = work(watch, err);
        if (rc < 0 || watch->told > 0 || now >= end_s) break;
        if (watch->easy != NULL) until_s = end_s;
        watch->client->curl->multi_poll(watch->multi, NULL, 0, (int)(1e3 * (until_s - now)) + 1, NULL);
    }
    return rc < 0 ? rc : watch->told;
}

void ash_kube_watch_close(struct ash_kube_watch *watch)
{
    if (watch == NULL) return;
    end_stream(watch);
    if (watch->multi != NULL) watch->client->curl->multi_cleanup(watch->multi);
    ash_str_fini(&watch->answer.text);
    free(watch->path);
    free(watch->query);
    free(watch->version);
    free(watch);
}
