/* Plain lines and Slurm's topology.conf. All become names that hang below names; the tree checks the rest. */
#include "infra/topology/topology_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "infra/topology/hostlist.h"

#define GAPS " \t\r"
/* The next line of text, without its comment; NULL after the last. */
static char *next_line(char **text)
{
    char *line = strsep(text, "\n");

    if (line != NULL) line[strcspn(line, "#")] = '\0';
    return line;
}

int ash_topology_hang_path(struct ash_topology *topology, const char *host, char *path, struct ash_err *err)
{
    int parent = 0, child;

    for (size_t length = strcspn(path, "/");; length += 1 + strcspn(path + length + 1, "/")) {
        char stop = path[length];

        path[length] = '\0';
        child = ash_topology_add(topology, path, false, err);
        path[length] = stop;
        if (child >= 0 && ash_topology_hang(topology, child, parent, err) < 0) child = -EINVAL;
        if (child < 0) return child;
        parent = child;
        if (stop == '\0') break;
    }
    child = ash_topology_add(topology, host, true, err);
    return child < 0 ? child : ash_topology_hang(topology, child, parent, err);
}

/* ---- plain lines ------------------------------------------------------------------------------------------------- */

int ash_topology_read_plain(struct ash_topology *topology, char *text, struct ash_err *err)
{
    int number = 0;

    for (char *line = next_line(&text); line != NULL; line = next_line(&text)) {
        char *host, *path, *more;
        int rc;

        number++;
        line += strspn(line, GAPS);
        if (*line == '\0') continue;
        host = strsep(&line, GAPS);
        path = line != NULL ? line + strspn(line, GAPS) : NULL;
        if (path == NULL || *path == '\0')
            return ash_err_set(err, -EINVAL, "line %d: '%.80s' needs a path of domains after it: host1 spine1/leaf3",
                               number, host);
        more = path + strcspn(path, GAPS);
        if (more[strspn(more, GAPS)] != '\0')
            return ash_err_set(err, -EINVAL, "line %d: '%.80s' follows a host and its path; " ASH_TOPOLOGY_FORMATS,
                               number, more + 1);
        *more = '\0';
        rc = ash_topology_hang_path(topology, host, path, err);
        if (rc < 0) return ash_err_prefix(err, rc, "line %d", number);
    }
    return 0;
}

/* ---- Slurm ------------------------------------------------------------------------------------------------------- */

struct below {
    struct ash_topology *topology;
    int parent;
    bool is_host;
};

static int hang_below(void *ctx, const char *name, struct ash_err *err)
{
    const struct below *below = ctx;
    int child = ash_topology_add(below->topology, name, below->is_host, err);

    return child < 0 ? child : ash_topology_hang(below->topology, child, below->parent, err);
}

int ash_topology_hang_list(struct ash_topology *topology, const char *list, bool is_host, int parent,
                           struct ash_err *err)
{
    struct below below = {.topology = topology, .parent = parent, .is_host = is_host};

    return ash_hostlist_each(list, hang_below, &below, err);
}

