/* fabric: its settings table. Names, defaults, limits and help live here and nowhere else. */
#include <stddef.h>

#include "base/assert.h"
#include "fabric/fabric.h"

static const char *const path_names[] = {"auto", "shm", "ofi", NULL};
static const char *const copy_names[] = {"auto", "never", NULL};

#define FIELD(field) offsetof(struct ash_fabric_opts, field)
static const struct ash_opt fabric_opts[] = {
    {"path", ASH_OPT_CHOICE, FIELD(path), "auto",
     "how processes reach each other: auto (shared memory inside a node, libfabric between nodes), or one for all", 0,
     0, path_names},
    {"provider", ASH_OPT_STRING, FIELD(provider), NULL,
     "libfabric provider between nodes: efa, tcp, ...; default: the best there is", 0, 0, NULL},
    {"interface", ASH_OPT_STRING, FIELD(interface), NULL,
     "network interfaces or addresses, comma-separated, one rail each; default: all that lead out of the machine", 0, 0,
     NULL},
    {"rails", ASH_OPT_INT, FIELD(rails), "0", "use at most this many rails; 0: all", 0, 8, NULL},
    {"stripe_bytes", ASH_OPT_INT, FIELD(stripe_bytes), "256ki", "transfers from this size on are cut over the rails",
     4096, 1e15, NULL},
    {"silence_ms", ASH_OPT_INT, FIELD(silence_ms), "5000",
     "a machine that does not answer for this many milliseconds is lost", 100, 1e7, NULL},
    {"single_copy", ASH_OPT_CHOICE, FIELD(single_copy), "auto",
     "let the kernel copy between processes of a node where memory cannot be mapped", 0, 0, copy_names},
};

const struct ash_opt_table ash_fabric_table = {"fabric", "moving bytes between processes", fabric_opts,
                                               ASH_COUNT(fabric_opts)};
