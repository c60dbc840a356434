/* parse - files of /proc as families of Prometheus text, under node_exporter's names. A parser takes the text of one
 * file, which it changes, and skips unknown lines: text may be anything. */
#ifndef ASH_OBSERVE_COLLECT_PARSE_H
#define ASH_OBSERVE_COLLECT_PARSE_H

#include "base/str.h"

struct ash_parser {
    const char *path;
    void (*parse)(char *text, struct ash_str *out);
};

/* Files of the host: time, memory, load, pressure, file descriptors. */
extern const struct ash_parser ash_parsers_host[];
extern const size_t ash_parsers_host_count;
/* Files of the network. */
extern const struct ash_parser ash_parsers_net[];
extern const size_t ash_parsers_net_count;
/* /proc/diskstats. */
extern const struct ash_parser ash_parsers_disk[];
extern const size_t ash_parsers_disk_count;

#endif
