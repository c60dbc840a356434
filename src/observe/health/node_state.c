/* The status is that of the hardest active finding. A watched finding counts if it is frequent. */
#include "observe/health/node_state.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define WINDOW_S 600.0 /* of rates */
#define OFTEN 10       /* events of one kind in a window that make a node doubtful */
#define HOLD_S 600.0   /* a watched finding stays that long after its last time, doubled with every return */
#define HOLD_FLAPS_MAX 7

static const char *const status_names[] = {
    "healthy", "doubtful", "drain for reset", "drain for reboot", "drain for replacement", "to be checked"};

const char *ash_node_status_name(enum ash_node_status status)
{
    ash_assert((size_t)status < ASH_COUNT(status_names));
    return status_names[status];
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

static enum ash_node_status status_of(const struct ash_node_finding *finding)
{
    if (!finding->is_active || finding->remedy == ASH_REMEDY_NONE) return ASH_NODE_HEALTHY;
    if (finding->remedy == ASH_REMEDY_WATCH) {
        /* metrics and checks were judged by a rule already, events were not */
        bool is_event = strcmp(finding->source, "kernel log") == 0 || strcmp(finding->source, "NVML") == 0;

        return !is_event || finding->window_count >= OFTEN ? ASH_NODE_DOUBTFUL : ASH_NODE_HEALTHY;
    }
    return finding->remedy == ASH_REMEDY_RESET    ? ASH_NODE_DRAIN_RESET
           : finding->remedy == ASH_REMEDY_REBOOT ? ASH_NODE_DRAIN_REBOOT
                                                  : ASH_NODE_DRAIN_REPLACE;
}

const struct ash_node_finding *ash_node_state_reason(const struct ash_node_state *state)
{
    const struct ash_node_finding *reason = NULL;

    for (size_t i = 0; i < state->count; i++) {
        const struct ash_node_finding *one = &state->findings[i];

        if (!one->is_active) continue;
        if (reason == NULL || status_of(one) > status_of(reason) ||
            (status_of(one) == status_of(reason) && one->remedy > reason->remedy))
            reason = one;
    }
    return reason;
}

static bool decide(struct ash_node_state *state, double now_s)
{
    enum ash_node_status status = ASH_NODE_HEALTHY;

    for (size_t i = 0; i < state->count; i++) {
        enum ash_node_status one = status_of(&state->findings[i]);

        if (one > status) status = one;
    }
    if (state->needs_check && status < ASH_NODE_DRAIN_RESET) status = ASH_NODE_TO_CHECK;
    if (status == state->status) return false;
    state->status = status;
    state->since_s = now_s;
    return true;
}

static double hold_s(const struct ash_node_finding *finding)
{
    return HOLD_S * (double)(1u << (finding->flaps < HOLD_FLAPS_MAX ? finding->flaps : HOLD_FLAPS_MAX));
}

/* The finding of a key, or room for it: the oldest inactive one goes, then the oldest that is only watched. */
static struct ash_node_finding *place_of(struct ash_node_state *state, const char *key)
{
    struct ash_node_finding *oldest = NULL;

    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->findings[i].key, key) == 0) return &state->findings[i];
    if (state->count < ASH_NODE_FINDINGS_MAX) {
        oldest = &state->findings[state->count++];
    } else {
        for (int pass = 0; pass < 2 && oldest == NULL; pass++)
            for (size_t i = 0; i < state->count; i++) {
                struct ash_node_finding *one = &state->findings[i];
                bool can_go = pass == 0 ? !one->is_active : one->remedy <= ASH_REMEDY_WATCH;

                if (can_go && (oldest == NULL || one->last_s < oldest->last_s)) oldest = one;
            }
        if (oldest == NULL) return NULL; /* as many hard findings: the node is out anyway */
    }
    memset(oldest, 0, sizeof(*oldest));
    snprintf(oldest->key, sizeof(oldest->key), "%s", key);
    return oldest;
}

