/* Rates of storage from the facts of the catalog: so much per TiB, capped by what the clients can move. */
#include "plan/tier.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/str.h"

#define MB 1e6
#define GBIT (1e9 / 8)

static const json_t *find(const struct ash_catalog *catalog, const char *name)
{
    const json_t *tiers = json_object_get(ash_catalog_json(catalog), "storage");

    for (size_t i = 0; i < json_array_size(tiers); i++)
        if (ash_catalog_is_named(json_array_get(tiers, i), name)) return json_array_get(tiers, i);
    return NULL;
}

static int unknown(const struct ash_catalog *catalog, const char *name, struct ash_err *err)
{
    const json_t *tiers = json_object_get(ash_catalog_json(catalog), "storage");
    struct ash_str names = {0};

    for (size_t i = 0; i < json_array_size(tiers); i++)
        ash_str_addf(&names, "%s%s", i > 0 ? ", " : "",
                     json_string_value(json_object_get(json_array_get(tiers, i), "name")));
    ash_err_set(err, -ENOENT, "there is no storage tier '%.60s' in the catalog; known: %s", name,
                names.data != NULL ? names.data : "");
    ash_str_fini(&names);
    return -ENOENT;
}

/* Bytes/s that one machine moves to and from a file system. */
static double client_rate(const struct ash_catalog *catalog, const struct ash_machine *machine)
{
    const json_t *client = find(catalog, "fsx-client");
    bool efa = strncmp(machine->network, "EFA", 3) == 0;
    double network = machine->net_bandwidth > 0 ? machine->net_bandwidth : INFINITY;

    if (client == NULL) return network;
    return fmin(network, ash_fact_number(client, efa ? "efa_gbps" : "ena_gbps", INFINITY) * GBIT);
}

int ash_tier_rate_of(const struct ash_catalog *catalog, const char *name, double tib, const struct ash_machine *machine,
                     double machines, struct ash_tier_rate *rate_out, struct ash_err *err)
{
    const json_t *tier = find(catalog, name);
    double read, write, each, clients;

    if (tier == NULL) return unknown(catalog, name, err);
    each = ash_fact_number(tier, "measured_client_mb_s", 0) * MB; /* an object store grows with its clients */
    if (each > 0) {
        *rate_out = (struct ash_tier_rate){each * machines, each * machines, true};
        return 0;
    }
    read = ash_fact_number(tier, "read_mb_s_per_tib", 0) * MB;
    write = ash_fact_number(tier, "write_mb_s_per_tib", read / MB) * MB;
    if (read <= 0)
        return ash_err_set(err, -EINVAL,
                           "the rate of %s is not published: measure it and give --write-gb-s and "
                           "--read-gb-s",
                           name);
    if (tib <= 0) return ash_err_set(err, -EINVAL, "%s is as fast as it is large: give --storage-tib", name);
    clients = client_rate(catalog, machine) * machines;
    *rate_out = (struct ash_tier_rate){fmin(write * tib, clients), fmin(read * tib, clients), read * tib > clients};
    return 0;
}
