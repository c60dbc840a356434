/* Fuzz target: what schedulers print about jobs: Slurm's queue, reasons and accounting, Kubernetes' objects and
 * events, and kubeconfig files (whose programs are not run). */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "orchestrate/kubernetes/config.h"
#include "orchestrate/kubernetes/status.h"
#include "orchestrate/kubernetes/usage.h"
#include "orchestrate/slurm/balance.h"
#include "orchestrate/slurm/queue.h"
#include "orchestrate/slurm/usage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size), name[16];
    struct ash_jobs_list list = {0};
    struct ash_usage_list used = {0};
    struct ash_balance balance = {.job_count = 0};
    struct ash_jobs_entry entry = {.phase = ASH_JOBS_WAITING};
    struct ash_kube_config config;
    struct ash_str why = {0};
    struct ash_kube_event event;
    json_t *json = NULL;
    double limit_s = 0;

    if (text == NULL) return 0;
    if (ash_slurm_read_queue(text, 2e9, &list, NULL) == 0 && list.count > size) abort();
    ash_jobs_free(&list);
    if (ash_slurm_read_usage(text, 1e3, 2e9, &used, NULL) == 0 && used.count > size) abort();
    ash_usage_free(&used);
    ash_balance_read(&balance, text, text, NULL);
    ash_balance_free(&balance);
    ash_usage_parse_time(text, 2e9, &limit_s);
    ash_slurm_partition_nodes(text, NULL, name, sizeof(name));
    ash_slurm_duration(text, &limit_s);
    ash_slurm_explain(&(struct ash_slurm_evidence){&entry, text, text, text, text}, &why, NULL);
    ash_str_fini(&why);
    if (ash_json_parse(text, strlen(text), "object", &json, NULL) == 0) {
        ash_kube_read_job(json, 2e9, &entry);
        ash_kube_read_usage(json, 1e3, 2e9, &used);
        ash_usage_free(&used);
        if (ash_kube_read_event(json, &event) == 0 && event.object == NULL) abort();
        ash_kube_explain(&(struct ash_kube_evidence){&entry, json, json, json}, &why, NULL);
        ash_str_fini(&why);
        json_decref(json);
    }
    if (strstr(text, "exec") == NULL && strchr(text, '/') == NULL &&
        ash_kube_config_parse(text, strlen(text), "kubeconfig", "/nowhere", &config, NULL) == 0)
        ash_kube_config_free(&config);
    free(text);
    return 0;
}
