/* Reading XIDs: from a list of codes, and from the lines that the driver writes to a kernel log:
 *     NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
 *     NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: ...
 *     NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)
 * What precedes it (time, host, level) depends on the logger, so lines are searched, not matched. */
#include "observe/health/xid.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"

#define CODE_MAX 9999

/* A part of a log, not NUL-terminated. */
struct slice {
    const char *at, *end;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Where text is found in slice, or NULL. */
static const char *find(struct slice slice, const char *text)
{
    return memmem(slice.at, (size_t)(slice.end - slice.at), text, strlen(text));
}

/* Take text from the front. */
static bool skip(struct slice *slice, const char *text)
{
    size_t length = strlen(text);

    if ((size_t)(slice->end - slice->at) < length || memcmp(slice->at, text, length) != 0) return false;
    slice->at += length;
    return true;
}

/* Take an integer from 1 to CODE_MAX from the front; 0 if there is none. */
static int take_code(struct slice *slice)
{
    int code = 0;

    while (slice->at < slice->end && is_digit(*slice->at) && code <= CODE_MAX)
        code = code * 10 + (*slice->at++ - '0');
    return code <= CODE_MAX ? code : 0;
}

static int count_code(struct ash_xid_gpu *gpu, int code, struct ash_err *err)
{
    size_t i = 0;

    while (i < gpu->count && gpu->seen[i].code != code)
        i++;
    if (i == ASH_XID_CODES_MAX)
        return ash_err_set(err, -E2BIG, "more than %d different XIDs of one GPU: ask about fewer", ASH_XID_CODES_MAX);
    if (i == gpu->count) gpu->seen[gpu->count++] = (struct ash_xid_seen){.code = code};
    if (gpu->seen[i].count < INT32_MAX) gpu->seen[i].count++;
    return 0;
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

int ash_xid_codes_parse(const char *text, struct ash_xid_gpu *gpu_out, struct ash_err *err)
{
    struct ash_xid_gpu gpu = {.action = ASH_XID_ACTION_ABSENT};
    struct slice rest = {text, text + strlen(text)};

    do {
        int code = take_code(&rest);
        int rc;

        if (code == 0 || (rest.at < rest.end && *rest.at != ','))
            return ash_err_set(err, -EINVAL, "'%s' is not a list of XIDs: write 79 or 48,63 (1 to %d)", text, CODE_MAX);
        rc = count_code(&gpu, code, err);
        if (rc < 0) return rc;
    } while (skip(&rest, ","));
    *gpu_out = gpu;
    return 0;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* "... changed from 0x0 (None) to 0x2 (Node Reboot Required)". The number decides: drivers word it differently. */
static enum ash_xid_action read_action(struct slice text)
{
    struct slice words = text;
    const char *to = find(text, " to 0x");

    if (to != NULL) {
        words.at = to + strlen(" to 0x");
        if (words.at + 1 < words.end && *words.at >= '0' && *words.at <= '4' && words.at[1] == ' ')
            return (enum ash_xid_action)(*words.at - '0');
        return ASH_XID_ACTION_UNREAD;
    }
    if (find(text, "Reboot Required") != NULL) return ASH_XID_ACTION_REBOOT;
    if (find(text, "Reset Required") != NULL) return ASH_XID_ACTION_RESET;
    if (find(text, "Drain and Reset") != NULL) return ASH_XID_ACTION_DRAIN_RESET;
    if (find(text, "Drain P2P") != NULL) return ASH_XID_ACTION_DRAIN_P2P;
    return ASH_XID_ACTION_UNREAD;
}

/* The GPU of an address, created on first use; NULL if there is no room. */
static struct ash_xid_gpu *gpu_of(struct ash_xid_log *log, struct slice address)
{
    size_t length = (size_t)(address.end - address.at);
    struct ash_xid_gpu *gpu;

    for (size_t i = 0; i < log->gpu_count; i++)
        if (strlen(log->gpus[i].address) == length && memcmp(log->gpus[i].address, address.at, length) == 0)
            return &log->gpus[i];
    if (log->gpu_count == ASH_XID_GPUS_MAX) return NULL;
    gpu = &log->gpus[log->gpu_count++];
    memset(gpu, 0, sizeof(*gpu));
    ash_assert(length < sizeof(gpu->address)); /* take_address() refuses longer ones */
    memcpy(gpu->address, address.at, length);
    gpu->action = ASH_XID_ACTION_ABSENT;
    return gpu;
}

/* The "0000:3b:00" that the text between the brackets begins with: digits of hexadecimal, ':' and '.'. */
static bool take_address(struct slice *inside, struct slice *address_out)
{
    size_t length;

    (void)skip(inside, "PCI:");
    for (length = 0; inside->at + length < inside->end; length++)
        if (inside->at[length] == '\0' || strchr("0123456789abcdefABCDEF:.", inside->at[length]) == NULL) break;
    *address_out = (struct slice){inside->at, inside->at + length};
    inside->at += length;
    return length > 0 && length < sizeof(((struct ash_xid_gpu *)0)->address);
}

/* One line, from after "Xid (". Text that does not have the driver's form is skipped. */
static int read_line(struct slice line, struct ash_xid_log *log, struct ash_err *err)
{
    const char *close = find(line, "): ");
    struct slice inside = {line.at, close}, address;
    struct ash_xid_gpu *gpu;
    int code;

    if (close == NULL || !take_address(&inside, &address)) return 0;
    line.at = close + strlen("): ");
    code = take_code(&line);
    if (code == 0 || (line.at < line.end && *line.at != ',' && *line.at != ' ')) return 0;
    gpu = gpu_of(log, address);
    if (gpu == NULL)
        return ash_err_set(err, -E2BIG, "XIDs of more than %d GPUs: give the log of one machine", ASH_XID_GPUS_MAX);
    if (find(inside, "GPU-I:") != NULL) gpu->mig = true;
    if (code == 154) gpu->action = read_action(line);
    if (ash_xid_is_nvlink5(code) && find(line, " Fatal") != NULL) gpu->is_link_fatal = true;
    log->lines++;
    return count_code(gpu, code, err);
}

int ash_xid_log_parse(const char *text, size_t size_bytes, struct ash_xid_log *log_out, struct ash_err *err)
{
    struct slice rest;
    int rc = 0;

    log_out->gpu_count = log_out->lines = log_out->switch_lines = 0;
    if (size_bytes == 0) return 0;
    rest = (struct slice){text, text + size_bytes};
    while (rc == 0 && rest.at < rest.end) {
        const char *newline = memchr(rest.at, '\n', (size_t)(rest.end - rest.at));
        struct slice line = {rest.at, newline != NULL ? newline : rest.end};
        const char *mark = find(line, "Xid (");

        rest.at = newline != NULL ? newline + 1 : rest.end;
        if (mark == NULL) continue;
        if (mark > line.at && mark[-1] == 'S') {
            log_out->switch_lines++;
            continue;
        }
        line.at = mark + strlen("Xid (");
        rc = read_line(line, log_out, err);
    }
    return rc;
}
