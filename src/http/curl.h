/* curl - libcurl, loaded when the first client is opened: it draws in two dozen libraries that no other command
 * needs. */
#ifndef ASH_HTTP_CURL_H
#define ASH_HTTP_CURL_H

#include <curl/curl.h>
#include "ashlar/err.h"
#include "base/str.h"

/* The functions that are used, under their own names without the prefix. */
/* clang-format off */
#define ASH_CURL_FUNCTIONS(X) \
    X(global_init) X(easy_init) X(easy_cleanup) X(easy_setopt) X(easy_getinfo) X(easy_perform) \
    X(easy_strerror) X(slist_append) X(slist_free_all) X(multi_init) X(multi_cleanup) \
    X(multi_add_handle) X(multi_remove_handle) X(multi_perform) X(multi_poll) X(multi_info_read) \
    X(multi_setopt) X(getdate)
/* clang-format on */

struct ash_curl {
#define ASH_CURL_FIELD(name) __typeof__(curl_##name) *name;
    ASH_CURL_FUNCTIONS(ASH_CURL_FIELD)
#undef ASH_CURL_FIELD
};

/* libcurl, loaded once for the process. Any thread. Returns 0 or -ENOTSUP with what to install. */
int ash_curl_get(const struct ash_curl **curl_out, struct ash_err *err);

/* One plain request to a service on this machine or near it, as those that hand out keys: method, header lines
 * (NULL-terminated list, may be NULL), at most timeout_ms, at most 64 KiB of answer into text. Returns 0 on status 200,
 * -ENOENT on 404, else a negative errno with a sentence. */
int ash_curl_fetch(const char *method, const char *url, const char *const *headers, long timeout_ms,
                   struct ash_str *text, struct ash_err *err);

#endif
