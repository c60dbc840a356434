/* Prometheus text into samples. The text is copied once and cut in place, so that a name or a label costs no
 * allocation: the scrape of a large cluster has millions of them. */
#include "observe/health/scrape.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/number.h"

struct ash_scrape {
    char *text;
    struct ash_scrape_sample *samples;
    size_t count, capacity;
    struct ash_scrape_label *labels; /* of all samples, one after the other */
    size_t label_count, label_capacity;
    size_t skipped;
};

static bool is_name_byte(char byte, bool first)
{
    bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' || byte == ':';

    return letter || (!first && byte >= '0' && byte <= '9');
}

static char *skip_name(char *at)
{
    char *end = at;

    while (is_name_byte(*end, end == at))
        end++;
    return end;
}

static char *skip_space(char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* Undo the escapes of a quoted value in place. *at follows the opening quote, and the closing one on success. */
static bool cut_value(char **at)
{
    char *from = *at, *to = *at;

    for (; *from != '"'; from++) {
        if (*from == '\0') return false;
        if (*from == '\\') {
            from++;
            if (*from == '\0') return false;
            *to++ = *from == 'n' ? '\n' : *from;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    *at = from + 1;
    return true;
}

static int add_label(struct ash_scrape *scrape, const char *name, const char *value)
{
    struct ash_scrape_label label = {name, value};

    if (ash_array_reserve(&scrape->labels, &scrape->label_capacity, scrape->label_count + 1, sizeof(label)) < 0)
        return -ENOMEM;
    scrape->labels[scrape->label_count++] = label;
    return 0;
}

static int add_sample(struct ash_scrape *scrape, struct ash_scrape_sample sample)
{
    if (ash_array_reserve(&scrape->samples, &scrape->capacity, scrape->count + 1, sizeof(sample)) < 0) return -ENOMEM;
    scrape->samples[scrape->count++] = sample;
    return 0;
}

/* Labels after the opening brace. Returns 0 with *at after the closing one, -EINVAL or -ENOMEM. */
static int read_labels(struct ash_scrape *scrape, char **at, size_t *count_out)
{
    char *here = skip_space(*at);

    for (size_t count = 0;; count++) {
        char *name = here, *end = skip_name(here), *value;

        if (*here == '}') {
            *at = here + 1;
            *count_out = count;
            return 0;
        }
        here = skip_space(end);
        if (end == name || *here != '=' || count == ASH_SCRAPE_LABELS_MAX) return -EINVAL;
        here = skip_space(here + 1);
        if (*here != '"') return -EINVAL;
        value = ++here;
        if (!cut_value(&here)) return -EINVAL;
        *end = '\0';
        if (add_label(scrape, name, value) < 0) return -ENOMEM;
        here = skip_space(here);
        if (*here == ',')
            here = skip_space(here + 1);
        else if (*here != '}')
            return -EINVAL;
    }
}

/* A word as a number; the three that Prometheus spells otherwise are taken too. */
static bool read_number(const char *word, double *value_out)
{
    static const struct {
        const char *word;
        double value;
    } special[] = {{"NaN", NAN}, {"+Inf", INFINITY}, {"Inf", INFINITY}, {"-Inf", -INFINITY}};

    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
        if (strcmp(word, special[i].word) == 0) {
            *value_out = special[i].value;
            return true;
        }
    }
    return ash_number_parse(word, value_out) == 0;
}

/* "VALUE [TIMESTAMP] [# EXEMPLAR]" */
static bool read_rest(char *at, double *value_out)
{
    size_t word = strcspn(at, " \t");
    char *rest = skip_space(at + word);
    double time;

    at[word] = '\0';
    if (!read_number(at, value_out)) return false;
    if (*rest == '\0' || *rest == '#') return true;
    rest[strcspn(rest, " \t")] = '\0';
    return read_number(rest, &time);
}

/* One line, which is cut in place. Returns 0 (a sample, or nothing to read), -EINVAL or -ENOMEM. */
static int read_line(struct ash_scrape *scrape, char *line)
{
    struct ash_scrape_sample sample = {0};
    char *name = skip_space(line), *end = skip_name(name), *at = skip_space(end);
    int rc;

    if (*name == '\0' || *name == '#') return 0;
    if (end == name || (at == end && *at != '{')) return -EINVAL;
    if (*at == '{') {
        at++;
        rc = read_labels(scrape, &at, &sample.label_count);
        if (rc < 0) return rc;
        at = skip_space(at);
    }
    if (!read_rest(at, &sample.value)) return -EINVAL;
    *end = '\0';
    sample.name = name;
    return add_sample(scrape, sample);
}

static int read_lines(struct ash_scrape *scrape, size_t size_bytes)
{
    char *line = scrape->text, *end = scrape->text + size_bytes;

    while (line < end) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t labels = scrape->label_count;
        int rc;

        if (stop == NULL) stop = end;
        *stop = '\0';
        if (stop > line && stop[-1] == '\r') stop[-1] = '\0';
        rc = read_line(scrape, line);
        if (rc == -ENOMEM) return rc;
        if (rc < 0) {
            scrape->label_count = labels;
            scrape->skipped++;
        }
        line = stop + 1;
    }
    return 0;
}

/* Only now, when the labels no longer move. */
static void point_at_labels(struct ash_scrape *scrape)
{
    size_t used = 0;

    for (size_t i = 0; i < scrape->count; i++) {
        if (scrape->samples[i].label_count > 0) scrape->samples[i].labels = scrape->labels + used;
        used += scrape->samples[i].label_count;
    }
    ash_assert(used == scrape->label_count); /* labels of refused lines were taken back */
}

int ash_scrape_parse(const char *text, size_t size_bytes, const char *name, struct ash_scrape **scrape_out,
                     struct ash_err *err)
{
    struct ash_scrape *scrape;

    if (size_bytes > ASH_SCRAPE_MAX_BYTES)
        return ash_err_set(err, -EFBIG, "%s: more than %zu MB is no scrape", name, ASH_SCRAPE_MAX_BYTES >> 20);
    scrape = calloc(1, sizeof(*scrape));
    if (scrape != NULL) scrape->text = malloc(size_bytes + 1);
    if (scrape == NULL || scrape->text == NULL) goto fail;
    if (size_bytes > 0) memcpy(scrape->text, text, size_bytes);
    scrape->text[size_bytes] = '\0';
    if (read_lines(scrape, size_bytes) < 0) goto fail;
    if (scrape->count == 0) {
        ash_scrape_close(scrape);
        return ash_err_set(err, -EINVAL,
                           "%s: not one sample of Prometheus text in it; `curl -s http://NODE:9400/metrics` (DCGM; "
                           "node_exporter 9100, EFA 9109) gets it, several exporters of a node go one after the other",
                           name);
    }
    point_at_labels(scrape);
    *scrape_out = scrape;
    return 0;

fail:
    ash_scrape_close(scrape);
    return ash_err_set(err, -ENOMEM, "%s: out of memory", name);
}

int ash_scrape_load(const char *path, struct ash_scrape **scrape_out, struct ash_err *err)
{
    struct ash_map map;
    int rc = ash_map_open(path, &map, err);

    if (rc < 0) return rc;
    rc = ash_scrape_parse((const char *)map.base, map.size_bytes, path, scrape_out, err);
    ash_map_close(&map);
    return rc;
}

void ash_scrape_close(struct ash_scrape *scrape)
{
    if (scrape == NULL) return;
    free(scrape->text);
    free(scrape->samples);
    free(scrape->labels);
    free(scrape);
}

size_t ash_scrape_count(const struct ash_scrape *scrape)
{
    return scrape->count;
}

const struct ash_scrape_sample *ash_scrape_at(const struct ash_scrape *scrape, size_t index)
{
    ash_assert(index < scrape->count);
    return &scrape->samples[index];
}

size_t ash_scrape_skipped(const struct ash_scrape *scrape)
{
    return scrape->skipped;
}

const char *ash_scrape_label_of(const struct ash_scrape_sample *sample, const char *name)
{
    for (size_t i = 0; i < sample->label_count; i++) {
        if (strcmp(sample->labels[i].name, name) == 0) return sample->labels[i].value;
    }
    return "";
}
