/* Loading libcurl by name, and one plain request with it. */
#include "http/curl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "http/fetch.h"

#define FETCH_MAX_BYTES 65536
#define POST_MAX_BYTES ((size_t)64 << 20)
#define CONNECT_MS 2000L

static struct ash_curl library;
static bool is_loaded;
static char why_not[256];

static void *load_function(void *handle, const char *name)
{
    void *function = dlsym(handle, name);

    if (function == NULL) snprintf(why_not, sizeof(why_not), "libcurl lacks %s", name);
    return function;
}

static void load(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *handle = NULL;

    for (size_t i = 0; handle == NULL && i < ASH_COUNT(names); i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        snprintf(why_not, sizeof(why_not), "%s", dlerror());
        return;
    }
#define LOAD(name) *(void **)(void *)&library.name = load_function(handle, "curl_" #name);
    ASH_CURL_FUNCTIONS(LOAD)
#undef LOAD
    if (why_not[0] == '\0' && library.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        snprintf(why_not, sizeof(why_not), "libcurl does not start");
    is_loaded = why_not[0] == '\0';
}

int ash_curl_get(const struct ash_curl **curl_out, struct ash_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    if (!is_loaded)
        return ash_err_set(err, -ENOTSUP,
                           "servers are spoken to through libcurl (on Debian: apt-get install libcurl4): %s", why_not);
    *curl_out = &library;
    return 0;
}

/* ---- one plain request ------------------------------------------------------------------------------------------- */

struct request {
    const char *method, *url;
    struct curl_slist *headers;
    long timeout_ms;
    size_t max_bytes;
    struct ash_str *text;
    const struct ash_str *sent; /* a body; NULL: none */
};

static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
    struct request *request = ctx;

    if (request->text->size_bytes + size * count > request->max_bytes ||
        ash_str_add(request->text, data, size * count) < 0)
        return 0;
    return size * count;
}

static int errno_of(CURLcode code, long os_errno)
{
    switch (code) {
    case CURLE_OK:
        return 0;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return -EINVAL;
    case CURLE_COULDNT_RESOLVE_HOST:
        return -EHOSTUNREACH;
    case CURLE_COULDNT_CONNECT:
        return os_errno > 0 ? -(int)os_errno : -EHOSTUNREACH;
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_WRITE_ERROR:
        return -EFBIG;
    default:
        return -EPROTO;
    }
}

/* Any answer is 0, with its status. Frees the headers. */
static int perform(struct request *request, long *status_out, struct ash_err *err)
{
    const struct ash_curl *curl = NULL;
    CURL *easy = NULL;
    CURLcode code;
    long os_errno = 0;
    double connect_s = 0;
    int rc = ash_curl_get(&curl, err);

    if (rc < 0) return rc;
    easy = curl->easy_init();
    if (easy == NULL) {
        curl->slist_free_all(request->headers);
        return ash_err_set(err, -ENOMEM, "out of memory");
    }
    curl->easy_setopt(easy, CURLOPT_URL, request->url);
    curl->easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    curl->easy_setopt(easy, CURLOPT_HTTPHEADER, request->headers);
    if (request->sent != NULL) {
        curl->easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)request->sent->size_bytes);
        curl->easy_setopt(easy, CURLOPT_POSTFIELDS, request->sent->data);
    }
    curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(easy, CURLOPT_PROXY, "");
    curl->easy_setopt(easy, CURLOPT_TIMEOUT_MS, request->timeout_ms);
    curl->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, ash_min(request->timeout_ms, CONNECT_MS));
    curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl->easy_setopt(easy, CURLOPT_WRITEDATA, request);
    code = curl->easy_perform(easy);
    curl->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, status_out);
    curl->easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_errno);
    curl->easy_getinfo(easy, CURLINFO_CONNECT_TIME, &connect_s);
    rc = errno_of(code, os_errno);
    if (rc == -ETIMEDOUT && connect_s <= 0) rc = -EHOSTUNREACH;
    if (rc < 0) ash_err_set(err, rc, "%s: %s", request->url, curl->easy_strerror(code));
    curl->slist_free_all(request->headers);
    curl->easy_cleanup(easy);
    return rc;
}

int ash_curl_fetch(const char *method, const char *url, const char *const *headers, long timeout_ms,
                   struct ash_str *text, struct ash_err *err)
{
    const struct ash_curl *curl = NULL;
    struct request request = {method, url, NULL, timeout_ms, FETCH_MAX_BYTES, text, NULL};
    long status = 0;
    int rc = ash_curl_get(&curl, err);

    for (; rc == 0 && headers != NULL && *headers != NULL; headers++)
        request.headers = curl->slist_append(request.headers, *headers);
    if (rc == 0) rc = perform(&request, &status, err);
    if (rc < 0 || status == 200) return rc;
    return ash_err_set(err, status == 404 ? -ENOENT : -EIO, "%s answers with status %ld", url, status);
}

int ash_fetch(const char *url, const char *token, double seconds, size_t max_bytes, struct ash_str *body,
              struct ash_err *err)
{
    const struct ash_curl *curl = NULL;
    struct request request = {"GET", url, NULL, (long)(seconds * 1e3), max_bytes, body, NULL};
    struct ash_str bearer = {0};
    long status = 0;
    int rc = ash_curl_get(&curl, err);

    if (rc == 0 && token != NULL) {
        rc = ash_str_addf(&bearer, "Authorization: Bearer %s", token);
        if (rc == 0) request.headers = curl->slist_append(NULL, bearer.data);
    }
    ash_str_fini(&bearer);
    if (rc == 0) rc = perform(&request, &status, err);
    if (rc < 0 || status == 200) return rc;
    ash_str_clear(body);
    return ash_err_set(err, -EPROTO, "%s: it answered %ld%s", url, status, status == 401 ? ": give its --token" : "");
}

int ash_fetch_post(const char *url, const struct ash_str *json, double seconds, struct ash_str *body, long *status_out,
                   struct ash_err *err)
{
    const struct ash_curl *curl = NULL;
    struct request request = {"POST", url, NULL, (long)(seconds * 1e3), POST_MAX_BYTES, body, json};
    long status = 0;
    int rc = ash_curl_get(&curl, err);

    if (rc < 0) return rc;
    request.headers = curl->slist_append(NULL, "Content-Type: application/json");
    rc = perform(&request, &status, err);
    if (rc == 0) *status_out = status;
    return rc;
}
