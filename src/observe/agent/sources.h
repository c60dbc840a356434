/* sources - reads all collectors concurrently, each on its own thread and within its deadline. A scrape has the
 * families ready by then; missing ones are marked by ashlar_collector_up, _age_seconds, _seconds. */
#ifndef ASH_OBSERVE_AGENT_SOURCES_H
#define ASH_OBSERVE_AGENT_SOURCES_H

#include "ashlar/err.h"
#include "base/str.h"
#include "observe/collect/collector.h"

struct ash_sources;

/* Start a thread per collector. ops (count of them) and source are borrowed until close. */
int ash_sources_open(const struct ash_collector_ops *const *ops, size_t count, const struct ash_host_files *source,
                     struct ash_sources **sources_out, struct ash_err *err);
/* Stop. A collector that hangs is left behind with its thread. NULL is a no-op. */
void ash_sources_close(struct ash_sources *sources);
/* Read all and append Prometheus text. Calls at the same time share one reading. Any thread. Returns 0 or -ENOMEM. */
int ash_sources_scrape(struct ash_sources *sources, struct ash_str *out);

#endif
