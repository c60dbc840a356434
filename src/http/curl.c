/* Loading libcurl by name, and one plain request with it. */
#include "http/curl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define FETCH_MAX_BYTES 65536

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

static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
    struct ash_str *text = ctx;

    if (text->size_bytes + size * count > FETCH_MAX_BYTES || ash_str_add(text, data, size * count) < 0) return 0;
    return size * count;
}

static int judge(long status, const char *url, struct ash_err *err)
{
    if (status == 200) return 0;
    return ash_err_set(err, status == 404 ? -ENOENT : -EIO, "%s answers with status %ld", url, status);
}

int ash_curl_fetch(const char *method, const char *url, const char *const *headers, long timeout_ms,
                   struct ash_str *text, struct ash_err *err)
{
    const struct ash_curl *curl = NULL;
    struct curl_slist *list = NULL;
    CURL *easy = NULL;
    CURLcode code;
    long status = 0;
    int rc = ash_curl_get(&curl, err);

    if (rc < 0) return rc;
    easy = curl->easy_init();
    if (easy == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (; headers != NULL && *headers != NULL; headers++)
        list = curl->slist_append(list, *headers);
    curl->easy_setopt(easy, CURLOPT_URL, url);
    curl->easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    curl->easy_setopt(easy, CURLOPT_HTTPHEADER, list);
    curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(easy, CURLOPT_PROXY, "");
    curl->easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ms);
    curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl->easy_setopt(easy, CURLOPT_WRITEDATA, text);
    code = curl->easy_perform(easy);
    curl->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        rc = ash_err_set(err, -EIO, "%s: %s", url, curl->easy_strerror(code));
    else
        rc = judge(status, url, err);
    curl->slist_free_all(list);
    curl->easy_cleanup(easy);
    return rc;
}