/* Text of logs and labels, as it may stand in files and pages. */
static void copy_plain(char *buf, size_t buf_bytes, const char *text)
{
    size_t used = 0;

    for (; *text != '\0' && used + 1 < buf_bytes; text++)
        buf[used++] = (char)(*text >= ' ' && *text <= '~' ? *text : '?');
    buf[used] = '\0';
}

bool ash_node_state_note(struct ash_node_state *state, const struct ash_node_finding *finding, double now_s)
{
    char key[ASH_NODE_KEY_BYTES];
    struct ash_node_finding *kept;

    copy_plain(key, sizeof(key), finding->key);
    kept = place_of(state, key);
    if (kept == NULL) return false;
    if (!kept->is_active) {
        kept->flaps += kept->count > 0;
        kept->since_s = now_s;
        kept->is_active = true;
        kept->window_count = 0;
    }
    if (kept->window_count == 0 || now_s - kept->window_start_s > WINDOW_S || now_s < kept->window_start_s) {
        kept->window_start_s = now_s;
        kept->window_count = 0;
    }
    kept->window_count++;
    kept->count++;
    kept->last_s = now_s;
    kept->layer = finding->layer;
    kept->remedy = finding->remedy;
    copy_plain(kept->evidence, sizeof(kept->evidence), finding->evidence);
    copy_plain(kept->means, sizeof(kept->means), finding->means);
    copy_plain(kept->source, sizeof(kept->source), finding->source);
    return decide(state, now_s);
}

bool ash_node_state_event(struct ash_node_state *state, const struct ash_kernel_event *event, const char *line,
                          double now_s)
{
    struct ash_node_finding finding = {.layer = event->layer, .remedy = event->remedy};

    ash_assert(event->kind < ASH_KERNEL_KINDS);
    if (line != NULL) state->counts[event->kind]++;
    snprintf(finding.source, sizeof(finding.source), "%s", line != NULL ? "kernel log" : "NVML");
    if (event->code != 0)
        snprintf(finding.key, sizeof(finding.key), "%s %d %s", ash_kernel_kind_name(event->kind), event->code,
                 event->part);
    else
        snprintf(finding.key, sizeof(finding.key), "%s %s %.40s", ash_kernel_kind_name(event->kind), event->part,
                 event->means);
    if (line != NULL)
        snprintf(finding.evidence, sizeof(finding.evidence), "%s", line);
    else
        snprintf(finding.evidence, sizeof(finding.evidence), "XID %d of the GPU at %s", event->code, event->part);
    snprintf(finding.means, sizeof(finding.means), "%s", event->means);
    return ash_node_state_note(state, &finding, now_s);
}

bool ash_node_state_tick(struct ash_node_state *state, double now_s)
{
    for (size_t i = 0; i < state->count; i++) {
        struct ash_node_finding *finding = &state->findings[i];

        if (finding->is_active && finding->remedy <= ASH_REMEDY_WATCH && now_s - finding->last_s > hold_s(finding))
            finding->is_active = false;
    }
    return decide(state, now_s);
}

void ash_node_state_boot(struct ash_node_state *state, const char *boot, double now_s)
{
    bool was_out = state->status >= ASH_NODE_DRAIN_RESET && state->status <= ASH_NODE_DRAIN_REPLACE;

    if (strcmp(state->boot, boot) == 0) return;
    if (state->boot[0] != '\0') {
        for (size_t i = 0; i < state->count; i++)
            if (state->findings[i].remedy < ASH_REMEDY_REPLACE) state->findings[i].is_active = false;
        state->needs_check = state->needs_check || was_out;
    }
    state->kernel_number = 0; /* a new log */
    snprintf(state->boot, sizeof(state->boot), "%s", boot);
    decide(state, now_s);
}

