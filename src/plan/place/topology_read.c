/* The three forms that a topology comes in. All become names that hang below names; the tree checks the rest. */
#include "plan/place/topology_priv.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/json.h"
#include "plan/place/hostlist.h"

#define GAPS " \t\r"
#define FORMATS                                                                                                        \
    "a topology is what `aws ec2 describe-instance-topology` prints, Slurm's topology.conf, or lines of `host "        \
    "spine1/leaf3`"

/* The next line of text, without its comment; NULL after the last. */
static char *next_line(char **text)
{
    char *line = strsep(text, "\n");

    if (line != NULL) line[strcspn(line, "#")] = '\0';
    return line;
}

/* Hang host below a path of domains, each known by its whole path: leaf1 of one spine is not leaf1 of another. */
static int hang_path(struct ash_topology *topology, const char *host, char *path, struct ash_err *err)
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
            return ash_err_set(err, -EINVAL, "line %d: '%.80s' follows a host and its path; " FORMATS, number,
                               more + 1);
        *more = '\0';
        rc = hang_path(topology, host, path, err);
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

/* The value of "Key=value" where word has that key, whatever the case; else NULL. */
static const char *value_of(const char *word, const char *key)
{
    size_t length = strlen(key);

    return strncasecmp(word, key, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

/* One line: the name first, then what hangs below it; other words (LinkSpeed=...) say nothing about the tree. */
static int read_switch(struct ash_topology *topology, char *line, struct ash_err *err)
{
    struct below below = {.topology = topology, .parent = -1};

    for (char *word = strsep(&line, GAPS); word != NULL; word = strsep(&line, GAPS)) {
        const char *name = value_of(word, "SwitchName"), *nodes = value_of(word, "Nodes");
        const char *switches = value_of(word, "Switches");
        int rc = 0;

        if (name == NULL) name = value_of(word, "BlockName");
        if (name != NULL) rc = below.parent = ash_topology_add(topology, name, false, err);
        if ((nodes != NULL || switches != NULL) && below.parent < 0)
            return ash_err_set(err, -EINVAL, "'%.80s' has no SwitchName= before it", word);
        below.is_host = nodes != NULL;
        if (nodes != NULL || switches != NULL)
            rc = ash_hostlist_each(nodes != NULL ? nodes : switches, hang_below, &below, err);
        if (rc < 0) return rc;
    }
    return 0;
}

int ash_topology_read_slurm(struct ash_topology *topology, char *text, struct ash_err *err)
{
    int number = 0;

    for (char *at = strstr(text, "\\\n"); at != NULL; at = strstr(at, "\\\n"))
        at[0] = at[1] = ' '; /* a continued line */
    for (char *line = next_line(&text); line != NULL; line = next_line(&text)) {
        int rc = read_switch(topology, line, err);

        number++;
        if (rc < 0) return ash_err_prefix(err, rc, "line %d", number);
    }
    return 0;
}

/* ---- EC2 --------------------------------------------------------------------------------------------------------- */

static int read_instance(struct ash_topology *topology, const json_t *instance, struct ash_err *err)
{
    const json_t *layers = json_object_get(instance, "NetworkNodes"), *layer;
    const char *id = json_string_value(json_object_get(instance, "InstanceId"));
    char path[ASH_TOPOLOGY_NAME_MAX + 1] = "";
    size_t i, length = 0;

    if (id == NULL || json_array_size(layers) == 0)
        return ash_err_set(err, -EINVAL, "every instance needs an InstanceId and a list of NetworkNodes");
    json_array_foreach(layers, i, layer) {
        const char *name = json_string_value(layer);

        if (name == NULL || *name == '\0' || length + strlen(name) + 1 > ASH_TOPOLOGY_NAME_MAX)
            return ash_err_set(err, -EINVAL, "the NetworkNodes of %.80s are not a list of short names", id);
        if (length > 0) path[length++] = '/';
        memcpy(path + length, name, strlen(name) + 1);
        length += strlen(name);
    }
    return hang_path(topology, id, path, err);
}

int ash_topology_read_ec2(struct ash_topology *topology, const char *text, struct ash_err *err)
{
    const json_t *instances, *instance;
    json_t *json = NULL;
    size_t i;
    struct ash_err cause = {0};
    int rc = ash_json_parse(text, strlen(text), "topology", &json, &cause);

    if (rc < 0) return ash_err_set(err, rc, "%.200s; " FORMATS, cause.text);
    instances = json_is_array(json) ? json : json_object_get(json, "Instances");
    if (!json_is_array(instances))
        rc = ash_err_set(err, -EINVAL, "no list of Instances: is it what `aws ec2 describe-instance-topology` prints?");
    json_array_foreach(instances, i, instance) {
        if (rc == 0) rc = read_instance(topology, instance, err);
    }
    json_decref(json);
    return rc;
}
