/* Requests to the API server, with libcurl. */
#include "orchestrate/kubernetes/client_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/json.h"

#define ANSWER_MAX ((size_t)64 << 20)
#define CALL_LIMIT_MS 30000L
#define BUDGET_S 30.0 /* of trying again */
#define WAIT_FIRST_MS 200
#define WAIT_MAX_MS 5000

int ash_kube_client_open(struct ash_kube_client **client_out, struct ash_err *err)
{
    struct ash_kube_client *client = calloc(1, sizeof(*client));
    int rc = client == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : ash_kube_config_find(&client->config, err);

    if (rc == 0) rc = ash_curl_get(&client->curl, err);
    if (rc == 0) {
        client->easy = client->curl->easy_init();
        if (client->easy == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory");
    }
    if (rc < 0) {
        ash_kube_client_close(client);
        return rc;
    }
    *client_out = client;
    return 0;
}

void ash_kube_client_close(struct ash_kube_client *client)
{
    if (client == NULL) return;
    if (client->easy != NULL) client->curl->easy_cleanup(client->easy);
    ash_kube_config_free(&client->config);
    free(client);
}

const char *ash_kube_client_namespace(const struct ash_kube_client *client)
{
    return client->config.kube_namespace != NULL ? client->config.kube_namespace : "default";
}

/* ---- one attempt ------------------------------------------------------------------------------------------------- */

static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
    struct ash_str *text = ctx;

    if (text->size_bytes + size * count > ANSWER_MAX || ash_str_add(text, data, size * count) < 0) return 0;
    return size * count;
}

static void set_blob(const struct ash_kube_client *client, CURL *easy, CURLoption option, const char *text)
{
    struct curl_blob blob = {
        .data = (void *)(uintptr_t)text, .len = text != NULL ? strlen(text) : 0, .flags = CURL_BLOB_COPY};

    if (text != NULL) client->curl->easy_setopt(easy, option, &blob);
}

static void set_identity(const struct ash_kube_client *client, CURL *easy)
{
    const struct ash_kube_config *config = &client->config;

    set_blob(client, easy, CURLOPT_CAINFO_BLOB, config->ca);
    set_blob(client, easy, CURLOPT_SSLCERT_BLOB, config->cert);
    set_blob(client, easy, CURLOPT_SSLKEY_BLOB, config->key);
    if (config->is_insecure) {
        client->curl->easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        client->curl->easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (config->user != NULL) client->curl->easy_setopt(easy, CURLOPT_USERNAME, config->user);
    if (config->password != NULL) client->curl->easy_setopt(easy, CURLOPT_PASSWORD, config->password);
}

int ash_kube_client_aim(const struct ash_kube_client *client, CURL *easy, const char *path,
                        struct curl_slist **headers_inout, struct ash_err *err)
{
    struct ash_str url = {0}, bearer = {0};
    int rc = ash_str_addf(&url, "%s%s", client->config.server, path);

    if (rc == 0 && client->config.token != NULL)
        rc = ash_str_addf(&bearer, "Authorization: Bearer %s", client->config.token);
    if (rc == 0 && bearer.data != NULL) *headers_inout = client->curl->slist_append(*headers_inout, bearer.data);
    if (rc == 0) {
        set_identity(client, easy);
        client->curl->easy_setopt(easy, CURLOPT_URL, url.data); /* copied */
        client->curl->easy_setopt(easy, CURLOPT_HTTPHEADER, *headers_inout);
        client->curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    }
    ash_str_fini(&url);
    ash_str_fini(&bearer);
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}

static int attempt(const struct ash_kube_client *client, const char *method, const char *path, const char *body,
                   struct ash_kube_answer *answer, struct ash_err *err)
{
    const struct ash_curl *curl = client->curl;
    struct curl_slist *headers =
        curl->slist_append(NULL, strcmp(method, "PATCH") == 0 ? "Content-Type: application/merge-patch+json"
                                                              : "Content-Type: application/json");
    curl_off_t wait = 0;
    int rc = ash_kube_client_aim(client, client->easy, path, &headers, err);

    if (rc == 0) {
        curl->easy_setopt(client->easy, CURLOPT_POSTFIELDS, body);
        if (body == NULL) curl->easy_setopt(client->easy, CURLOPT_HTTPGET, 1L);
        curl->easy_setopt(client->easy, CURLOPT_CUSTOMREQUEST, method);
        curl->easy_setopt(client->easy, CURLOPT_TIMEOUT_MS, CALL_LIMIT_MS);
        curl->easy_setopt(client->easy, CURLOPT_WRITEFUNCTION, on_body);
        curl->easy_setopt(client->easy, CURLOPT_WRITEDATA, &answer->text);
        answer->code = curl->easy_perform(client->easy);
        curl->easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &answer->status);
        curl->easy_getinfo(client->easy, CURLINFO_RETRY_AFTER, &wait);
        answer->retry_after_s = (long)wait;
        if (ash_str_adds(&answer->text, "") < 0) /* a text even where nothing came */
            rc = ash_err_set(err, -ENOMEM, "out of memory");
    }
    curl->slist_free_all(headers);
    return rc;
}

