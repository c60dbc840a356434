/* config - a kubeconfig file: the cluster's address and our credentials. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_CONFIG_H
#define ASH_ORCHESTRATE_KUBERNETES_CONFIG_H

#include <stdbool.h>
#include "ashlar/err.h"
#include "base/str.h"

/* All texts are owned; NULL if there is none. */
struct ash_kube_config {
    char *server, *kube_namespace;
    char *token;           /* for Authorization: Bearer */
    char *ca, *cert, *key; /* PEM texts */
    char *user, *password; /* basic */
    bool is_insecure;      /* the certificate is not checked */
};

/* The current context of a kubeconfig text. folder is the base of relative paths in it. A user of kind `exec` is
 * resolved by running its program. Returns 0, -EINVAL with the fault, or an errno of a file it names. */
int ash_kube_config_parse(const char *text, size_t size_bytes, const char *name, const char *folder,
                          struct ash_kube_config *config_out, struct ash_err *err);
/* From KUBECONFIG, ~/.kube/config or a pod's service account. -ENOENT if there is none. */
int ash_kube_config_find(struct ash_kube_config *config_out, struct ash_err *err);
/* Frees the texts. */
void ash_kube_config_free(struct ash_kube_config *config);

#endif
