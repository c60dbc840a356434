/* One connection per request, closed by the server; HTTP/1.0 keeps answers plain, chunks are understood anyway. */
#include "observe/fetch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/socket.h"

struct address {
    char host[256];
    int port;
    const char *path;
};

/* http://host:port/path; [::1] too. */
static int parse_url(const char *url, struct address *address, struct ash_err *err)
{
    const char *host, *end, *colon;
    long port = 80;
    size_t bytes;

    if (strncmp(url, "http://", 7) == 0) url += 7;
    if (strstr(url, "://") != NULL) return ash_err_set(err, -EINVAL, "'%s': only http:// is understood", url);
    address->path = strchr(url, '/');
    end = address->path != NULL ? address->path : url + strlen(url);
    host = url;
    if (*host == '[') {
        colon = strchr(host, ']');
        if (colon == NULL || colon > end) return ash_err_set(err, -EINVAL, "'%s' is no address", url);
        bytes = (size_t)(colon - ++host);
        colon++;
    } else {
        colon = memchr(host, ':', (size_t)(end - host));
        if (colon == NULL) colon = end;
        bytes = (size_t)(colon - host);
    }
    if (*colon == ':') port = strtol(colon + 1, NULL, 10);
    if (bytes == 0 || bytes >= sizeof(address->host) || port < 1 || port > 65535)
        return ash_err_set(err, -EINVAL, "'%s' is no address: http://HOST:PORT", url);
    memcpy(address->host, host, bytes);
    address->host[bytes] = '\0';
    address->port = (int)port;
    if (address->path == NULL) address->path = "/";
    return 0;
}

static int unchunk(const char *data, size_t size_bytes, struct ash_str *body, struct ash_err *err)
{
    const char *at = data, *end = data + size_bytes;

    for (;;) {
        char *stop = NULL;
        unsigned long long bytes = strtoull(at, &stop, 16);
        const char *line = stop != NULL ? memchr(stop, '\n', (size_t)(end - stop)) : NULL;

        if (stop == at || line == NULL || bytes > (size_t)(end - line))
            return ash_err_set(err, -EPROTO, "the answer is cut off");
        if (bytes == 0) return 0;
        line++;
        if (bytes > (size_t)(end - line)) return ash_err_set(err, -EPROTO, "the answer is cut off");
        if (ash_str_add(body, line, (size_t)bytes) < 0) return -ENOMEM;
        at = line + bytes;
        while (at < end && (*at == '\r' || *at == '\n'))
            at++;
        if (at >= end) return ash_err_set(err, -EPROTO, "the answer is cut off");
    }
}

/* A header's value, or NULL; names have any case. */
static const char *header_of(const char *head, const char *end, const char *name)
{
    for (const char *line = head; line != NULL && line < end; line = memchr(line, '\n', (size_t)(end - line))) {
        if (*line == '\n') line++;
        if ((size_t)(end - line) > strlen(name) && strncasecmp(line, name, strlen(name)) == 0)
            return line + strlen(name);
    }
    return NULL;
}

int ash_fetch_parse(const char *data, size_t size_bytes, struct ash_str *body, struct ash_err *err)
{
    const char *blank = memmem(data, size_bytes, "\r\n\r\n", 4), *coding;
    int status = 0;

    if (blank == NULL || sscanf(data, "HTTP/%*d.%*d %d", &status) != 1)
        return ash_err_set(err, -EPROTO, "what answers does not speak HTTP");
    if (status != 200)
        return ash_err_set(err, -EPROTO, "it answered %d%s", status, status == 401 ? ": give its --token" : "");
    coding = header_of(data, blank + 2, "transfer-encoding:");
    blank += 4;
    if (coding != NULL && strncasecmp(coding + strspn(coding, " "), "chunked", 7) == 0)
        return unchunk(blank, size_bytes - (size_t)(blank - data), body, err);
    return ash_str_add(body, blank, size_bytes - (size_t)(blank - data)) < 0 ? -ENOMEM : 0;
}

static int read_all(int fd, uint64_t deadline_ns, size_t max_bytes, struct ash_str *answer)
{
    char block[65536];

    for (;;) {
        int rc = ash_socket_wait(fd, deadline_ns);
        ssize_t got = rc == 0 ? recv(fd, block, sizeof(block), 0) : 0;

        if (rc < 0) return rc;
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got < 0) return -errno;
        if (got == 0) return 0;
        if (answer->size_bytes + (size_t)got > max_bytes) return -EFBIG;
        if (ash_str_add(answer, block, (size_t)got) < 0) return -ENOMEM;
    }
}

int ash_fetch(const char *url, const char *token, double seconds, size_t max_bytes, struct ash_str *body,
              struct ash_err *err)
{
    uint64_t deadline_ns = ash_deadline_in(seconds);
    struct ash_str request = {0}, answer = {0};
    struct address address;
    int fd = -1, rc = parse_url(url, &address, err);

    if (rc < 0) return rc;
    fd = ash_socket_connect(address.host, address.port, ash_deadline_in(seconds < 2 ? seconds : 2), err);
    if (fd < 0) {
        ash_err_prefix(err, fd, "%s", url);
        return fd == -ETIMEDOUT ? -EHOSTUNREACH : fd;
    }
    ash_str_addf(&request, "GET %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n%s%s%s\r\n", address.path, address.host,
                 token != NULL ? "Authorization: Bearer " : "", token != NULL ? token : "",
                 token != NULL ? "\r\n" : "");
    rc = request.data != NULL ? ash_socket_send(fd, request.data, request.size_bytes, deadline_ns) : -ENOMEM;
    if (rc == 0) rc = read_all(fd, deadline_ns, max_bytes, &answer);
    if (rc < 0)
        ash_err_set(err, rc, "%s does not answer: %s", url, strerror(-rc));
    else
        rc = ash_fetch_parse(answer.data != NULL ? answer.data : "", answer.size_bytes, body, err);
    if (rc == -EPROTO) ash_err_prefix(err, rc, "%s", url);
    close(fd);
    ash_str_fini(&request);
    ash_str_fini(&answer);
    return rc;
}
