/* A job and its nodes from scontrol. */
#include "cmd/diagnose_slurm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/command.h"
#include "orchestrate/slurm/queue.h"

#define LIMIT_S 20.0
#define NODES_BYTES 65536

void ash_slurm_job_fini(struct ash_slurm_job *job)
{
    for (size_t i = 0; i < job->agents.count; i++)
        free(job->agent_texts[i]);
    free(job->agent_texts);
    free(job->log);
    *job = (struct ash_slurm_job){0};
}

/* scontrol --oneliner show WHAT NAME. The caller frees the result, whatever was returned. */
static int show(const char *what, const char *name, struct ash_command_result *result, struct ash_err *err)
{
    const char *const argv[] = {"scontrol", "--oneliner", "show", what, name, NULL};
    int rc = ash_command_run(&(struct ash_command){.argv = argv, .limit_s = LIMIT_S}, result, err);

    if (rc < 0) return rc;
    if (result->code != 0)
        return ash_err_set(err, -ENOENT, "Slurm knows no %s %s: %.*s", what, name,
                           (int)strcspn(result->err.data != NULL ? result->err.data : "", "\n"),
                           result->err.data != NULL ? result->err.data : "");
    return 0;
}

static int add_agent(struct ash_slurm_job *job, const char *name, const char *address, int port)
{
    size_t count = job->agents.count;

    if (ash_array_reserve(&job->agent_texts, &job->agent_capacity, count + 1, sizeof(*job->agent_texts)) < 0)
        return -ENOMEM;
    if (asprintf(&job->agent_texts[count], "%s=%s:%d", name, address, port) < 0) return -ENOMEM;
    job->agents.items = (const char **)job->agent_texts;
    job->agents.count++;
    return 0;
}

/* A node that Slurm does not use is a finding: down is broken, drained is an operator's decision. */
static int report_state(const char *line, const char *name, const char *state, struct ash_diagnose *diagnose)
{
    const char *reason = strstr(line, " Reason=");
    bool is_down = strstr(state, "DOWN") != NULL || strstr(state, "NOT_RESPONDING") != NULL ||
                   strstr(state, "FAIL") != NULL || strchr(state, '*') != NULL;
    struct ash_finding finding = {.layer = ASH_HEALTH_HOST,
                                  .severity = is_down ? ASH_BROKEN : ASH_WATCH,
                                  .metric = "Slurm's state",
                                  .normal = "in use",
                                  .means = is_down ? "Slurm has lost the node" : "the node takes no further job",
                                  .action = "see scontrol show node",
                                  .source = "scontrol"};

    if (!is_down && strstr(state, "DRAIN") == NULL) return 0;
    snprintf(finding.where, sizeof(finding.where), "%.120s", name);
    snprintf(finding.value, sizeof(finding.value), "%.60s%s%.*s", state, reason != NULL ? ": " : "",
             reason != NULL ? (int)strcspn(reason + 8, "\n") : 0, reason != NULL ? reason + 8 : "");
    return ash_diagnose_report(diagnose, &finding);
}

/* The lines of `show node`, one node each. */
static int read_nodes(const char *text, int port, struct ash_slurm_job *job, struct ash_diagnose *diagnose)
{
    char name[256], address[256], state[128];
    int rc = 0;

    for (const char *line = text; rc == 0 && line != NULL && *line != '\0';
         line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
        ash_slurm_value(line, "NodeName", name, sizeof(name));
        ash_slurm_value(line, "NodeAddr", address, sizeof(address));
        ash_slurm_value(line, "State", state, sizeof(state));
        if (name[0] == '\0') continue;
        rc = add_agent(job, name, address[0] != '\0' ? address : name, port);
        if (rc == 0) rc = report_state(line, name, state, diagnose);
    }
    return rc;
}

int ash_slurm_job_read(const char *id, int agent_port, struct ash_slurm_job *job, struct ash_diagnose *diagnose,
                       struct ash_err *err)
{
    struct ash_command_result facts = {0}, nodes = {0};
    char *list = malloc(NODES_BYTES), log[4096] = "";
    int rc = list == NULL ? ash_err_set(err, -ENOMEM, "no memory for the job") : show("job", id, &facts, err);

    if (rc == 0) {
        ash_slurm_value(facts.out.data, "NodeList", list, NODES_BYTES);
        ash_slurm_value(facts.out.data, "StdOut", log, sizeof(log));
        if (list[0] == '\0' || strcmp(list, "(null)") == 0)
            rc = ash_err_set(err, -ENOENT, "job %s has no nodes yet: ashlar jobs why says the reason", id);
    }
    if (rc == 0) rc = show("node", list, &nodes, err);
    if (rc == 0 && read_nodes(nodes.out.data, agent_port, job, diagnose) < 0)
        rc = ash_err_set(err, -ENOMEM, "no memory for the job's nodes");
    if (rc == 0 && log[0] == '/' && access(log, R_OK) == 0) {
        job->log = strdup(log);
        job->logs = (struct ash_opt_list){(const char **)&job->log, job->log != NULL};
    }
    ash_command_free(&facts);
    ash_command_free(&nodes);
    free(list);
    return rc;
}