void ash_node_state_clear(struct ash_node_state *state, double now_s)
{
    for (size_t i = 0; i < state->count; i++)
        state->findings[i].is_active = false;
    state->needs_check = false;
    decide(state, now_s);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *finding_json(const struct ash_node_finding *finding)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:I, s:f, s:I, s:i, s:b}", "key", finding->key,
                     "evidence", finding->evidence, "means", finding->means, "source", finding->source, "layer",
                     ash_health_layer_name(finding->layer), "remedy", ash_node_remedy_name(finding->remedy), "since",
                     finding->since_s, "last", finding->last_s, "count", (json_int_t)finding->count, "window_start",
                     finding->window_start_s, "window_count", (json_int_t)finding->window_count, "flaps",
                     (int)finding->flaps, "active", finding->is_active);
}

json_t *ash_node_state_json(const struct ash_node_state *state)
{
    json_t *findings = json_array(), *counts = json_object();

    for (size_t i = 0; i < state->count; i++)
        json_array_append_new(findings, finding_json(&state->findings[i]));
    for (int kind = 1; kind < ASH_KERNEL_KINDS; kind++)
        json_object_set_new(counts, ash_kernel_kind_name(kind), json_integer((json_int_t)state->counts[kind]));
    return json_pack("{s:s, s:f, s:s, s:I, s:b, s:o, s:o}", "status", ash_node_status_name(state->status), "since",
                     state->since_s, "boot", state->boot, "kernel_number", (json_int_t)state->kernel_number,
                     "needs_check", state->needs_check, "counts", counts, "findings", findings);
}

int ash_node_state_save(const struct ash_node_state *state, const char *path, struct ash_err *err)
{
    json_t *json = ash_node_state_json(state);
    int rc =
        json != NULL ? ash_json_save(path, json, err) : ash_err_set(err, -ENOMEM, "no memory for the node's state");

    json_decref(json);
    return rc;
}

static int index_of(const char *text, const char *(*name)(int index), int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(text, name(i)) == 0) return i;
    return -EINVAL;
}

static const char *layer_name(int index)
{
    return ash_health_layer_name((enum ash_health_layer)index);
}

static const char *remedy_name(int index)
{
    return ash_node_remedy_name((enum ash_node_remedy)index);
}

static const char *name_of_status(int index)
{
    return status_names[index];
}

static int copy_text(const json_t *json, const char *key, char *buf, size_t buf_bytes, struct ash_err *err)
{
    const char *text = "";
    int rc = ash_json_string(json, key, &text, err);

    if (rc >= 0) snprintf(buf, buf_bytes, "%s", text);
    return rc < 0 ? rc : 0;
}

static int parse_texts(const json_t *json, struct ash_node_finding *finding, struct ash_err *err)
{
    int rc = copy_text(json, "key", finding->key, sizeof(finding->key), err);

    if (rc == 0) rc = copy_text(json, "evidence", finding->evidence, sizeof(finding->evidence), err);
    if (rc == 0) rc = copy_text(json, "means", finding->means, sizeof(finding->means), err);
    return rc == 0 ? copy_text(json, "source", finding->source, sizeof(finding->source), err) : rc;
}

static int parse_numbers(const json_t *json, struct ash_node_finding *finding, struct ash_err *err)
{
    int64_t count = 0, window = 0, flaps = 0;

    if (ash_json_double(json, "since", 0, 1e12, &finding->since_s, err) < 0 ||
        ash_json_double(json, "last", 0, 1e12, &finding->last_s, err) < 0 ||
        ash_json_double(json, "window_start", 0, 1e12, &finding->window_start_s, err) < 0 ||
        ash_json_int(json, "count", 0, INT64_MAX, &count, err) < 0 ||
        ash_json_int(json, "window_count", 0, INT64_MAX, &window, err) < 0 ||
        ash_json_int(json, "flaps", 0, 1000000, &flaps, err) < 0)
        return -EINVAL;
    finding->count = (uint64_t)count;
    finding->window_count = (uint64_t)window;
    finding->flaps = (uint32_t)flaps;
    return 0;
}

