/* What a load test says to a server and understands of its answers; requests one at a time. */
#include "serve/client/load.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "base/socket.h"
#include "serve/client/load_priv.h"
#include "serve/client/response.h"

#define PORT_DEFAULT 80
#define CONNECT_SECONDS 2 /* for a server that is just starting */

/* ---- addresses --------------------------------------------------------------------------------------------------- */

/* The port after a colon, or the default if there is none. */
static int read_port(const char *text, size_t bytes, int *port_out)
{
    char digits[8];
    int64_t port = 0;

    if (bytes == 0) {
        *port_out = PORT_DEFAULT;
        return 0;
    }
    if (text[0] != ':' || bytes - 1 >= sizeof(digits)) return -EINVAL;
    snprintf(digits, sizeof(digits), "%.*s", (int)bytes - 1, text + 1);
    if (ash_number_parse_whole(digits, &port) < 0 || port < 1 || port > 65535) return -EINVAL;
    *port_out = (int)port;
    return 0;
}

/* The end of an address's host, with brackets, and the host without them. Returns its bytes, or 0. */
static size_t read_host(const char *text, size_t all, char *host, size_t host_bytes)
{
    const char *end = text[0] == '[' ? memchr(text, ']', all) : NULL;
    size_t bytes = end != NULL ? (size_t)(end - text) + 1 : strcspn(text, ":/?#");
    size_t skip = end != NULL ? 1 : 0;

    if ((text[0] == '[' && end == NULL) || bytes <= 2 * skip || bytes - 2 * skip >= host_bytes) return 0;
    memcpy(host, text + skip, bytes - 2 * skip);
    host[bytes - 2 * skip] = '\0';
    return bytes;
}

/* The path of an address without slashes at its end, and without the /v1 that SDKs want. Returns its bytes. */
static size_t path_bytes(const char *path)
{
    size_t bytes = strlen(path);

    while (bytes > 0 && path[bytes - 1] == '/')
        bytes--;
    return bytes >= 3 && strncmp(path + bytes - 3, "/v1", 3) == 0 ? bytes - 3 : bytes;
}

int ash_load_url_parse(const char *text, struct ash_load_url *url_out, struct ash_err *err)
{
    struct ash_load_url url = {0};
    const char *host = text + 7;
    size_t all, bytes, path;

    if (strncmp(text, "https://", 8) == 0)
        return ash_err_set(err, -EINVAL, "%.100s: only http:// is spoken here, without TLS", text);
    if (strncmp(text, "http://", 7) != 0)
        return ash_err_set(err, -EINVAL, "%.100s: an address like http://127.0.0.1:8000 is expected", text);
    all = strcspn(host, "/?#");
    path = path_bytes(host + all);
    bytes = read_host(host, all, url.host, sizeof(url.host));
    if (bytes == 0 || path >= sizeof(url.path) || text[strcspn(text, " \r\n\t")] != '\0')
        return ash_err_set(err, -EINVAL, "%.100s: no address of a server", text);
    memcpy(url.path, host + all, path);
    if (read_port(host + bytes, all - bytes, &url.port) < 0)
        return ash_err_set(err, -EINVAL, "%.100s: its port is no number from 1 to 65535", text);
    *url_out = url;
    return 0;
}

int ash_load_resolve(const struct ash_load_url *url, struct sockaddr_storage *addr_out, socklen_t *bytes_out,
                     struct ash_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[16];
    int code;

    snprintf(port, sizeof(port), "%d", url->port);
    code = getaddrinfo(url->host, port, &hints, &list);
    if (code != 0) return ash_err_set(err, -ENOENT, "%s: %s", url->host, gai_strerror(code));
    for (const struct addrinfo *at = list; at != NULL; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool is_there = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0;

        if (fd >= 0) close(fd);
        if (!is_there && at->ai_next != NULL) continue;
        memcpy(addr_out, at->ai_addr, at->ai_addrlen);
        *bytes_out = at->ai_addrlen;
        break;
    }
    freeaddrinfo(list);
    return 0;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

int ash_load_write_request(const struct ash_load_opts *opts, const char *path, const struct ash_str *body,
                           struct ash_str *out)
{
    bool is_v6 = strchr(opts->url.host, ':') != NULL;
    int rc = ash_str_addf(out, "%s %s%s HTTP/1.1\r\nHost: %s%s%s:%d\r\nAccept: */*\r\n", body != NULL ? "POST" : "GET",
                          opts->url.path, path, is_v6 ? "[" : "", opts->url.host, is_v6 ? "]" : "", opts->url.port);

    if (rc == 0 && opts->api_key != NULL) rc = ash_str_addf(out, "Authorization: Bearer %s\r\n", opts->api_key);
    if (rc == 0 && body != NULL)
        rc = ash_str_addf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body->size_bytes);
    if (rc == 0) rc = ash_str_adds(out, "\r\n");
    return rc == 0 && body != NULL ? ash_str_add(out, body->data, body->size_bytes) : rc;
}

static int add_quoted(struct ash_str *out, const char *text)
{
    json_t *string = json_string(text);
    char *quoted = string != NULL ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    int rc = quoted != NULL ? ash_str_adds(out, quoted) : -ENOMEM;

    free(quoted);
    json_decref(string);
    return rc;
}

