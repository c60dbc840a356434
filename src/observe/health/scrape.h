/* scrape - an exporter's answer: samples of Prometheus text (format 0.0.4, and the common part of OpenMetrics). */
#ifndef ASH_OBSERVE_HEALTH_SCRAPE_H
#define ASH_OBSERVE_HEALTH_SCRAPE_H

#include <stddef.h>
#include "ashlar/err.h"

#define ASH_SCRAPE_MAX_BYTES ((size_t)256 << 20)
#define ASH_SCRAPE_LABELS_MAX 64 /* of one sample */

struct ash_scrape_label {
    const char *name, *value; /* value with its escapes undone */
};

struct ash_scrape_sample {
    const char *name;
    const struct ash_scrape_label *labels;
    size_t label_count;
    double value; /* may be NaN or infinite: exporters write that */
};

struct ash_scrape; /* owns every text that it returns; may be read by several threads */

/* Read a whole answer (size_bytes of text, which is copied). Comments, time stamps and exemplars are skipped. Lines
 * that are no samples (a file that was cut off has one) are left out and counted. A text without any sample is -EINVAL;
 * name is for that message. */
int ash_scrape_parse(const char *text, size_t size_bytes, const char *name, struct ash_scrape **scrape_out,
                     struct ash_err *err);
/* The same from a file of at most ASH_SCRAPE_MAX_BYTES. */
int ash_scrape_load(const char *path, struct ash_scrape **scrape_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_scrape_close(struct ash_scrape *scrape);

/* Samples that were read. */
size_t ash_scrape_count(const struct ash_scrape *scrape);
/* In the order of the text; index is below ash_scrape_count. */
const struct ash_scrape_sample *ash_scrape_at(const struct ash_scrape *scrape, size_t index);
/* How many lines were left out. */
size_t ash_scrape_skipped(const struct ash_scrape *scrape);

/* A label's value, "" where the sample has none of that name. */
const char *ash_scrape_label_of(const struct ash_scrape_sample *sample, const char *name);

#endif
