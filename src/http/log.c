/* The access log: one line per request, values as fields, without texts, keys or queries. */
#include "http/http_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* A client's path may contain any byte: all but plain characters become '?'. */
static void copy_plain(const char *text, char *buf, size_t buf_bytes)
{
    size_t i = 0;

    for (; text[i] != '\0' && i + 1 < buf_bytes; i++)
        buf[i] = text[i];
    buf[i] = '\0';
    for (i = 0; buf[i] != '\0'; i++)
        if (!isgraph((unsigned char)buf[i]) || buf[i] == '"') buf[i] = '?';
}

static const char *end_name(const struct ash_http_exchange *exchange, enum MHD_RequestTerminationCode code)
{
    if (exchange->is_gone && !exchange->is_whole) return "client_gone";
    return exchange->is_whole || code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "complete" : "broken";
}

void ash_http_log(struct ash_http_exchange *exchange, enum MHD_RequestTerminationCode code)
{
    char path[ASH_HTTP_PATH_BYTES], method[16], note[ASH_HTTP_NOTE_BYTES];
    const char *end;
    unsigned status;

    pthread_mutex_lock(&exchange->lock);
    end = end_name(exchange, code);
    status = exchange->status;
    memcpy(note, exchange->note, sizeof(note));
    pthread_mutex_unlock(&exchange->lock);
    copy_plain(exchange->path, path, sizeof(path));
    copy_plain(exchange->method, method, sizeof(method));
    ash_log(
        ASH_LOG_INFO,
        "request id=%s method=%s path=%s status=%u end=%s ms=%.1f in_bytes=%llu out_bytes=%llu key=%s client=%s%s%s",
        exchange->id, method, path, status, end, (double)(ash_clock_ns() - exchange->started_ns) / 1e6,
        (unsigned long long)exchange->received_bytes, (unsigned long long)exchange->sent_bytes,
        ash_key_name(exchange->key), exchange->client, note[0] != '\0' ? " " : "", note);
}
