/* Lustre clients: bytes, operations and their time, and evictions by servers. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"
#include "observe/collect/lustre.h"

/* Newer versions show llite in debugfs, older ones in /proc. */
static const char *const roots[] = {"/sys/kernel/debug/lustre", "/proc/fs/lustre", "/sys/fs/lustre"};

void ash_lustre_stats(char *text, const char *fs, struct ash_lustre_out *out)
{
    char *line, labels[ASH_EXP_LABELS_BYTES];

    /* read_bytes 5 samples [bytes] 4096 1048576 5242880;  open 12 samples [usecs] 8 90 400 2000 */
    while ((line = ash_text_line(&text)) != NULL) {
        char *words[7] = {NULL};
        size_t count = 0;

        while (count < ASH_COUNT(words) && (words[count] = ash_text_word(&line)) != NULL)
            count++;
        if (count < 4 || strcmp(words[2], "samples") != 0) continue;
        if (strspn(words[0], "abcdefghijklmnopqrstuvwxyz_0123456789") != strlen(words[0])) continue;
        if (count == 7 && strcmp(words[3], "[bytes]") == 0) {
            ash_exp_labels(labels, sizeof(labels), "fs", fs, "op", words[0], (char *)NULL);
            ash_exp_value(&out->bytes, "ashlar_lustre_bytes_total", labels, strtod(words[6], NULL));
        }
        ash_exp_labels(labels, sizeof(labels), "fs", fs, "op", words[0], (char *)NULL);
        ash_exp_value(&out->calls, "ashlar_lustre_calls_total", labels, strtod(words[1], NULL));
        if (count == 7 && strncmp(words[3], "[usec", 5) == 0)
            ash_exp_value(&out->seconds, "ashlar_lustre_seconds_total", labels, strtod(words[6], NULL) / 1e6);
    }
}

size_t ash_lustre_evictions(const char *text)
{
    size_t count = 0;

    for (const char *at = text; (at = strstr(at, "EVICTED")) != NULL; at += 7)
        count++;
    return count;
}

static void add_stats(const struct ash_host_files *source, const char *root, struct ash_lustre_out *samples)
{
    struct ash_names names = {0};
    struct ash_str text = {0};
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/llite", root);
    ash_names_list(source, path, &names);
    for (size_t i = 0; i < names.count; i++) {
        snprintf(path, sizeof(path), "%s/llite/%s/stats", root, names.items[i]);
        names.items[i][strcspn(names.items[i], "-")] = '\0'; /* lustre-ffff9a... */
        if (ash_host_read(source, path, &text) == 0 && text.data != NULL)
            ash_lustre_stats(text.data, names.items[i], samples);
    }
    ash_str_fini(&text);
    ash_names_fini(&names);
}

/* Clients of data (osc) and metadata (mdc) servers keep their last states: an eviction loses locks and dirty pages. */
static void add_evictions(const struct ash_host_files *source, const char *root, const char *kind,
                          struct ash_str *samples)
{
    struct ash_names names = {0};
    struct ash_str text = {0};
    char path[PATH_MAX], labels[ASH_EXP_LABELS_BYTES];

    snprintf(path, sizeof(path), "%s/%s", root, kind);
    ash_names_list(source, path, &names);
    for (size_t i = 0; i < names.count; i++) {
        snprintf(path, sizeof(path), "%s/%s/%s/state", root, kind, names.items[i]);
        if (ash_host_read(source, path, &text) < 0 || text.data == NULL) continue;
        ash_exp_labels(labels, sizeof(labels), "target", names.items[i], (char *)NULL);
        ash_exp_count(samples, "ashlar_lustre_evictions", labels, ash_lustre_evictions(text.data));
    }
    ash_str_fini(&text);
    ash_names_fini(&names);
}

static void add_family(struct ash_str *out, struct ash_str *samples, const char *name, const char *type,
                       const char *help)
{
    if (samples->size_bytes > 0) {
        ash_exp_family(out, name, type, help);
        ash_str_add(out, samples->data, samples->size_bytes);
    }
    ash_str_fini(samples);
}

static int collect_lustre(void *state, struct ash_str *out, struct ash_err *err)
{
    struct ash_lustre_out samples = {0};

    (void)err;
    for (size_t i = 0; i < ASH_COUNT(roots) && samples.calls.size_bytes == 0; i++)
        add_stats(state, roots[i], &samples);
    for (size_t i = 0; i < ASH_COUNT(roots) && samples.evictions.size_bytes == 0; i++) {
        add_evictions(state, roots[i], "mdc", &samples.evictions);
        add_evictions(state, roots[i], "osc", &samples.evictions);
    }
    add_family(out, &samples.bytes, "ashlar_lustre_bytes_total", "counter", "Bytes read and written by this client.");
    add_family(out, &samples.calls, "ashlar_lustre_calls_total", "counter", "Operations of this client.");
    add_family(out, &samples.seconds, "ashlar_lustre_seconds_total", "counter", "Time of these operations.");
    add_family(out, &samples.evictions, "ashlar_lustre_evictions", "gauge",
               "Evictions of this client among the last states of its connection to a server.");
    return 0;
}

const struct ash_collector_ops ash_collect_lustre = {.name = "lustre",
                                                     .deadline_s = 2,
                                                     .needs = "root, for debugfs",
                                                     .open = ash_collector_open_plain,
                                                     .collect = collect_lustre,
                                                     .close = ash_collector_close_plain};
