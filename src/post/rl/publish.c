/* publish: parameters one after the other, without the padding that a layout may have between them. */
#include "post/rl/publish.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/socket.h"

int ash_publish_open_port(const char *host, struct ash_port **port_out, struct ash_err *err)
{
    struct ash_port_opts opts;

    ash_port_opts_init(&opts);
    if (ash_socket_job_host(host) != NULL) opts.path = "shm";
    return ash_port_open(&opts, port_out, err);
}

int ash_publisher_open(struct ash_publisher *publisher, const char *host, const struct ash_model *model,
                       size_t slot_count, struct ash_err *err)
{
    struct ash_publisher opened = {.slot_count = slot_count, .count = ash_model_weight_count(model)};
    int rc = ash_publish_open_port(host, &opened.port, err);

    ash_assert(slot_count > 0 && opened.count > 0);
    if (rc < 0) return rc;
    opened.slots = calloc(slot_count, sizeof(*opened.slots));
    opened.descriptions = calloc(slot_count, sizeof(*opened.descriptions));
    opened.versions = calloc(slot_count, sizeof(*opened.versions));
    opened.serials = calloc(slot_count, sizeof(*opened.serials));
    if (opened.slots == NULL || opened.descriptions == NULL || opened.versions == NULL || opened.serials == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory for the weights of samplers");
    for (size_t i = 0; rc == 0 && i < slot_count; i++) {
        rc = ash_port_register_versions(opened.port, opened.count * sizeof(float), &opened.slots[i], err);
        if (rc == 0) ash_port_describe(opened.port, opened.slots[i], &opened.descriptions[i]);
    }
    if (rc < 0) {
        ash_publisher_close(&opened);
        return rc;
    }
    *publisher = opened;
    return 0;
}

void ash_publisher_close(struct ash_publisher *publisher)
{
    for (size_t i = 0; publisher->slots != NULL && i < publisher->slot_count; i++)
        ash_port_memory_close(publisher->slots[i]);
    ash_port_close(publisher->port);
    free(publisher->slots);
    free(publisher->descriptions);
    free(publisher->versions);
    free(publisher->serials);
    *publisher = (struct ash_publisher){0};
}

bool ash_publisher_has(const struct ash_publisher *publisher, size_t slot, uint64_t version)
{
    return publisher->port != NULL && publisher->versions[slot] == version + 1;
}

int ash_publisher_publish(struct ash_publisher *publisher, size_t slot, uint64_t version, struct ash_model *model,
                          struct ash_err *err)
{
    const float *values = ash_model_values(model);
    float *out;
    int rc;

    ash_assert(slot < publisher->slot_count && values != NULL);
    ash_assert(ash_model_weight_count(model) == publisher->count);
    if (ash_publisher_has(publisher, slot, version)) return 0;
    out = ash_port_memory_data(publisher->slots[slot]);
    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);

        memcpy(out, values + param->offset, param->count * sizeof(*out));
        out += param->count;
    }
    rc = ash_port_publish(publisher->slots[slot], publisher->count * sizeof(float), publisher->last_serial + 1);
    if (rc < 0) return ash_err_set(err, rc, "weights cannot be published: %s", strerror(-rc));
    publisher->serials[slot] = ++publisher->last_serial;
    publisher->versions[slot] = version + 1;
    return 0;
}

void ash_publish_load(const float *values, struct ash_model *model)
{
    float *into = ash_model_values(model);

    ash_assert(into != NULL);
    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);

        memcpy(into + param->offset, values, param->count * sizeof(*values));
        values += param->count;
    }
    ash_model_refresh(model);
}