/* The value of "Key=value" where word has that key, whatever the case; else NULL. */
static const char *value_of(const char *word, const char *key)
{
    size_t length = strlen(key);

    return strncasecmp(word, key, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

/* "4,16": nodes of a block, then of blocks of blocks. */
static int read_block_sizes(const char *text, struct ash_topology_blocks *blocks, struct ash_err *err)
{
    while (*text != '\0') {
        char *end = NULL;
        long size = strtol(text, &end, 10);

        if (end == text || size < 1 || size > ASH_TOPOLOGY_NODES_MAX || (*end != ',' && *end != '\0'))
            return ash_err_set(err, -EINVAL, "block sizes are numbers of nodes as in 4,16, not '%.40s'", text);
        if (blocks->size_count >= ASH_TOPOLOGY_HEIGHT_MAX)
            return ash_err_set(err, -EINVAL, "more than %d block sizes", ASH_TOPOLOGY_HEIGHT_MAX);
        blocks->sizes[blocks->size_count++] = (int)size;
        text = *end == ',' ? end + 1 : end;
    }
    return 0;
}

/* One line: the name first, then what hangs below it; other words (LinkSpeed=...) say nothing about the tree. */
static int read_switch(struct ash_topology *topology, char *line, struct ash_topology_blocks *blocks,
                       struct ash_err *err)
{
    int parent = -1;

    for (char *word = strsep(&line, GAPS); word != NULL; word = strsep(&line, GAPS)) {
        const char *name = value_of(word, "SwitchName"), *block = value_of(word, "BlockName");
        const char *nodes = value_of(word, "Nodes"), *switches = value_of(word, "Switches");
        const char *sizes = value_of(word, "BlockSizes"), *list = nodes != NULL ? nodes : switches;
        int rc = 0;

        if (name == NULL) name = block;
        if (name != NULL) rc = parent = ash_topology_add(topology, name, false, err);
        if (rc >= 0 && block != NULL) rc = ash_topology_add_block(blocks, parent, err);
        if (rc >= 0 && sizes != NULL) rc = read_block_sizes(sizes, blocks, err);
        if (rc >= 0 && list != NULL && parent < 0)
            rc = ash_err_set(err, -EINVAL, "'%.80s' has no SwitchName= before it", word);
        if (rc >= 0 && list != NULL) rc = ash_topology_hang_list(topology, list, nodes != NULL, parent, err);
        if (rc < 0) return rc;
    }
    return 0;
}

int ash_topology_read_slurm(struct ash_topology *topology, char *text, struct ash_err *err)
{
    struct ash_topology_blocks blocks = {0};
    int number = 0, rc = 0;

    for (char *at = strstr(text, "\\\n"); at != NULL; at = strstr(at, "\\\n"))
        at[0] = at[1] = ' '; /* a continued line */
    for (char *line = next_line(&text); line != NULL && rc == 0; line = next_line(&text)) {
        number++;
        rc = read_switch(topology, line, &blocks, err);
        if (rc < 0) rc = ash_err_prefix(err, rc, "line %d", number);
    }
    if (rc == 0) rc = ash_topology_join_blocks(topology, &blocks, err);
    free(blocks.nodes);
    return rc;
}

/* ---- blocks of blocks -------------------------------------------------------------------------------------------- */

int ash_topology_add_block(struct ash_topology_blocks *blocks, int node, struct ash_err *err)
{
    if ((blocks->count & (blocks->count - 1)) == 0) { /* a power of two, or none yet: full */
        int *more = realloc(blocks->nodes, (size_t)(blocks->count == 0 ? 1 : 2 * blocks->count) * sizeof(*more));

        if (more == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
        blocks->nodes = more;
    }
    blocks->nodes[blocks->count++] = node;
    return 0;
}

/* Join each run of `ratio` domains under a new one; the rest at the end is one too. */
static int join_layer(struct ash_topology *topology, struct ash_topology_blocks *blocks, int ratio, int layer,
                      struct ash_err *err)
{
    int joined = 0;

    for (int first = 0; first < blocks->count; first += ratio) {
        char name[64];
        int parent, rc = 0;

        snprintf(name, sizeof(name), "blocks of %d: %d", blocks->sizes[layer], first / ratio + 1);
        parent = ash_topology_add(topology, name, false, err);
        if (parent < 0) return parent;
        for (int i = first; i < first + ratio && i < blocks->count && rc == 0; i++)
            rc = ash_topology_hang(topology, blocks->nodes[i], parent, err);
        if (rc < 0) return rc;
        blocks->nodes[joined++] = parent;
    }
    blocks->count = joined;
    return 0;
}

int ash_topology_join_blocks(struct ash_topology *topology, struct ash_topology_blocks *blocks, struct ash_err *err)
{
    for (int layer = 1; layer < blocks->size_count; layer++) {
        int ratio = blocks->sizes[layer] / blocks->sizes[layer - 1], rc;

        if (ratio < 2 || blocks->sizes[layer] % blocks->sizes[layer - 1] != 0)
            return ash_err_set(err, -EINVAL, "a block size of %d is no multiple of the %d before it",
                               blocks->sizes[layer], blocks->sizes[layer - 1]);
        rc = join_layer(topology, blocks, ratio, layer, err);
        if (rc < 0) return rc;
    }
    return 0;
}
