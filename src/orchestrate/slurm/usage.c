/* sacct's lines: one for each time that a job had nodes. */
#include "orchestrate/slurm/usage.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID, NAME, USER, TEAM, START, END, NODES, TRES, COMMENT };

/* "billing=8,cpu=8,gres/gpu=16,node=2": GPUs of any type, or 0. */
static double gpus_of(const char *tres)
{
    static const char key[] = "gres/gpu=";

    for (const char *at = strstr(tres, key); at != NULL; at = strstr(at + 1, key))
        if (at == tres || at[-1] == ',') return fmax(strtod(at + strlen(key), NULL), 0.0);
    return 0.0;
}

/* Price and folder from the comment. Tasks of an array have folders of their own. */
static void read_comment(const char *comment, const char *id, char *buf, struct ash_usage_entry *entry)
{
    const char *task = strchr(id, '_'), *rest = comment + strlen(ASH_SLURM_COMMENT);
    int used;

    if (strncmp(comment, ASH_SLURM_COMMENT, strlen(ASH_SLURM_COMMENT)) != 0) return;
    if (strncmp(rest, "price=", 6) == 0) {
        char *end;
        double price = strtod(rest + 6, &end);

        entry->price = isfinite(price) && price > 0.0 && price < 1e9 ? price : 0.0;
        rest = *end == ' ' ? end + 1 : "";
    }
    if (strncmp(rest, "out=", 4) != 0) return;
    used = snprintf(buf, PATH_MAX, "%s%s%s", rest + 4, task != NULL ? "/task-" : "", task != NULL ? task + 1 : "");
    if (used > 0 && used < PATH_MAX) entry->out = buf;
}

static int read_line(char *line, double from_s, double to_s, struct ash_usage_list *list, struct ash_err *err)
{
    char *fields[ASH_SLURM_USAGE_FIELDS], *rest = line, *end, out[PATH_MAX];
    struct ash_usage_entry entry = {0};
    size_t count = 0;

    while (rest != NULL && count < ASH_SLURM_USAGE_FIELDS)
        fields[count++] = strsep(&rest, ASH_SLURM_USAGE_BREAK);
    if (count != ASH_SLURM_USAGE_FIELDS || rest != NULL)
        return ash_err_set(err, -EINVAL, "sacct prints a line that is no job: '%.80s'", line);
    entry.start_s = strtod(fields[START], &end);
    if (end == fields[START] || *end != '\0' || !(entry.start_s > 0.0)) return 0; /* Unknown: it waits */
    entry.end_s = strtod(fields[END], &end);
    if (end == fields[END] || *end != '\0') entry.end_s = to_s; /* Unknown: it runs */
    entry.id = fields[ID];
    entry.name = fields[NAME];
    entry.user = fields[USER];
    entry.team = fields[TEAM];
    entry.nodes = (double)strtoul(fields[NODES], NULL, 10);
    entry.gpus = gpus_of(fields[TRES]);
    read_comment(fields[COMMENT], fields[ID], out, &entry);
    return ash_usage_add(list, &entry, from_s, to_s);
}

int ash_slurm_read_usage(const char *text, double from_s, double to_s, struct ash_usage_list *list_out,
                         struct ash_err *err)
{
    char *copy = strdup(text), *rest = copy, *line;
    int rc = copy == NULL ? -ENOMEM : 0;

    while (rc == 0 && (line = strsep(&rest, "\n")) != NULL)
        if (line[0] != '\0') rc = read_line(line, from_s, to_s, list_out, err);
    free(copy);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for what jobs have used") : rc;
}
