/* A topology from a file, in whichever form it is written. */
#include "infra/topology/topology_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)

/* A list of topologies begins with "---" or "- topology:"; comments may come first. */
static bool is_yaml(const char *text)
{
    for (;; text += strcspn(text, "\n")) {
        text += strspn(text, " \t\r\n");
        if (*text != '#') return strncmp(text, "---", 3) == 0 || strncmp(text, "- ", 2) == 0;
    }
}

static int read_text(struct ash_topology *topology, char *text, struct ash_err *err)
{
    const char *first = text + strspn(text, " \t\r\n");

    if (*first == '{' || *first == '[') return ash_topology_read_json(topology, text, err);
    if (is_yaml(text)) return ash_topology_read_yaml(topology, text, err);
    if (strcasestr(text, "SwitchName=") != NULL || strcasestr(text, "BlockName=") != NULL)
        return ash_topology_read_slurm(topology, text, err);
    return ash_topology_read_plain(topology, text, err);
}

int ash_topology_parse(const char *text, size_t size_bytes, const char *name, struct ash_topology **topology_out,
                       struct ash_err *err)
{
    struct ash_topology *topology = ash_topology_make_empty();
    char *copy = strndup(text, size_bytes);
    int rc;

    if (topology == NULL || copy == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    else
        rc = read_text(topology, copy, err);
    if (rc == 0) rc = ash_topology_settle(topology, err);
    free(copy);
    if (rc < 0) {
        ash_topology_close(topology);
        return ash_err_prefix(err, rc, "%s", name);
    }
    *topology_out = topology;
    return 0;
}

int ash_topology_open(const char *path, struct ash_topology **topology_out, struct ash_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = ash_file_read(path, FILE_BYTES_MAX, &text, &bytes, err);

    if (rc < 0) return rc;
    rc = ash_topology_parse(text, bytes, path, topology_out, err);
    free(text);
    return rc;
}