static int parse_finding(const json_t *json, struct ash_node_finding *finding, struct ash_err *err)
{
    const char *layer_text = "", *remedy_text = "";
    int layer, remedy;

    if (parse_texts(json, finding, err) < 0 || parse_numbers(json, finding, err) < 0 ||
        ash_json_string(json, "layer", &layer_text, err) < 0 ||
        ash_json_string(json, "remedy", &remedy_text, err) < 0 ||
        ash_json_bool(json, "active", &finding->is_active, err) < 0)
        return -EINVAL;
    layer = index_of(layer_text, layer_name, ASH_HEALTH_COUNT);
    remedy = index_of(remedy_text, remedy_name, ASH_REMEDY_REPLACE + 1);
    if (layer < 0 || remedy < 0) return ash_err_set(err, -EINVAL, "a finding has an unknown layer or remedy");
    finding->layer = (enum ash_health_layer)layer;
    finding->remedy = (enum ash_node_remedy)remedy;
    return 0;
}

static int parse_lists(const json_t *json, struct ash_node_state *state, struct ash_err *err)
{
    const json_t *findings = NULL, *counts = NULL;

    if (ash_json_array(json, "findings", &findings, err) < 0 || ash_json_object(json, "counts", &counts, err) < 0)
        return -EINVAL;
    for (int kind = 1; counts != NULL && kind < ASH_KERNEL_KINDS; kind++) {
        int64_t count = 0;

        if (ash_json_int(counts, ash_kernel_kind_name(kind), 0, INT64_MAX, &count, err) < 0) return -EINVAL;
        state->counts[kind] = (uint64_t)count;
    }
    for (size_t i = 0; findings != NULL && i < json_array_size(findings) && i < ASH_NODE_FINDINGS_MAX; i++) {
        int rc = parse_finding(json_array_get(findings, i), &state->findings[i], err);

        if (rc < 0) return rc;
        state->count = i + 1;
    }
    return 0;
}

static int parse_all(const json_t *json, struct ash_node_state *state, struct ash_err *err)
{
    const char *text = status_names[0];
    int64_t number = 0;
    int status;

    if (ash_json_string(json, "status", &text, err) < 0) return -EINVAL;
    status = index_of(text, name_of_status, ASH_COUNT(status_names));
    if (status < 0) return ash_err_set(err, -EINVAL, "the status is unknown");
    state->status = (enum ash_node_status)status;
    if (ash_json_double(json, "since", 0, 1e12, &state->since_s, err) < 0 ||
        copy_text(json, "boot", state->boot, sizeof(state->boot), err) < 0 ||
        ash_json_int(json, "kernel_number", 0, INT64_MAX, &number, err) < 0 ||
        ash_json_bool(json, "needs_check", &state->needs_check, err) < 0)
        return -EINVAL;
    state->kernel_number = (uint64_t)number;
    return parse_lists(json, state, err);
}

int ash_node_state_parse(struct ash_node_state *state, const char *text, size_t size_bytes, struct ash_err *err)
{
    json_t *json = NULL;
    int rc = ash_json_parse(text, size_bytes, "the node's state", &json, err);

    memset(state, 0, sizeof(*state));
    if (rc < 0) return -EINVAL;
    rc = json_is_object(json) ? parse_all(json, state, err) : ash_err_set(err, -EINVAL, "it is no object");
    if (rc < 0) memset(state, 0, sizeof(*state));
    json_decref(json);
    return rc;
}

int ash_node_state_load(struct ash_node_state *state, const char *path, struct ash_err *err)
{
    size_t size_bytes = 0;
    char *text = NULL;
    int rc;

    memset(state, 0, sizeof(*state));
    if (!ash_path_exists(path)) return 0;
    rc = ash_file_read(path, FILE_BYTES_MAX, &text, &size_bytes, err);
    if (rc < 0) return rc;
    rc = ash_node_state_parse(state, text, size_bytes, err);
    free(text);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", path) : 0;
}
