/* http_client - a client over plain sockets for tests: it can be slow, rude and wrong on purpose. Fails the test where a
 * call cannot work. */
#ifndef ASH_TESTS_HTTP_CLIENT_H
#define ASH_TESTS_HTTP_CLIENT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/str.h"

/* A whole answer. */
struct http_answer {
    int status;
    char *header; /* from the status line to the empty line */
    struct ash_str body;
};

static inline int http_connect(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval limit = {.tv_sec = 30};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static inline bool http_send(int fd, const char *text)
{
    return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

/* Send a request; headers is "Name: value\r\n…" or "". */
static inline bool http_send_request(int fd, const char *method, const char *path, const char *headers,
                                     const char *body)
{
    struct ash_str text = {0};
    bool is_sent;

    ash_str_addf(&text, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path, headers);
    if (body != NULL) ash_str_addf(&text, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    ash_str_addf(&text, "\r\n%s", body != NULL ? body : "");
    is_sent = send(fd, text.data, text.size_bytes, MSG_NOSIGNAL) == (ssize_t)text.size_bytes;
    ash_str_fini(&text);
    return is_sent;
}

/* Read until the text so far holds `end`, or the connection closes. Returns whether it was found. */
static inline bool http_read_until(int fd, const char *end, struct ash_str *text)
{
    char buf[4096];
    ssize_t got;

    while (text->data == NULL || strstr(text->data, end) == NULL) {
        got = recv(fd, buf, sizeof(buf), 0);
        if (got <= 0) return false;
        ash_str_add(text, buf, (size_t)got);
    }
    return true;
}

/* The value of a header, lower-case name with ": ", copied into buf; or NULL. */
static inline const char *http_header(const struct http_answer *answer, const char *name, char *buf, size_t buf_bytes)
{
    const char *at = strcasestr(answer->header, name);
    size_t bytes;

    if (at == NULL) return NULL;
    at += strlen(name);
    bytes = strcspn(at, "\r\n");
    snprintf(buf, buf_bytes, "%.*s", (int)bytes, at);
    return buf;
}

/* Chunks joined. */
static inline void http_unchunk(struct ash_str *body)
{
    struct ash_str joined = {0};
    const char *at = body->data;

    while (at != NULL && *at != '\0') {
        char *after = NULL;
        size_t bytes = strtoul(at, &after, 16);

        if (bytes == 0) break;
        at = strstr(after, "\r\n") + 2;
        ash_str_add(&joined, at, bytes);
        at += bytes + 2;
    }
    ash_str_fini(body);
    *body = joined;
    if (body->data == NULL) ash_str_adds(body, "");
}

/* Is the body that text has after its header whole? */
static inline bool http_is_whole(const struct ash_str *text, size_t header_bytes, bool is_head)
{
    const char *length = strcasestr(text->data, "content-length: ");

    if (is_head || strncmp(text->data + 9, "204", 3) == 0) return true;
    if (length != NULL && length < text->data + header_bytes)
        return text->size_bytes - header_bytes >= strtoul(length + 16, NULL, 10);
    return strstr(text->data + header_bytes, "0\r\n\r\n") != NULL;
}

/* Read an answer. Status 0: the connection closed before. Free with http_answer_fini. */
static inline struct http_answer http_read(int fd, bool is_head)
{
    struct http_answer answer = {0};
    struct ash_str text = {0};
    size_t header_bytes;
    char buf[16384];

    if (!http_read_until(fd, "\r\n\r\n", &text)) {
        ash_str_fini(&text);
        answer.header = strdup("");
        ash_str_adds(&answer.body, "");
        return answer;
    }
    header_bytes = (size_t)(strstr(text.data, "\r\n\r\n") - text.data) + 4;
    while (!http_is_whole(&text, header_bytes, is_head)) {
        ssize_t got = recv(fd, buf, sizeof(buf), 0);

        if (got <= 0) break;
        ash_str_add(&text, buf, (size_t)got);
    }
    answer.status = atoi(text.data + 9);
    answer.header = strndup(text.data, header_bytes);
    ash_str_add(&answer.body, text.data + header_bytes, text.size_bytes - header_bytes);
    if (strcasestr(answer.header, "transfer-encoding: chunked") != NULL) http_unchunk(&answer.body);
    if (answer.body.data == NULL) ash_str_adds(&answer.body, "");
    ash_str_fini(&text);
    return answer;
}

static inline void http_answer_fini(struct http_answer *answer)
{
    free(answer->header);
    ash_str_fini(&answer->body);
}

/* One request on a connection of its own. */
static inline struct http_answer http_do(int port, const char *method, const char *path, const char *headers,
                                         const char *body)
{
    struct http_answer answer = {0};
    int fd = http_connect(port);

    if (fd >= 0 && http_send_request(fd, method, path, headers, body))
        answer = http_read(fd, strcmp(method, "HEAD") == 0);
    else
        answer = (struct http_answer){.header = strdup("")};
    if (answer.body.data == NULL) ash_str_adds(&answer.body, "");
    if (fd >= 0) close(fd);
    return answer;
}

#endif
