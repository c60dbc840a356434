/* An HTTP/1.1 response, byte by byte: status, headers, a body by length, by chunks or to the end of the connection, and
 * server-sent events inside it. A state per line or run of bytes, so that any cut of the bytes reads the same. */
#include "serve/client/response.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void ash_response_init(struct ash_response *response, ash_response_event_fn see, void *ctx)
{
    *response = (struct ash_response){.see = see, .ctx = ctx};
}

void ash_response_fini(struct ash_response *response)
{
    ash_str_fini(&response->line);
    ash_str_fini(&response->body);
    ash_str_fini(&response->field);
    ash_str_fini(&response->event);
}

void ash_response_reset(struct ash_response *response)
{
    struct ash_response old = *response;

    ash_response_init(response, old.see, old.ctx);
    response->see_header = old.see_header;
    response->see_body = old.see_body;
    response->line = old.line;
    response->body = old.body;
    response->field = old.field;
    response->event = old.event;
    ash_str_clear(&response->line);
    ash_str_clear(&response->body);
    ash_str_clear(&response->field);
    ash_str_clear(&response->event);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static int end_event(struct ash_response *response)
{
    int rc = 0;

    if (response->has_data && response->see != NULL)
        rc = response->see(response->ctx, response->event.data != NULL ? response->event.data : "",
                           response->event.size_bytes);
    response->has_data = false;
    ash_str_clear(&response->event);
    return rc < 0 ? rc : 0;
}

/* One line of the stream, without its end: data, or nothing at all, which ends the event. Other fields are not used. */
static int read_field(struct ash_response *response)
{
    const char *text = response->field.data != NULL ? response->field.data : "";
    size_t bytes = response->field.size_bytes, skip = 5;
    int rc = 0;

    if (bytes > 0 && text[bytes - 1] == '\r') bytes--;
    if (bytes == 0) return end_event(response);
    if (bytes < 5 || memcmp(text, "data:", 5) != 0) return 0;
    if (bytes > 5 && text[5] == ' ') skip = 6;
    if (response->event.size_bytes + bytes > ASH_RESPONSE_BODY_BYTES_MAX) return -EMSGSIZE;
    if (response->has_data) rc = ash_str_add(&response->event, "\n", 1);
    response->has_data = true;
    return rc == 0 ? ash_str_add(&response->event, text + skip, bytes - skip) : rc;
}

static int push_stream(struct ash_response *response, const char *bytes, size_t size_bytes)
{
    while (size_bytes > 0) {
        const char *end = memchr(bytes, '\n', size_bytes);
        size_t take = end != NULL ? (size_t)(end - bytes) : size_bytes;
        int rc;

        if (response->field.size_bytes + take > ASH_RESPONSE_BODY_BYTES_MAX) return -EMSGSIZE;
        rc = ash_str_add(&response->field, bytes, take);
        if (rc < 0) return rc;
        if (end == NULL) return 0;
        rc = read_field(response);
        if (rc < 0) return rc;
        ash_str_clear(&response->field);
        bytes += take + 1;
        size_bytes -= take + 1;
    }
    return 0;
}

static int push_body(struct ash_response *response, const char *bytes, size_t size_bytes)
{
    if (response->see_body != NULL) return response->see_body(response->ctx, bytes, size_bytes);
    if (response->is_stream) return push_stream(response, bytes, size_bytes);
    if (response->body.size_bytes + size_bytes > ASH_RESPONSE_BODY_BYTES_MAX) return -EMSGSIZE;
    return ash_str_add(&response->body, bytes, size_bytes);
}

/* ---- lines of the protocol --------------------------------------------------------------------------------------- */

/* The value of a header of this name, or NULL. */
static const char *value_of(const char *line, const char *name)
{
    size_t bytes = strlen(name);

    if (strncasecmp(line, name, bytes) != 0 || line[bytes] != ':') return NULL;
    line += bytes + 1;
    return line + strspn(line, " \t");
}

static int read_status(struct ash_response *response, const char *line)
{
    if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ') return -EPROTO;
    if (strspn(line + 9, "0123456789") != 3) return -EPROTO;
    response->status = (unsigned)((line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0'));
    response->keeps_open = line[7] == '1';
    response->stage = ASH_RESPONSE_HEADER;
    return 0;
}

/* A number of at most 18 digits of this base (10 or 16); what may follow it is in `after`. */
static int read_number(const char *text, int base, const char *after, uint64_t *value_out)
{
    size_t digits = strspn(text, base == 16 ? "0123456789abcdefABCDEF" : "0123456789");

    if (digits == 0 || digits > 15 || (text[digits] != '\0' && strchr(after, text[digits]) == NULL)) return -EPROTO;
    *value_out = strtoull(text, NULL, base);
    return 0;
}

/* The header is complete: what follows? */
static void begin_body(struct ash_response *response)
{
    if (response->status < 200 && response->status != 101) {
        response->stage = ASH_RESPONSE_STATUS; /* an interim response: the real one follows */
        response->is_chunked = response->has_length = response->is_stream = false;
    } else if (response->status == 204 || response->status == 304) {
        response->stage = ASH_RESPONSE_DONE;
    } else if (response->is_chunked) {
        response->stage = ASH_RESPONSE_CHUNK_SIZE;
    } else {
        response->stage = response->has_length && response->left_bytes == 0 ? ASH_RESPONSE_DONE : ASH_RESPONSE_BODY;
        if (!response->has_length) response->keeps_open = false;
    }
}

/* Show a header, whose colon is at this place of the line. */
static int show_header(struct ash_response *response, char *colon)
{
    int rc;

    if (response->see_header == NULL) return 0;
    *colon = '\0';
    rc = response->see_header(response->ctx, response->line.data, colon + 1 + strspn(colon + 1, " \t"));
    *colon = ':';
    return rc < 0 ? rc : 0;
}

static int read_header(struct ash_response *response, const char *line)
{
    const char *value;
    char *colon;
    int rc;

    if (line[0] == '\0') {
        begin_body(response);
        return 0;
    }
    colon = strchr(response->line.data, ':');
    if (colon == NULL) return -EPROTO;
    rc = show_header(response, colon);
    if (rc < 0) return rc;
    value = value_of(line, "Content-Length");
    if (value != NULL) {
        response->has_length = true;
        return read_number(value, 10, " \t", &response->left_bytes);
    }
    value = value_of(line, "Transfer-Encoding");
    if (value != NULL) {
        if (strcasecmp(value, "chunked") != 0) return -EPROTO;
        response->is_chunked = true;
    }
    value = value_of(line, "Content-Type");
    if (value != NULL) response->is_stream = strncasecmp(value, "text/event-stream", 17) == 0;
    value = value_of(line, "Connection");
    if (value != NULL && strcasecmp(value, "close") == 0) response->keeps_open = false;
    return 0;
}

static int read_line(struct ash_response *response)
{
    const char *line;
    int rc = 0;

    if (response->line.size_bytes > 0 && response->line.data[response->line.size_bytes - 1] == '\r')
        response->line.data[--response->line.size_bytes] = '\0';
    line = response->line.data != NULL ? response->line.data : "";
    switch (response->stage) {
    case ASH_RESPONSE_STATUS:
        rc = read_status(response, line);
        break;
    case ASH_RESPONSE_HEADER:
        rc = read_header(response, line);
        break;
    case ASH_RESPONSE_CHUNK_SIZE:
        rc = read_number(line, 16, "; \t", &response->left_bytes);
        if (rc == 0) response->stage = response->left_bytes > 0 ? ASH_RESPONSE_CHUNK : ASH_RESPONSE_TRAILER;
        break;
    case ASH_RESPONSE_CHUNK_END:
        if (line[0] != '\0') rc = -EPROTO;
        response->stage = ASH_RESPONSE_CHUNK_SIZE;
        break;
    default: /* a trailer */
        if (line[0] == '\0') response->stage = ASH_RESPONSE_DONE;
        break;
    }
    ash_str_clear(&response->line);
    return rc;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Take what belongs to the present line or run; *used_out says how much. */
static int push_some(struct ash_response *response, const char *bytes, size_t size_bytes, size_t *used_out)
{
    bool is_chunk = response->stage == ASH_RESPONSE_CHUNK, is_body = response->stage == ASH_RESPONSE_BODY;
    const char *end;
    size_t take;
    int rc;

    if (is_chunk || is_body) {
        bool has_end = is_chunk || response->has_length;

        take = has_end && response->left_bytes < size_bytes ? (size_t)response->left_bytes : size_bytes;
        *used_out = take;
        if (has_end) response->left_bytes -= take;
        if (has_end && response->left_bytes == 0)
            response->stage = is_chunk ? ASH_RESPONSE_CHUNK_END : ASH_RESPONSE_DONE;
        return push_body(response, bytes, take);
    }
    end = memchr(bytes, '\n', size_bytes);
    take = end != NULL ? (size_t)(end - bytes) : size_bytes;
    *used_out = end != NULL ? take + 1 : take;
    if (response->line.size_bytes + take > ASH_RESPONSE_LINE_BYTES_MAX) return -EMSGSIZE;
    rc = ash_str_add(&response->line, bytes, take);
    return rc < 0 || end == NULL ? rc : read_line(response);
}

int ash_response_push(struct ash_response *response, const char *bytes, size_t size_bytes)
{
    while (size_bytes > 0) {
        size_t used = 0;
        int rc;

        if (response->stage == ASH_RESPONSE_DONE) return -EPROTO;
        rc = push_some(response, bytes, size_bytes, &used);
        if (rc < 0) return rc;
        bytes += used;
        size_bytes -= used;
    }
    return response->stage == ASH_RESPONSE_DONE;
}

int ash_response_end(struct ash_response *response)
{
    bool is_complete =
        response->stage == ASH_RESPONSE_DONE || (response->stage == ASH_RESPONSE_BODY && !response->has_length);

    if (!is_complete) return -ECONNRESET;
    response->stage = ASH_RESPONSE_DONE;
    response->keeps_open = false;
    return 1;
}