int ash_load_write_body(const struct ash_load_opts *opts, const struct ash_workload *workload,
                        const struct ash_workload_item *item, struct ash_str *out)
{
    int rc = ash_str_adds(out, "{\"model\":");

    if (rc == 0) rc = add_quoted(out, opts->model);
    if (rc == 0)
        rc = ash_str_adds(out, opts->is_chat ? ",\"messages\":[{\"role\":\"user\",\"content\":" : ",\"prompt\":");
    if (rc == 0) rc = ash_prompt_add(&opts->form, workload, item, out);
    if (rc == 0 && opts->is_chat) rc = ash_str_adds(out, "}]");
    if (rc == 0) rc = ash_str_addf(out, ",\"max_tokens\":%zu,\"temperature\":", item->answer_tokens);
    if (rc == 0) rc = ash_number_add(out, opts->temperature);
    if (rc == 0 && opts->ignores_eos) rc = ash_str_adds(out, ",\"ignore_eos\":true");
    return rc == 0 ? ash_str_adds(out, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}") : rc;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

int ash_load_server_err(unsigned status, const char *body, struct ash_err *err)
{
    json_t *json = body != NULL ? json_loads(body, 0, NULL) : NULL;
    const json_t *error = json_object_get(json, "error");
    const char *text = json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);

    if (text == NULL) text = json_string_value(json_object_get(json, "message"));
    ash_err_set(err, -EREMOTEIO, "the server answers %u: %.300s", status, text != NULL ? text : "without a reason");
    json_decref(json);
    return -EREMOTEIO;
}

/* Is there text of the model in a choice? Chat has it in a delta, as an answer, a thought or a call. */
static bool choice_has_text(const json_t *choice)
{
    static const char *const keys[] = {"content", "reasoning_content", "reasoning"};
    const json_t *delta = json_object_get(choice, "delta");

    if (json_string_length(json_object_get(choice, "text")) > 0) return true;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (json_string_length(json_object_get(delta, keys[i])) > 0) return true;
    return json_array_size(json_object_get(delta, "tool_calls")) > 0;
}

static size_t read_count(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 ? (size_t)value : 0;
}

int ash_load_read_event(const char *text, size_t size_bytes, struct ash_load_event *event_out)
{
    struct ash_load_event event = {0};
    json_t *json = json_loadb(text, size_bytes, 0, NULL);
    const json_t *usage = json_object_get(json, "usage"), *choices = json_object_get(json, "choices");

    if (!json_is_object(json)) {
        json_decref(json);
        return -EPROTO;
    }
    for (size_t i = 0; i < json_array_size(choices); i++)
        event.has_text = event.has_text || choice_has_text(json_array_get(choices, i));
    event.is_error = json_object_get(json, "error") != NULL;
    event.has_usage = json_is_object(usage);
    event.prompt_tokens = read_count(usage, "prompt_tokens");
    event.answer_tokens = read_count(usage, "completion_tokens");
    event.cached_tokens = read_count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    json_decref(json);
    *event_out = event;
    return 0;
}

/* ---- one at a time ----------------------------------------------------------------------------------------------- */

static int read_response(int fd, uint64_t deadline_ns, struct ash_response *response)
{
    char bytes[16384];

    for (;;) {
        int rc = ash_socket_wait(fd, deadline_ns);
        ssize_t count;

        if (rc < 0) return rc;
        count = read(fd, bytes, sizeof(bytes));
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (count < 0) return -errno;
        rc = count == 0 ? ash_response_end(response) : ash_response_push(response, bytes, (size_t)count);
        if (rc != 0) return rc < 0 ? rc : 0;
    }
}

int ash_load_fetch(const struct ash_load_opts *opts, const char *path, const struct ash_str *body, json_t **json_out,
                   struct ash_err *err)
{
    uint64_t deadline_ns = ash_deadline_in(opts->timeout_s);
    int fd = ash_socket_connect(opts->url.host, opts->url.port, ash_deadline_in(CONNECT_SECONDS), err), rc;
    struct ash_response response;
    struct ash_str request = {0};
    char name[ASH_LOAD_HOST_BYTES];

    if (fd < 0) return fd;
    snprintf(name, sizeof(name), "the answer of %s", path);
    ash_response_init(&response, NULL, NULL);
    rc = ash_load_write_request(opts, path, body, &request);
    if (rc == 0) rc = ash_socket_send(fd, request.data, request.size_bytes, deadline_ns);
    if (rc == 0) rc = read_response(fd, deadline_ns, &response);
    close(fd);
    if (rc < 0)
        rc = ash_err_set(err, rc, "%s: %s", name, rc == -EPROTO ? "it is no HTTP" : strerror(-rc));
    else if (response.status != 200)
        rc = ash_load_server_err(response.status, response.body.data, err);
    else
        rc = ash_json_parse(response.body.data != NULL ? response.body.data : "", response.body.size_bytes, name,
                            json_out, err);
    ash_str_fini(&request);
    ash_response_fini(&response);
    return rc;
}
