/* One attempt of a request: its address, headers and signature, and where its answer goes. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "storage/s3/s3_priv.h"

#define TEXT_MAX_BYTES ((size_t)32 << 20) /* of a list */
#define CONNECT_S 10L
#define STALL_S 20L /* without a byte */

void ash_s3_call_ask(struct ash_s3_call *call, const char *name, const char *value)
{
    ash_assert(call->query_count < ASH_S3_PAIRS_MAX);
    call->query[call->query_count++] = (struct ash_s3_pair){name, value};
}

void ash_s3_call_tell(struct ash_s3_call *call, const char *name, const char *value)
{
    ash_assert(call->header_count < ASH_S3_PAIRS_MAX);
    call->headers[call->header_count++] = (struct ash_s3_pair){name, value};
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* The value of header line `line` if its name is name, else NULL. */
static const char *value_of(const char *line, const char *name)
{
    size_t length = strlen(name);

    if (strncasecmp(line, name, length) != 0 || line[length] != ':') return NULL;
    line += length + 1;
    return line + strspn(line, " \t");
}

/* Copy the text of a header where line is one of this name. */
static void take(const char *line, const char *name, char *field, size_t field_bytes)
{
    const char *value = value_of(line, name);

    if (value != NULL) snprintf(field, field_bytes, "%s", value);
}

static double date_of(const struct ash_curl *curl, const char *line, const char *name, double otherwise)
{
    const char *value = value_of(line, name);
    time_t when = value != NULL ? curl->getdate(value, NULL) : -1;

    return when > 0 ? (double)when : otherwise;
}

static void take_header(const struct ash_curl *curl, struct ash_s3_call *call, const char *line)
{
    struct ash_s3_answer *answer = &call->answer;
    const char *value;

    if (strncmp(line, "HTTP/", 5) == 0) { /* a new answer, after "100 Continue" */
        *answer = (struct ash_s3_answer){0};
        return;
    }
    take(line, "etag", answer->etag, sizeof(answer->etag));
    take(line, "content-range", answer->content_range, sizeof(answer->content_range));
    take(line, "x-amz-bucket-region", answer->region, sizeof(answer->region));
    answer->date_s = date_of(curl, line, "date", answer->date_s);
    answer->modified_s = date_of(curl, line, "last-modified", answer->modified_s);
    value = value_of(line, "x-amz-server-side-encryption");
    if (value != NULL && strncmp(value, "AES256", 6) != 0) answer->is_encrypted = true;
    if (value_of(line, "x-amz-server-side-encryption-customer-algorithm") != NULL) answer->is_encrypted = true;
    value = value_of(line, "content-length");
    if (value != NULL) {
        answer->content_length = strtoull(value, NULL, 10);
        answer->has_length = true;
    }
    value = value_of(line, ASH_S3_PART_HEADER);
    if (value != NULL) answer->part_bytes = strtoull(value, NULL, 10);
    value = value_of(line, "retry-after");
    if (value != NULL) answer->retry_after_s = (double)strtoul(value, NULL, 10);
}

void ash_s3_acknowledge(struct ash_s3 *s3)
{
    const int is_quick = 1;

    for (size_t i = 0; s3->wants_ack && i < s3->socket_count; i++) /* a refusal only costs time */
        (void)setsockopt(s3->sockets[i], IPPROTO_TCP, TCP_QUICKACK, &is_quick, sizeof(is_quick));
    s3->wants_ack = false;
}

/* libcurl does not report a transfer's socket, so all of the client's are recorded. */
static int on_socket(void *ctx, curl_socket_t socket, curlsocktype purpose)
{
    struct ash_s3 *s3 = ctx;

    (void)purpose;
    if (s3->socket_count < ASH_S3_SOCKETS_MAX) s3->sockets[s3->socket_count++] = socket;
    return CURL_SOCKOPT_OK;
}

static int on_close(void *ctx, curl_socket_t socket)
{
    struct ash_s3 *s3 = ctx;

    for (size_t i = 0; i < s3->socket_count; i++)
        if (s3->sockets[i] == socket) s3->sockets[i] = s3->sockets[--s3->socket_count];
    return close(socket);
}

static size_t on_header(char *data, size_t size, size_t count, void *ctx)
{
    struct ash_s3_call *call = ctx;
    const struct ash_curl *curl = NULL;
    char line[1024];
    size_t length = ash_min(size * count, sizeof(line) - 1);

    if (ash_curl_get(&curl, NULL) < 0) return 0;
    memcpy(line, data, length);
    line[length] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    take_header(curl, call, line);
    if (line[0] == '\0') call->s3->wants_ack = true;
    return size * count;
}

static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
    struct ash_s3_call *call = ctx;
    const struct ash_curl *curl = NULL;
    size_t bytes = size * count;
    long status = 0;

    if (ash_curl_get(&curl, NULL) < 0) return 0;
    curl->easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (call->into == NULL || status < 200 || status > 299) {
        if (call->text.size_bytes + bytes > TEXT_MAX_BYTES || ash_str_add(&call->text, data, bytes) < 0) return 0;
        return bytes;
    }
    if (bytes > call->into_bytes - call->got_bytes) return 0; /* more than requested */
    ash_assert(call->got_bytes <= call->into_bytes);
    memcpy((char *)call->into + call->got_bytes, data, bytes);
    call->got_bytes += bytes;
    return bytes;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* The path as it is sent, and the value of the Host header. */
static int add_address(const struct ash_s3 *s3, const struct ash_s3_call *call, struct ash_str *path,
                       struct ash_str *host)
{
    int rc = ash_str_addf(host, "%s%s%s", s3->is_host_style ? s3->bucket : "", s3->is_host_style ? "." : "",
                          s3->endpoint.host);

    if (rc == 0) rc = ash_str_addf(path, "%s/", s3->endpoint.path);
    if (rc == 0 && !s3->is_host_style) rc = ash_uri_encode(path, s3->bucket, false);
    if (rc == 0 && !s3->is_host_style && call->key != NULL) rc = ash_str_adds(path, "/");
    if (rc == 0 && call->key != NULL) rc = ash_uri_encode(path, call->key, true);
    return rc;
}

static int add_line(const struct ash_curl *curl, struct curl_slist **list, const char *name, const char *value)
{
    struct ash_str line = {0};
    struct curl_slist *longer = NULL;
    int rc = ash_str_addf(&line, "%s: %s", name, value);

    if (rc == 0) longer = curl->slist_append(*list, line.data);
    ash_str_fini(&line);
    if (longer == NULL) return -ENOMEM;
    *list = longer;
    return 0;
}

/* Sign the request and make the list of its header lines. */
static int add_headers(struct ash_s3 *s3, struct ash_s3_call *call, const char *path, const char *host)
{
    struct ash_s3_pair headers[ASH_S3_PAIRS_MAX + 4];
    char stamp[ASH_S3_STAMP_BYTES];
    struct ash_str authorization = {0};
    size_t count = call->header_count;
    struct ash_sigv4_request request = {.method = call->method,
                                        .path = path,
                                        .query = call->query,
                                        .query_count = call->query_count,
                                        .headers = headers,
                                        .payload_hash = call->payload_hash,
                                        .region = s3->region,
                                        .service = "s3",
                                        .stamp = stamp};
    int rc;

    ash_sigv4_stamp(ash_clock_wall_s() + s3->skew_s, stamp);
    memcpy(headers, call->headers, count * sizeof(*headers));
    headers[count++] = (struct ash_s3_pair){"host", host};
    headers[count++] = (struct ash_s3_pair){"x-amz-content-sha256", call->payload_hash};
    headers[count++] = (struct ash_s3_pair){"x-amz-date", stamp};
    if (s3->keys.token[0] != '\0') headers[count++] = (struct ash_s3_pair){"x-amz-security-token", s3->keys.token};
    ash_assert(count <= ASH_COUNT(headers));
    request.header_count = count;
    rc = ash_sigv4_sign(&request, &s3->keys, &authorization);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = add_line(s3->curl, &call->list, headers[i].name, headers[i].value);
    if (rc == 0) rc = add_line(s3->curl, &call->list, "Authorization", authorization.data);
    if (rc == 0) rc = add_line(s3->curl, &call->list, "Expect", "");       /* no question before a body ... */
    if (rc == 0) rc = add_line(s3->curl, &call->list, "Content-Type", ""); /* ... and libcurl's guess of its type */
    ash_str_fini(&authorization);
    return rc;
}

static void set_transfer(struct ash_s3 *s3, struct ash_s3_call *call, const char *url)
{
    const struct ash_curl *curl = s3->curl;
    bool is_head = strcmp(call->method, "HEAD") == 0;

    curl->easy_setopt(call->easy, CURLOPT_URL, url);
    curl->easy_setopt(call->easy, CURLOPT_PATH_AS_IS, 1L); /* keys may have dots between slashes */
    curl->easy_setopt(call->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl->easy_setopt(call->easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(call->easy, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl->easy_setopt(call->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl->easy_setopt(call->easy, CURLOPT_LOW_SPEED_TIME, STALL_S);
    curl->easy_setopt(call->easy, CURLOPT_BUFFERSIZE, 524288L);
    curl->easy_setopt(call->easy, CURLOPT_UPLOAD_BUFFERSIZE, 524288L);
    curl->easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->list);
    curl->easy_setopt(call->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl->easy_setopt(call->easy, CURLOPT_HEADERDATA, call);
    curl->easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl->easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
    curl->easy_setopt(call->easy, CURLOPT_PRIVATE, call);
    curl->easy_setopt(call->easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
    curl->easy_setopt(call->easy, CURLOPT_SOCKOPTDATA, s3);
    curl->easy_setopt(call->easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    curl->easy_setopt(call->easy, CURLOPT_CLOSESOCKETDATA, s3);
    if (s3->ca_file[0] != '\0') curl->easy_setopt(call->easy, CURLOPT_CAINFO, s3->ca_file);
    if (is_head) curl->easy_setopt(call->easy, CURLOPT_NOBODY, 1L);
    if (strcmp(call->method, "PUT") == 0 || strcmp(call->method, "POST") == 0) {
        curl->easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_bytes);
        curl->easy_setopt(call->easy, CURLOPT_POSTFIELDS, call->body_bytes > 0 ? call->body : "");
    }
    if (!is_head) curl->easy_setopt(call->easy, CURLOPT_CUSTOMREQUEST, call->method);
}

/* Everything of an attempt but its handle: the list of headers, and the address into url. */
static int add_request(struct ash_s3 *s3, struct ash_s3_call *call, struct ash_str *url)
{
    struct ash_str path = {0}, host = {0};
    int rc = add_address(s3, call, &path, &host);

    if (rc == 0) rc = add_headers(s3, call, path.data, host.data);
    if (rc == 0) rc = ash_str_addf(url, "%s://%s%s", s3->endpoint.is_https ? "https" : "http", host.data, path.data);
    if (rc == 0 && call->query_count > 0) rc = ash_str_adds(url, "?");
    if (rc == 0) rc = ash_sigv4_query(url, call->query, call->query_count);
    ash_str_fini(&path);
    ash_str_fini(&host);
    return rc;
}

int ash_s3_call_prepare(struct ash_s3 *s3, struct ash_s3_call *call, struct ash_err *err)
{
    struct ash_str url = {0};
    int rc = ash_s3_renew_keys(s3, false, err);

    if (rc < 0) return rc;
    ash_assert(call->easy == NULL && call->list == NULL);
    call->s3 = s3;
    call->answer = (struct ash_s3_answer){0};
    call->got_bytes = 0;
    ash_str_clear(&call->text);
    if (call->payload_hash[0] == '\0') rc = ash_sha256_hex(call->body, call->body_bytes, call->payload_hash);
    if (rc == 0) rc = add_request(s3, call, &url);
    call->easy = rc == 0 ? s3->curl->easy_init() : NULL;
    if (rc == 0 && call->easy == NULL) rc = -ENOMEM;
    if (rc == 0) set_transfer(s3, call, url.data);
    ash_str_fini(&url);
    return rc < 0 ? ash_err_set(err, rc, "cannot prepare a request to S3: %s", strerror(-rc)) : 0;
}
