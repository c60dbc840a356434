/* node - marks a node of a Kubernetes cluster as unfit, and takes the marks away again: a taint, HyperPod's health
 * label, a condition, and why as an annotation. What others have set stays as it is. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_NODE_H
#define ASH_ORCHESTRATE_KUBERNETES_NODE_H

#include "ashlar/err.h"

#define ASH_KUBE_NODE_TAINT "ashlar.dev/unhealthy"
#define ASH_KUBE_NODE_CONDITION "AshlarHealthy"
#define ASH_KUBE_NODE_DRAINED "ashlar.dev/drained-at" /* annotation; it stays when the node is back */
#define ASH_KUBE_NODE_LABEL "sagemaker.amazonaws.com/node-health-status"

struct ash_kube_node_mark {
    const char *fate;   /* "reset", "reboot", "replace": the taint's value; NULL: the node is good, marks go */
    const char *health; /* of HyperPod's label */
    const char *reason;
    double share_max;          /* of all nodes: may be out at once, and go out in an hour, this one included */
    void (*before)(void *ctx); /* called within the budget, before the node is marked; NULL: nothing */
    void *ctx;
};

/* Set or take them away. Returns 0, -EBUSY (the budget of nodes out is spent), or a negative errno with the cluster's
 * message. */
int ash_kube_node_set(const char *node, const struct ash_kube_node_mark *mark, struct ash_err *err);

#endif