/* ---- judging it -------------------------------------------------------------------------------------------------- */

bool ash_kube_client_may_retry(const struct ash_kube_answer *answer)
{
    if (answer->code == CURLE_PEER_FAILED_VERIFICATION || answer->code == CURLE_SSL_CACERT_BADFILE ||
        answer->code == CURLE_URL_MALFORMAT || answer->code == CURLE_WRITE_ERROR)
        return false;
    return answer->code != CURLE_OK || answer->status == 429 || answer->status >= 500;
}

/* A request that may have taken effect is not repeated, except for a GET. */
static bool is_worth_another(const struct ash_kube_answer *answer, const char *method)
{
    if (answer->code != CURLE_OK && answer->code != CURLE_COULDNT_CONNECT && strcmp(method, "POST") == 0) return false;
    return ash_kube_client_may_retry(answer);
}

/* The server's message, if it sends one. */
static void message_of(const struct ash_kube_answer *answer, char *buf, size_t buf_bytes)
{
    json_t *json = NULL;
    const char *text = NULL;

    if (ash_json_parse(answer->text.data, answer->text.size_bytes, "the answer", &json, NULL) == 0)
        text = json_string_value(json_object_get(json, "message"));
    snprintf(buf, buf_bytes, "%s", text != NULL ? text : "it says no more");
    json_decref(json);
}

int ash_kube_client_judge(const struct ash_kube_client *client, const struct ash_kube_answer *answer,
                          struct ash_err *err)
{
    static const struct {
        long status;
        int rc;
    } codes[] = {{400, -EINVAL}, {401, -EACCES}, {403, -EACCES}, {404, -ENOENT}, {409, -EEXIST}, {422, -EINVAL}};
    char message[400];
    int rc = -EIO;

    if (answer->code != CURLE_OK)
        return ash_err_set(err, -EIO, "%s: %s", client->config.server, client->curl->easy_strerror(answer->code));
    if (answer->status >= 200 && answer->status < 300) return 0;
    message_of(answer, message, sizeof(message));
    for (size_t i = 0; i < ASH_COUNT(codes); i++)
        if (codes[i].status == answer->status) rc = codes[i].rc;
    return ash_err_set(err, rc, "Kubernetes answers %ld: %s", answer->status, message);
}

/* Try until it works, is refused or the budget is spent. */
static int perform(struct ash_kube_client *client, const char *method, const char *path, const char *body,
                   struct ash_kube_answer *answer, struct ash_err *err)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(BUDGET_S * 1e9);
    int wait_ms = WAIT_FIRST_MS, rc;

    for (;;) {
        ash_str_clear(&answer->text);
        rc = attempt(client, method, path, body, answer, err);
        if (rc < 0) return rc;
        rc = ash_kube_client_judge(client, answer, err);
        if (rc == 0 || !is_worth_another(answer, method)) return rc;
        if (answer->retry_after_s > 0 && answer->retry_after_s * 1000 <= WAIT_MAX_MS)
            wait_ms = (int)answer->retry_after_s * 1000;
        if (ash_clock_ns() + (uint64_t)wait_ms * 1000000 >= end_ns || ash_interrupt_requested()) return rc;
        poll(NULL, 0, wait_ms);
        wait_ms = 2 * wait_ms < WAIT_MAX_MS ? 2 * wait_ms : WAIT_MAX_MS;
    }
}

int ash_kube_client_call(struct ash_kube_client *client, const char *method, const char *path, const json_t *body,
                         json_t **answer_out, struct ash_err *err)
{
    struct ash_kube_answer answer = {0};
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    int rc;

    if (body != NULL && text == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = perform(client, method, path, text, &answer, err);
    if (rc == 0 && answer_out != NULL)
        rc = ash_json_parse(answer.text.data, answer.text.size_bytes, "Kubernetes' answer", answer_out, err);
    ash_str_fini(&answer.text);
    free(text);
    return rc;
}

int ash_kube_client_text(struct ash_kube_client *client, const char *path, struct ash_str *text_out,
                         struct ash_err *err)
{
    struct ash_kube_answer answer = {0};
    int rc = perform(client, "GET", path, NULL, &answer, err);

    if (rc == 0) rc = ash_str_add(text_out, answer.text.data, answer.text.size_bytes);
    ash_str_fini(&answer.text);
    return rc;
}
