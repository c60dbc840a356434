/* --catalog FILE, for every command that plans with machines. */
#include "cmd/catalog_priv.h"

#include "base/assert.h"

static const struct ash_opt opts[] = {
    {"catalog", ASH_OPT_LIST, offsetof(struct ash_catalog_flags, catalog), NULL, "YAML files with machines of your own",
     0, 0, NULL},
};

const struct ash_opt_table ash_catalog_table = {
    .section = "", .help = "machines", .opts = opts, .count = ASH_COUNT(opts)};

int ash_cmd_catalog_open(const struct ash_catalog_flags *flags, struct ash_catalog **catalog_out, struct ash_err *err)
{
    return ash_catalog_open(flags->catalog.items, flags->catalog.count, catalog_out, err);
}
